package admin

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

// trail reads a page of the audit log.
func (h *house) trail(query string) (page auditList) {
	h.t.Helper()
	response, body := h.call("GET", "/api/audit"+query, manageKey, "")
	require.Equal(h.t, 200, response.StatusCode, body)
	require.NoError(h.t, json.Unmarshal([]byte(body), &page))
	return page
}

func TestEveryOperatorActionIsInTheAuditLog(t *testing.T) {
	h := newClinic(t)
	began := len(h.trail("?limit=1000").Items)
	h.patch("/api/resilience", `{"modelLockout":{"enabled":true}}`)
	h.call("POST", "/api/resilience/reset", adminToken, `{"connection":"banned"}`)
	h.call("POST", "/api/resilience/reset", manageKey, `{"provider":"one"}`)
	h.call("DELETE", "/api/resilience/cooldowns", manageKey, `{"connection":"cooling"}`)
	h.call("DELETE", "/api/resilience/model-cooldowns", manageKey, `{"connection":"both"}`)
	h.patch("/api/settings", `{"customBannedSignals":["closed"]}`)
	h.patch("/api/resilience", `{"modelLockout":{"enabled":true}}`) // changes nothing
	h.call("PATCH", "/api/resilience", manageKey, `{"modelLockout":{"baseCooldownMs":1}}`)
	h.call("GET", "/api/resilience/cooldowns", manageKey, ``)

	var lines []string
	for _, e := range h.trail("?limit=1000").Items {
		require.WithinDuration(t, time.Now(), e.At, 10*time.Second)
		lines = append(lines, fmt.Sprintf("%s %s %s %s: %s", e.Actor, e.Action, e.Kind, e.Entity, e.Detail))
	}
	require.Equal(t, []string{
		"api:key boss create setting customBannedSignals: + setting customBannedSignals: entries [closed]",
		"api:key boss enable_models connection both: model lockouts ended: model gpt-x",
		"api:key boss clear_cooldown connection cooling: cooldown cleared",
		"api:key boss reset provider one: circuit breaker and cooldowns of the provider reset",
		"api:admin-token reset connection banned: cooldown, terminal state and model lockouts reset",
		"api:key boss create setting resilience: + setting resilience: modelLockout.enabled true",
	}, lines[:len(lines)-began])
}

func TestWhatWasDoneBeforeAFailureIsInTheAuditLog(t *testing.T) {
	h := newClinic(t)
	h.cluster.broken = "connection both"
	response, _ := h.call("POST", "/api/resilience/reset", adminToken, `{"all":true}`)
	require.Equal(t, 503, response.StatusCode)
	var reset []string
	for _, e := range h.trail("").Items {
		if e.Action == auditReset {
			reset = append(reset, e.Kind+" "+e.Entity)
		}
	}
	require.ElementsMatch(t, h.cluster.taken(), reset)
}

func TestTheAuditLogIsReadPageByPageTheNewestFirst(t *testing.T) {
	h := newHouse(t)
	all := h.trail("").Items
	require.Greater(t, len(all), 5)
	var paged []auditEntry
	query := "?limit=2"
	for {
		page := h.trail(query)
		paged = append(paged, page.Items...)
		if page.Next == 0 {
			break
		}
		query = fmt.Sprintf("?limit=2&before=%d", page.Next)
	}
	require.Equal(t, all, paged)
	require.Greater(t, all[0].ID, all[1].ID)

	for _, query := range []string{"?limit=0", "?limit=1001", "?limit=x", "?before=0", "?before=-1", "?after=1", "?limit=1&limit=2"} {
		response, body := h.call("GET", "/api/audit"+query, manageKey, "")
		require.Equal(t, 400, response.StatusCode, query)
		require.NotEmpty(t, h.failure(body).Param)
	}
}

func TestAnActionThatCannotBeAuditedIsLoggedInstead(t *testing.T) {
	h := newClinic(t)
	log, hook := logtest.NewNullLogger()
	h.service.o.Log = log
	require.NoError(t, h.store.Close())
	response, body := h.call("POST", "/api/resilience/reset", adminToken, `{"connection":"banned"}`)
	require.Equal(t, 200, response.StatusCode, body)
	require.Equal(t, []string{"connection banned"}, h.cluster.taken())
	var errors []*logrus.Entry
	for _, e := range hook.AllEntries() {
		if e.Level == logrus.ErrorLevel {
			errors = append(errors, e)
		}
	}
	require.Len(t, errors, 1)
	require.Equal(t, "banned", errors[0].Data["connection"])
	require.Equal(t, "api:admin-token", errors[0].Data["actor"])
}
