package replicas

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// retried are two accounts whose tokens cannot be renewed: one endpoint refuses, one is away.
// The delays of five, ten and twenty minutes are scaled to one, two and four seconds.
func retried(w *harness.World, away, access, refresh, other string) string {
	const oauth = "{id: %s, class: oauth, dialect: openai, baseURL: PROVIDER_URL, oauth: {tokenURL: %q, clientId: omni}}"
	return fmt.Sprintf(`
providers:
  - `+oauth+`
  - `+oauth+`
connections:
  - {id: refused-1, provider: refused, priority: 1, credential: {accessToken: %q, refreshToken: %q}}
  - {id: refused-2, provider: refused, priority: 2, credential: {accessToken: upstream-credential-two}}
  - {id: away-1, provider: away, priority: 1, credential: {accessToken: %q, refreshToken: fake-rt-of-away}}
  - {id: away-2, provider: away, priority: 2, credential: {accessToken: upstream-credential-three}}
models:   [{id: m, provider: refused}, {id: m, provider: away}]
apiKeys:  [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
settings: {resilience: {expiredRetry: {maxRetries: 3, baseDelayMs: 1000}}}
`, "refused", w.Provider.TokenURL(), "away", away, access, refresh, other)
}

// Expired credentials are tried again after a time that doubles, three times, and are then
// expired for good where renewing them was refused, and tried at the last wait where nobody
// could; the sibling serves throughout. It is the workflow that tries, also when
// nobody calls and its worker is killed meanwhile.
func TestExpiredCredentialsAreTriedThreeTimesMoreAndThenOutForGood(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, Gateways: 2})
	one, two := w.Gateways[0], w.Gateways[1]
	away := "http://" + harness.FreeAddress(t) + "/token"
	access, refresh := w.Provider.Grant()
	other, _ := w.Provider.Grant()
	w.Provider.Revoke(refresh)
	w.Provider.Expire()
	w.Apply(t, retried(w, away, access, refresh, other))

	// One request each meets the expired token, and is answered by the sibling.
	for provider, g := range map[string]*harness.Gateway{"refused": one, "away": two} {
		harness.Await(t, 10*time.Second, "the account is known", func() error {
			if a := g.Chat(t, provider+"/m"); a.Connection() != provider+"-2" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}

	t.Run("together", func(t *testing.T) {
		t.Run("the endpoint refuses, nobody calls, the worker is killed", func(t *testing.T) {
			t.Parallel()
			harness.Await(t, 20*time.Second, "the last retry is ahead", func() error {
				calls, c := w.Provider.TokenCalls(), one.Connection(t, "refused-1")
				if len(calls) < 3 || c.Phase != "cooling" || !c.Durable || c.Until.Sub(calls[2].At) < 3*time.Second {
					return fmt.Errorf("%d calls, %+v", len(calls), c)
				}
				return nil
			})
			w.Worker.Kill()
			w.Worker = w.StartWorker(t)
			requireOutForGood(t, w, "refused-1")
			calls := w.Provider.TokenCalls()
			require.Len(t, calls, 4)
			for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				between := calls[i+1].At.Sub(calls[i].At)
				require.GreaterOrEqual(t, between, wait-50*time.Millisecond, "retry %d", i+1)
				require.Equal(t, refresh, calls[i].Refresh)
			}
			require.Less(t, calls[2].At.Sub(calls[0].At), 10*time.Second)
			require.Len(t, w.Provider.Calls(access, fakeprovider.Any), 1, "no request has tried it")
		})
		t.Run("the endpoint is away, requests find out", func(t *testing.T) {
			t.Parallel()
			calls := func() []fakeprovider.Attempt { return w.Provider.Calls(other, fakeprovider.Any) }
			harness.Await(t, 60*time.Second, "the last wait, twice", func() error {
				if a := two.Chat(t, "away/m"); a.Status != http.StatusOK || a.Connection() != "away-2" {
					require.Failf(t, "the sibling serves throughout", "%s", a)
				}
				if n := len(calls()); n < 5 {
					return fmt.Errorf("%d calls", n)
				}
				return nil
			})
			for i, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
				between := calls()[i+1].At.Sub(calls()[i].At)
				require.GreaterOrEqual(t, between, wait-50*time.Millisecond, "trial %d", i+1)
			}
			for _, g := range w.Gateways {
				c := g.Connection(t, "away-1")
				require.NotEqual(t, "expired", c.Phase, "nobody has refused to renew them: %+v", c)
			}
		})
	})

	// Only new credentials, or a reset, end it.
	asked := len(w.Provider.TokenCalls())
	newAccess, newRefresh := w.Provider.Grant()
	newOther, _ := w.Provider.Grant()
	w.Apply(t, retried(w, away, newAccess, newRefresh, newOther))
	for _, g := range w.Gateways {
		for _, provider := range []string{"refused", "away"} {
			harness.Await(t, 5*time.Second, "the new credentials serve", func() error {
				if a := g.Chat(t, provider+"/m"); a.Connection() != provider+"-1" {
					return fmt.Errorf("%s", a)
				}
				return nil
			})
		}
	}
	require.Len(t, w.Provider.TokenCalls(), asked, "there was nothing to renew")
}

// requireOutForGood waits until both gateways and Temporal say so.
func requireOutForGood(t *testing.T, w *harness.World, connection string) {
	t.Helper()
	for _, g := range w.Gateways {
		harness.Await(t, 45*time.Second, "out for good", func() error {
			if c := g.Connection(t, connection); c.Phase != "expired" || !c.Durable {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	query := fmt.Sprintf(`OmniConnection = %q AND OmniPhase = "expired" AND ExecutionStatus = "Running"`, connection)
	harness.Await(t, 10*time.Second, query, func() error {
		if len(w.Temporal.Workflows(t, w.Temporal.Client(t), query)) != 1 {
			return fmt.Errorf("not listed")
		}
		return nil
	})
}
