package replicas

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// What many failures in a row, or at once, come to on two gateways.
func TestACrowdOfFailuresIsCountedForWhatItIs(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: crowdCatalog(), Gateways: 2})
	for _, status := range []int{http.StatusTooManyRequests, http.StatusForbidden, http.StatusBadRequest} {
		t.Run(fmt.Sprintf("a thousand times %d keep the breaker closed", status), func(t *testing.T) {
			provider := fmt.Sprintf("p%d", status)
			w.Provider.On(provider, "m", fakeprovider.Step{Status: status})
			thousand(w, func(ctx context.Context, g *harness.Gateway) { g.Send(ctx, harness.Body(provider+"/m", false)) })
			require.Equal(t, 1000, w.Provider.Concurrency(provider, "m").Total, "every request reached the provider")
			requireNeverTripped(t, w, provider)
		})
	}
	t.Run("a thousand times 401 keep the breaker closed", func(t *testing.T) { thousandRefusedKeys(t, w) })
	t.Run("a thousand clients that leave keep the breaker closed", func(t *testing.T) { thousandLeave(t, w) })
	t.Run("fifty parallel 429s are one episode", func(t *testing.T) { fiftyAreOneEpisode(t, w) })
	t.Run("the rest", func(t *testing.T) {
		t.Run("twenty episodes in a row never exceed the maximum", func(t *testing.T) {
			t.Parallel()
			twentyStayBelowTheMaximum(t, w)
		})
		for successes, count := range []int{6, 3, 2, 1} {
			t.Run(fmt.Sprintf("after five failures and %d successes the next failure is number %d", successes, count), func(t *testing.T) {
				t.Parallel()
				failureCountHalves(t, w, successes, count)
			})
		}
	})
}

// A crowd that tries as many keys as one request may makes a thousand attempts.
const (
	refusedKeys  = 12
	refusedCrowd = 84
)

func thousandRefusedKeys(t *testing.T, w *harness.World) {
	w.Provider.Forget()
	w.Provider.On(fakeprovider.Any, "refused", fakeprovider.Step{Hang: fakeprovider.HangHeaders, Status: http.StatusUnauthorized})
	done := make(chan []harness.Answer, 1)
	go func() { done <- crowd(t, refusedCrowd, "p401/refused", w.Gateways...) }()
	patience, enough := context.WithTimeout(t.Context(), time.Minute)
	defer enough()
	for key := range refusedKeys {
		require.NoError(t, w.Provider.Await(patience, func(calls []fakeprovider.Attempt) bool {
			return len(calls) == (key+1)*refusedCrowd && !slices.ContainsFunc(calls[key*refusedCrowd:], func(a fakeprovider.Attempt) bool { return !a.Hanging })
		}), "the whole crowd waits for key %d", key)
		w.Provider.Release()
	}
	for _, answer := range <-done {
		require.Equal(t, http.StatusServiceUnavailable, answer.Status, "%s", answer)
	}
	require.Len(t, w.Provider.Attempts(), refusedKeys*refusedCrowd)
	requireNeverTripped(t, w, "p401")
}

