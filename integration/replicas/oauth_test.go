package replicas

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness"
)

// accounts is a provider whose first connection authenticates with tokens that can be
// refreshed, and whose second one cannot.
func accounts(w *harness.World, access, refresh string) string {
	return fmt.Sprintf(`
providers:
  - {id: o, class: oauth, dialect: openai, baseURL: PROVIDER_URL, oauth: {tokenURL: %q, clientId: omni, clientSecret: upstream-client-secret}}
connections:
  - {id: account-1, provider: o, priority: 1, credential: {accessToken: %q, refreshToken: %q}}
  - {id: account-2, provider: o, priority: 2, credential: {accessToken: upstream-credential-of-account-two}}
models:   [{id: m, provider: o}]
apiKeys:  [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`, w.Provider.TokenURL(), access, refresh)
}

// startAccounts is a world of two gateways that know the account.
func startAccounts(t *testing.T) (w *harness.World, access, refresh string) {
	w = harness.Start(t, harness.Options{Catalog: catalog, Gateways: 2})
	access, refresh = w.Provider.Grant()
	w.Provider.Client("omni", "upstream-client-secret", false)
	w.Apply(t, accounts(w, access, refresh))
	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "the account serves", func() error {
			if a := g.Chat(t, "o/m"); a.Connection() != "account-1" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	return w, access, refresh
}

func TestAnExpiredTokenIsRefreshedOnceForACrowdOverTwoGateways(t *testing.T) {
	w, access, refresh := startAccounts(t)
	w.Provider.Expire()

	var crowd sync.WaitGroup
	answers := make(chan harness.Answer, 60)
	for i := range cap(answers) {
		crowd.Go(func() { answers <- w.Gateways[i%2].Send(t.Context(), harness.Body("o/m", i%3 == 0)) })
	}
	crowd.Wait()
	close(answers)

	for a := range answers {
		require.Equal(t, http.StatusOK, a.Status, "%s", a)
		require.Equal(t, "account-1", a.Connection(), "%s", a)
	}
	calls := w.Provider.TokenCalls()
	require.Len(t, calls, 1)
	require.Equal(t, refresh, calls[0].Refresh)
	for _, g := range w.Gateways {
		require.Equal(t, "ready", g.Connection(t, "account-1").Phase)
		require.Equal(t, "account-1", g.Chat(t, "o/m").Connection())
	}
	require.Contains(t, w.CLI(t, "apply", "--dry-run", "-f", file(t, w, accounts(w, access, refresh))), "no changes")

	// The refresh token that came with it is good for the next time.
	w.Provider.Expire()
	require.Equal(t, "account-1", w.Gateway().Chat(t, "o/m").Connection())
	require.Len(t, w.Provider.TokenCalls(), 2)
	texts := w.Temporal.Histories(t, w.Temporal.Client(t))
	require.NotEmpty(t, texts)
	texts["worker"], texts["one"], texts["two"] = w.Worker.Output(), w.Gateways[0].Output(), w.Gateways[1].Output()
	for name, text := range texts {
		for _, secret := range []string{"fake-at-", "fake-rt-", "upstream-client-secret"} {
			require.NotContains(t, text, secret, name)
		}
	}
}

func TestAnAccountThatCannotBeRefreshedCoolsDownAndItsSiblingServes(t *testing.T) {
	w, _, refresh := startAccounts(t)
	w.Provider.Revoke(refresh)
	w.Provider.Expire()

	require.Equal(t, "account-2", w.Gateways[0].Chat(t, "o/m").Connection())

	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "both know", func() error {
			if c := g.Connection(t, "account-1"); c.Phase != "cooling" || c.Reason != "expired" {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		require.InDelta(t, 300, g.Connection(t, "account-1").SecondsLeft, 40)
	}

	// New credentials in the catalog begin a new era.
	w.Apply(t, accounts(w, firstOf(w.Provider.Grant()), "fake-rt-unused"))
	harness.Await(t, 5*time.Second, "the new credentials serve", func() error {
		if a := w.Gateways[1].Chat(t, "o/m"); a.Connection() != "account-1" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

func TestWithTemporalAwayAnExpiredTokenIsFailedOver(t *testing.T) {
	w, _, _ := startAccounts(t)
	w.Temporal.Kill()
	w.Provider.Expire()

	began := time.Now()
	require.Equal(t, "account-2", w.Gateway().Chat(t, "o/m").Connection())
	require.Less(t, time.Since(began), 11*time.Second)
	began = time.Now()
	require.Equal(t, "account-2", w.Gateway().Chat(t, "o/m").Connection())
	require.Less(t, time.Since(began), time.Second, "nobody waits twice")
}

func firstOf(access, _ string) string { return access }

// file writes a catalog file.
func file(t *testing.T, w *harness.World, catalog string) string {
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(catalog, "PROVIDER_URL", w.Provider.URL())), 0o600))
	return path
}
