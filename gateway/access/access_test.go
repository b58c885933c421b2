package access_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"omniroute/gateway/access"
	"omniroute/models"
	"omniroute/models/catalog"
)

func request(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func TestAKeyIsPresentedInEitherHeader(t *testing.T) {
	for want, headers := range map[string][][]string{
		"k": {{"Authorization", "Bearer k"}, {"authorization", "bearer   k "}, {"x-api-key", " k"}, {"Authorization", "Bearer k", "X-Api-Key", "other"}},
		"": {
			{},
			{"Authorization", "Bearer"},
			{"Authorization", "Bearer "},
			{"Authorization", "Basic k"},
			{"Authorization", "Bearerk"},
			{"X-Api-Key", ""},
		},
	} {
		for _, header := range headers {
			require.Equal(t, want, access.Presented(request(header...)), header)
		}
	}
	require.Equal(t, "k", access.Presented(request("Authorization", "Basic x", "X-Api-Key", "k")), "another scheme is no key of ours")
}

func TestAKeyIsGoodUntilTheMomentItExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hash := func(clear string) (h [32]byte) { copy(h[:], clear); return h }
		snapshot := &catalog.Snapshot{Keys: map[[32]byte]*catalog.KeyView{
			hash("short"): {ID: "k1", ExpiresAt: time.Now().Add(time.Minute)},
			hash("long"):  {ID: "k2"},
		}}
		for _, clear := range []string{"short", "long"} {
			key, refusal := access.Identify(request("X-Api-Key", clear), snapshot, hash)
			require.Nil(t, refusal)
			require.NotNil(t, key)
		}
		<-time.After(time.Minute)
		key, refusal := access.Identify(request("X-Api-Key", "short"), snapshot, hash)
		require.Equal(t, models.CodeInvalidAPIKey, refusal.Code)
		require.EqualValues(t, "k1", key.ID, "the books may name it")
		_, refusal = access.Identify(request("X-Api-Key", "long"), snapshot, hash)
		require.Nil(t, refusal)
		for _, r := range []*http.Request{request(), request("X-Api-Key", "guessed")} {
			key, refusal = access.Identify(r, snapshot, hash)
			require.Equal(t, models.CodeInvalidAPIKey, refusal.Code)
			require.Nil(t, key)
		}
	})
}

func TestAllowNamesEveryMethodThatAPathTakes(t *testing.T) {
	takes := func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodDelete }
	require.Equal(t, "GET, DELETE", access.Methods(request(), takes))
	require.Empty(t, access.Methods(request(), func(*http.Request) bool { return false }))
}

// Whoever guesses keys can neither fill the log nor hide the refusals of those who are known.
func TestStrangersAreLoggedTenAtOnceAndThenOneASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, hook := logtest.NewNullLogger()
		registry := prometheus.NewRegistry()
		refusals := access.NewRefusals(log, registry)
		refuse := func(who string) {
			refusals.Note(request("Authorization", "Bearer omr_secret"), access.Refusal{
				Request: "req_1", ClientRequest: "mine", Who: who, Err: models.Errorf(models.CodeInvalidAPIKey, "No."),
			})
		}
		for range 100 {
			refuse("")
		}
		require.Len(t, hook.AllEntries(), 10)
		refuse("k1")
		require.Len(t, hook.AllEntries(), 11)
		known := hook.LastEntry().Data
		require.Equal(t, "k1", known["key"])
		require.Equal(t, 401, known["status"])
		require.Equal(t, "mine", known["client_request"])
		require.Equal(t, "192.0.2.1", known["remote"])

		<-time.After(time.Second)
		refuse("")
		refuse("")
		require.Len(t, hook.AllEntries(), 12)
		require.Equal(t, 90, hook.LastEntry().Data["suppressed"])
		<-time.After(time.Hour)
		for range 100 {
			refuse("")
		}
		require.Len(t, hook.AllEntries(), 22)

		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP omniroute_requests_refused_total Requests refused before routing, by the code of the error.
# TYPE omniroute_requests_refused_total counter
omniroute_requests_refused_total{code="invalid_api_key"} 203
`)))
		for _, entry := range hook.AllEntries() {
			line, err := entry.String()
			require.NoError(t, err)
			require.NotContains(t, line, "omr_secret")
		}
	})
}