func thousandLeave(t *testing.T, w *harness.World) {
	const wave = 50
	w.Provider.On("leaving", "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders})
	for range 1000 / wave {
		ctx, leave := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for i := range wave {
			clients.Go(func() { w.Gateways[i%2].Send(ctx, harness.Body("leaving/m", i%4 < 2)) })
		}
		awaitRunning(t, w, wave)
		leave()
		clients.Wait()
		awaitRunning(t, w, 0)
	}
	require.Equal(t, 1000, w.Provider.Concurrency("leaving", "m").Total)
	requireNeverTripped(t, w, "leaving")
	for _, g := range w.Gateways {
		c := g.Connection(t, "leaving")
		require.Equal(t, "ready", c.Phase)
		require.Zero(t, c.Level)
		require.Zero(t, c.InFlight)
		require.Empty(t, g.Lockouts(t, "leaving"))
	}
}

func fiftyAreOneEpisode(t *testing.T, w *harness.World) {
	w.Provider.On("fifty", "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders, Status: http.StatusTooManyRequests})
	done := make(chan []harness.Answer, 1)
	go func() { done <- crowd(t, 50, "fifty/m", w.Gateways...) }()
	harness.Await(t, 10*time.Second, "all of them are at the provider", func() error {
		if n := w.Provider.Concurrency("fifty", "m").Running; n < 50 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	at := time.Now()
	w.Provider.Release()
	for _, answer := range <-done {
		require.Equal(t, http.StatusTooManyRequests, answer.Status, "%s", answer)
	}

	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "published", func() error {
			if c := g.Connection(t, "fifty"); !c.Durable {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
		c := g.Connection(t, "fifty")
		require.Equal(t, 1, c.Level)
		require.InDelta(t, 30, c.Until.Sub(at).Seconds(), 3+1, "the base with its jitter, not a power of two of it")
		require.Zero(t, g.Breaker(t, "fifty").Failures)
	}
}

// The longest cooldown of accounts in this world, and how long the next attempt may be late.
const (
	longestCooldown = 200 * time.Millisecond
	lateness        = 500 * time.Millisecond
)

func twentyStayBelowTheMaximum(t *testing.T, w *harness.World) {
	w.Provider.On("twenty", "m", fakeprovider.Step{Status: http.StatusTooManyRequests})
	for _, g := range w.Gateways {
		for want := len(w.Provider.Calls("twenty", "m")) + 10; len(w.Provider.Calls("twenty", "m")) < want; {
			awaitCall(t, w, g, "twenty", "m")
			c := g.Connection(t, "twenty")
			require.LessOrEqual(t, c.Level, 4, "the first failure and three doublings")
			if c.Phase == "cooling" {
				require.LessOrEqual(t, time.Until(c.Until), longestCooldown)
			}
		}
	}
	calls := w.Provider.Calls("twenty", "m")
	for i := 1; i < len(calls); i++ {
		gap := calls[i].At.Sub(calls[i-1].At)
		require.Less(t, gap, longestCooldown+lateness, "before attempt %d", i+1)
		if i%10 > 3 { // each gateway has its first ones to count up with
			require.Greater(t, gap, longestCooldown/2, "before attempt %d", i+1)
		}
	}
}

func failureCountHalves(t *testing.T, w *harness.World, successes, count int) {
	model := fmt.Sprintf("m%d", successes)
	limited := func(times int, retryAfterMs string) fakeprovider.Step {
		return fakeprovider.Step{Times: times, Status: http.StatusTooManyRequests, Headers: map[string]string{"Retry-After-Ms": retryAfterMs}}
	}
	steps := []fakeprovider.Step{limited(5, "300")}
	if successes > 0 {
		steps = append(steps, fakeprovider.Step{Times: successes})
	}
	w.Provider.On("halving", model, append(steps, limited(0, "60000"))...)

	for range 5 + successes + 1 {
		awaitCall(t, w, w.Gateways[0], "halving", model)
	}

	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "the lockout is known", func() error {
			for _, lockout := range g.Lockouts(t, "halving") {
				if lockout.Model == model && lockout.RemainingMs > 30_000 {
					require.Equal(t, count, lockout.FailureCount)
					return nil
				}
			}
			return fmt.Errorf("%+v", g.Lockouts(t, "halving"))
		})
	}
}

// awaitCall asks for a model until its only connection is called once more.
func awaitCall(t *testing.T, w *harness.World, g *harness.Gateway, provider, model string) {
	t.Helper()
	before := w.Provider.Concurrency(provider, model).Total
	harness.Await(t, 10*time.Second, "the next attempt", func() error {
		answer := g.Chat(t, provider+"/"+model)
		if w.Provider.Concurrency(provider, model).Total == before {
			return fmt.Errorf("%s", answer)
		}
		return nil
	})
}

func awaitRunning(t *testing.T, w *harness.World, n int) {
	t.Helper()
	harness.Await(t, 10*time.Second, fmt.Sprintf("%d calls are running", n), func() error {
		if running := w.Provider.Concurrency("leaving", "m").Running; running != n {
			return fmt.Errorf("%d", running)
		}
		return nil
	})
}

// thousand does something a thousand times, in a crowd over both gateways.
func thousand(w *harness.World, do func(context.Context, *harness.Gateway)) {
	var crowd sync.WaitGroup
	for i := range 40 {
		crowd.Go(func() {
			for range 25 {
				do(context.Background(), w.Gateways[i%2])
			}
		})
	}
	crowd.Wait()
}

func requireNeverTripped(t *testing.T, w *harness.World, provider string) {
	t.Helper()
	for _, g := range w.Gateways {
		breaker := g.Breaker(t, provider)
		require.Equal(t, "CLOSED", breaker.Breaker)
		require.Zero(t, breaker.Failures)
		require.Zero(t, breaker.Cycle)
	}
}

// crowdCatalog has a provider for each case. Its connection has its name, and so has the
// connection's key.
func crowdCatalog() string {
	providers := []struct{ name, class, connection string }{
		{"p429", "api_key", ", disableCooling: true"},
		{"p403", "api_key", ", disableCooling: true"},
		{"p400", "api_key", ""},
		{"leaving", "api_key", ""},
		{"fifty", "api_key", ""},
		{"twenty", "local", ", passthroughModels: false"},
		{"halving", "api_key", ", passthroughModels: true"},
	}
	var text, connections, offered strings.Builder
	for _, p := range providers {
		fmt.Fprintf(&text, "  - {id: %s, class: %s, dialect: openai, baseURL: PROVIDER_URL}\n", p.name, p.class)
		fmt.Fprintf(&connections, "  - {id: %[1]s, provider: %[1]s, credential: {apiKey: %[1]s}%[2]s}\n", p.name, p.connection)
		fmt.Fprintf(&offered, "  - {id: m, provider: %s}\n", p.name)
	}
	for i := range refusedKeys {
		fmt.Fprintf(&connections, "  - {id: p401-%02[1]d, provider: p401, priority: %[1]d, credential: {apiKey: refused-%[1]d}}\n", i)
	}
	for i := range 4 {
		fmt.Fprintf(&offered, "  - {id: m%d, provider: halving}\n", i)
	}
	return "providers:\n  - {id: p401, class: api_key, dialect: openai, baseURL: PROVIDER_URL}\n" + text.String() +
		"connections:\n" + connections.String() + "models:\n  - {id: refused, provider: p401}\n" + offered.String() + fmt.Sprintf(`
apiKeys: [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
settings:
  resilience:
    modelLockout: {enabled: true}
    connectionCooldown:
      apikey: {baseCooldownMs: 30000}
      local:  {baseCooldownMs: 30, maxBackoffSteps: 3, maxCooldownMs: %d}
`, longestCooldown.Milliseconds())
}
