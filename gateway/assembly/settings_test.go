package assembly

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVariablesReplaceDefaultsAndAPatchIsInForceWithoutARestart(t *testing.T) {
	w := newWorld(t)
	w.environ = append(w.environ, "PROVIDER_COOLDOWN_ENABLED=on", "OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD=many")
	a := w.start(RoleGateway)

	require.Equal(t, 1, strings.Count(w.log.String(), "OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD: not a whole number; the default stays"))
	response, body := call(t, a, http.MethodGet, "/api/resilience", adminToken, "")
	require.Equal(t, 200, response.StatusCode, body)
	require.Contains(t, body, `"providerCooldown.enabled":{"value":true,"default":true,"source":"env","type":"boolean","env":"PROVIDER_COOLDOWN_ENABLED"`)
	require.Contains(t, body, `"providerBreaker.apikey.failureThreshold":{"value":12,"default":12,"source":"default"`)

	response, body = call(t, a, http.MethodPatch, "/api/settings", adminToken, `{"limits":{"maxBodyBytes":1024}}`)
	require.Equal(t, 200, response.StatusCode, body)
	long := strings.Replace(chat("fake/m1", false), "hello", strings.Repeat("hello ", 300), 1)
	deadline := time.Now().Add(10 * time.Second)
	for {
		response, body = call(t, a, http.MethodPost, chatPath, clientKey, long)
		if response.StatusCode == http.StatusRequestEntityTooLarge {
			break
		}
		require.Equal(t, 200, response.StatusCode, body)
		require.True(t, time.Now().Before(deadline), "the change is not in force after 10 s")
	}
}
