package fakeprovider_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
)

var caller = &http.Client{Timeout: 10 * time.Second}

// exchange presents a refresh token, as the client "omni" with its secret in the form.
func exchange(t *testing.T, p *fakeprovider.Provider, refresh string) (status int, answer map[string]any) {
	t.Helper()
	resp, err := caller.PostForm(p.TokenURL(), url.Values{
		"grant_type": {"refresh_token"}, "refresh_token": {refresh}, "client_id": {"omni"}, "client_secret": {"secret"},
	})
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // it was read
	_ = json.NewDecoder(resp.Body).Decode(&answer)
	return resp.StatusCode, answer
}

// calls asks the provider with a key and returns the status.
func calls(t *testing.T, p *fakeprovider.Provider, key string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL()+"/chat/completions", strings.NewReader(`{"model":"m"}`))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := caller.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestAnAccessTokenIsAKeyUntilItExpiresAndARefreshTokenGivesTheNext(t *testing.T) {
	defer caller.CloseIdleConnections()
	p := start(t, fakeprovider.Options{})
	access, refresh := p.Grant()
	require.Equal(t, 200, calls(t, p, access))
	require.Equal(t, 200, calls(t, p, "any other key"), "is not the endpoint's business")
	require.Equal(t, 401, calls(t, p, "fake-at-of-nobody"))

	p.Expire(access)
	require.Equal(t, 401, calls(t, p, access))
	status, granted := exchange(t, p, refresh)
	require.Equal(t, 200, status)
	require.Equal(t, 200, calls(t, p, granted["access_token"].(string)))
	require.EqualValues(t, 3600, granted["expires_in"])

	status, refused := exchange(t, p, refresh)
	require.Equal(t, 400, status, "it was good for one use")
	require.Equal(t, "invalid_grant", refused["error"])
	p.Revoke(granted["refresh_token"].(string))
	status, _ = exchange(t, p, granted["refresh_token"].(string))
	require.Equal(t, 400, status)
	require.Len(t, p.TokenCalls(), 3)
	require.Equal(t, "omni", p.TokenCalls()[0].ClientID)
}

func TestTheTokenEndpointPlaysItsSteps(t *testing.T) {
	defer caller.CloseIdleConnections()
	p := start(t, fakeprovider.Options{})
	_, refresh := p.Grant()
	p.OnToken(
		fakeprovider.TokenStep{Times: 2, Error: "invalid_grant"},
		fakeprovider.TokenStep{Times: 1, Status: 500, Body: "boom"},
		fakeprovider.TokenStep{Times: 1, Keep: true, ExpiresIn: -1},
		fakeprovider.TokenStep{Times: 1, Hang: true},
	)
	for _, want := range []int{400, 400, 500} {
		status, _ := exchange(t, p, refresh)
		require.Equal(t, want, status)
	}
	_, kept := exchange(t, p, refresh)
	require.NotContains(t, kept, "refresh_token")
	require.NotContains(t, kept, "expires_in")

	late := make(chan int, 1)
	go func() {
		resp, err := caller.PostForm(p.TokenURL(), url.Values{"grant_type": {"refresh_token"}, "refresh_token": {refresh}})
		if err != nil {
			late <- 0
			return
		}
		_ = resp.Body.Close()
		late <- resp.StatusCode
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for begun := time.Now(); len(p.TokenCalls()) < 5; <-again.C {
		require.Less(t, time.Since(begun), 10*time.Second)
	}
	p.Release()
	require.Equal(t, 200, <-late)
}

func TestTheTokenEndpointKnowsItsClient(t *testing.T) {
	defer caller.CloseIdleConnections()
	p := start(t, fakeprovider.Options{})
	_, refresh := p.Grant()

	p.Client("omni", "another", false)
	status, refused := exchange(t, p, refresh)
	require.Equal(t, 401, status)
	require.Equal(t, "invalid_client", refused["error"])

	p.Client("omni", "secret", true)
	status, _ = exchange(t, p, refresh)
	require.Equal(t, 200, status)
}
