package ingress_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

// What never reaches the relay is not silent: one line each, and a row for those who are known.
func TestARefusalIsLoggedCountedAndBookedToAKnownKey(t *testing.T) {
	e := newEdge(t)
	cases := []struct {
		method, path, body, key string
		status                  int
		code                    models.Code
		booked                  models.APIKeyID
		reason                  models.Reason
	}{
		{"POST", "/v1/chat/completions", chat, "omr_guessed", 401, models.CodeInvalidAPIKey, "", ""},
		{"POST", "/v1/chat/completions", chat, staleKey, 401, models.CodeInvalidAPIKey, "k3", models.ReasonNotAllowed},
		{"POST", "/v1/chat/completions", chat, adminKey, 403, models.CodeForbidden, "k4", models.ReasonNotAllowed},
		{"POST", "/v1/chat/completions", `{`, goodKey, 400, models.CodeInvalidJSON, "k1", models.ReasonInvalidRequest},
		{"POST", "/v1/chat/completions", strings.Repeat("x", maxBody+1), goodKey, 413, models.CodeBodyTooLarge, "k1", models.ReasonInvalidRequest},
		{"GET", "/v1/models/nope", "", goodKey, 404, models.CodeModelNotFound, "k1", models.ReasonNotFound},
		{"GET", "/v2/nothing", "", goodKey, 404, models.CodeNotFound, "", ""},
	}
	counts := map[models.Code]int{}
	for _, c := range cases {
		e.log.Reset()
		require.Equal(t, c.status, e.do(t, c.method, c.path, c.body, "x-api-key", c.key, "x-request-id", "mine").status)
		counts[c.code]++

		line := e.log.LastEntry()
		require.Len(t, e.log.AllEntries(), 1)
		require.Equal(t, "request refused", line.Message)
		require.Equal(t, c.status, line.Data["status"])
		require.Equal(t, c.code, line.Data["code"])
		require.Equal(t, "mine", line.Data["client_request"])
		rows := e.ledger.take()
		if c.booked == "" {
			require.Empty(t, rows)
			continue
		}
		require.Equal(t, string(c.booked), line.Data["key"])
		require.Len(t, rows, 1)
		require.Equal(t, line.Data["request"], string(rows[0].ID))
		require.Equal(t, catalog.RequestRecord{
			ID: rows[0].ID, ClientID: "mine", Key: c.booked, Status: c.status, Reason: c.reason,
			StartedAt: rows[0].StartedAt, Total: rows[0].Total,
		}, rows[0])
		require.WithinDuration(t, time.Now(), rows[0].StartedAt, 10*time.Second)
	}
	families, err := e.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "omniroute_requests_refused_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			code := models.Code(metric.GetLabel()[0].GetValue())
			require.EqualValues(t, counts[code], metric.GetCounter().GetValue(), code)
			delete(counts, code)
		}
	}
	require.Empty(t, counts, "codes without a count")
}
