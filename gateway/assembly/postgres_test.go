package assembly

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
)

// The catalog's authority is Postgres and what clients are served from is the last snapshot:
// without Postgres, chat goes on and only operators are told to wait.
func TestWithPostgresGoneChatGoesOnReadyStaysTrueAndAdminWritesAnswer503(t *testing.T) {
	server := postgres.Start(t)
	w := newWorld(t)
	w.settings.DatabaseURL = server.DatabaseTCP(t)
	a := w.start(RoleGateway)
	const write = `models: [{id: m2, provider: fake}]`
	response, body := call(t, a, "POST", "/api/catalog/apply", adminToken, write)
	require.Equal(t, 200, response.StatusCode, body)

	server.Kill(t)

	var last string
	for range 20 {
		response, body = call(t, a, "POST", chatPath, clientKey, chat("m1", false))
		require.Equal(t, 200, response.StatusCode, body)
		last = response.Header.Get("X-Request-Id")
	}
	response, _ = call(t, a, "GET", "/readyz", "", "")
	require.Equal(t, 200, response.StatusCode)
	for _, c := range []struct{ method, path string }{
		{"POST", "/api/catalog/apply"}, {"GET", "/api/catalog/export"}, {"GET", "/api/requests/" + last},
	} {
		response, body = call(t, a, c.method, c.path, adminToken, write)
		require.Equal(t, 503, response.StatusCode, "%s %s", c.path, body)
		require.Contains(t, body, `"code":"catalog_unavailable"`)
		require.NotEmpty(t, response.Header.Get("Retry-After"))
	}
	down := health(t, a)
	require.Equal(t, "degraded", down.Status)
	require.False(t, down.Database.OK)

	server.Restart(t)

	response, body = call(t, a, "POST", "/api/catalog/apply", adminToken, `models: [{id: m3, provider: fake}]`)
	require.Equal(t, 200, response.StatusCode, body)
	a.Stop(t.Context())
	again := w.start(RoleGateway)
	response, body = call(t, again, "GET", "/api/requests/"+last, adminToken, "")
	require.Equal(t, 200, response.StatusCode, "the record outlived the outage: %s", body)
}

func TestAFrozenPostgresHoldsUpOperatorsForABoundedTimeAndClientsNotAtAll(t *testing.T) {
	server := postgres.Start(t)
	w := newWorld(t)
	w.settings.DatabaseURL = server.DatabaseTCP(t)
	a := w.start(RoleGateway)
	server.Pause(t)
	defer server.Resume(t)

	start := time.Now()
	response, body := call(t, a, "POST", chatPath, clientKey, chat("m1", false))
	require.Equal(t, 200, response.StatusCode, body)
	require.Less(t, time.Since(start), time.Second)

	start = time.Now()
	response, body = call(t, a, "POST", "/api/catalog/apply", adminToken, `models: [{id: m2, provider: fake}]`)
	require.Equal(t, 503, response.StatusCode, body)
	require.Less(t, time.Since(start), 8*time.Second)

	start = time.Now()
	require.Equal(t, "degraded", health(t, a).Status)
	require.Less(t, time.Since(start), 3*time.Second)

	start = time.Now()
	a.Stop(t.Context())
	require.Less(t, time.Since(start), 5*time.Second)
}
