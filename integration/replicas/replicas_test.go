// Package replicas tests what several gateways on one database know of each other.
package replicas

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const catalog = `
providers:
  - {id: p, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
  - {id: q, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
connections:
  - {id: key-1, provider: p, priority: 1, credential: {apiKey: upstream-credential-one}}
  - {id: key-2, provider: p, priority: 2, credential: {apiKey: upstream-credential-two}}
  - {id: q-1, provider: q, credential: {apiKey: upstream-credential-three}}
models:   [{id: m, provider: p}, {id: m, provider: q}]
combos:   [{name: best, strategy: priority, targets: [{model: p/m}, {model: q/m}]}]
apiKeys:  [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`

const (
	keyOne   = "upstream-credential-one"
	keyTwo   = "upstream-credential-two"
	keyThree = "upstream-credential-three"
)

func TestAFailureSeenByOneGatewayKeepsTheOtherAwayWithinASecond(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, Gateways: 2})
	one, two := w.Gateways[0], w.Gateways[1]
	w.Provider.On(keyOne, "m", fakeprovider.Step{Status: 429, Headers: map[string]string{"Retry-After": "60"}})

	seen := time.Now()
	require.Equal(t, "key-2", one.Chat(t, "p/m").Connection())

	harness.Await(t, 5*time.Second, "the other gateway knows", func() error {
		if c := two.Connection(t, "key-1"); c.Phase != "cooling" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	require.Less(t, time.Since(seen), time.Second)
	require.Equal(t, "key-2", two.Chat(t, "p/m").Connection())
	require.Len(t, w.Provider.Calls(keyOne, "m"), 1, "the other gateway has never called key 1")
	require.InDelta(t, 60, two.Connection(t, "key-1").SecondsLeft, 2)
}

func TestAKilledGatewayFindsTheCooldownWhereItWas(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "12"}})
	limited := time.Now()
	require.Equal(t, "key-2", g.Chat(t, "p/m").Connection())
	harness.Await(t, 5*time.Second, "the cooldown is durable", func() error {
		if c := g.Connection(t, "key-1"); !c.Durable {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})

	g.Kill()
	g.Start(t)

	require.Equal(t, "key-2", g.Chat(t, "p/m").Connection(), "the first request after ready knows")
	require.InDelta(t, 12, g.Connection(t, "key-1").Until.Sub(limited).Seconds(), 0.6)
	harness.Await(t, 15*time.Second, "key 1 serves again", func() error {
		if a := g.Chat(t, "p/m"); a.Connection() != "key-1" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	require.InDelta(t, 12, w.Provider.Calls(keyOne, "m")[1].At.Sub(limited).Seconds(), 1, "the remaining time, not longer")
}

// The breaker opens in one gateway and is open in both; at its expiry, under a crowd on both,
// exactly one call is the probe; a probe that hangs is followed by exactly one other.
func TestAnOpenBreakerIsSharedAndProbedOnce(t *testing.T) {
	w := harness.Start(t, harness.Options{Gateways: 2, Catalog: catalog + `
settings: {resilience: {providerBreaker: {apikey: {failureThreshold: 6, degradationThreshold: 5, resetTimeoutMs: 4000, probeTimeoutMs: 3000}}}}
`})
	one, two := w.Gateways[0], w.Gateways[1]
	overloaded := fakeprovider.Step{LatencyMs: 300, Status: 503}
	w.Provider.On(keyOne, "m", overloaded)
	w.Provider.On(keyTwo, "m", overloaded)
	for _, answer := range crowd(t, 50, "p/m", one) {
		require.GreaterOrEqual(t, answer.Status, 500, "%s", answer)
	}
	opened := one.Breaker(t, "p")
	require.Equal(t, "OPEN", opened.Breaker)
	require.Equal(t, 1, opened.Cycle, "opened once")
	harness.Await(t, 2*time.Second, "the other gateway's breaker is open too", func() error {
		if b := two.Breaker(t, "p"); b.Breaker != "OPEN" {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})

	// Open means no call, from either gateway; the combo's second target answers.
	w.Provider.Forget()
	for _, answer := range crowd(t, 20, "best", one, two) {
		require.Equal(t, "q-1", answer.Connection(), "%s", answer)
	}
	require.Empty(t, upstreamCalls(w))

	// At expiry exactly one of a hundred is the probe. It hangs.
	w.Provider.On(keyOne, "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders})
	w.Provider.On(keyTwo, "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders})
	harness.Await(t, 8*time.Second, "half open", func() error {
		if b := one.Breaker(t, "p"); b.Breaker != "HALF_OPEN" {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
	probe := make(chan []harness.Answer, 1)
	go func() { probe <- crowd(t, 100, "best", one, two) }()
	harness.Await(t, 3*time.Second, "the probe", func() error {
		if len(upstreamCalls(w)) == 0 {
			return fmt.Errorf("no call yet")
		}
		return nil
	})
	harness.Await(t, 3*time.Second, "the other 99 are answered", func() error {
		if served := len(w.Provider.Calls(keyThree, "m")); served < 99 {
			return fmt.Errorf("%d", served)
		}
		return nil
	})
	require.Len(t, upstreamCalls(w), 1, "exactly one of a hundred is the probe")
	w.Provider.On(keyOne, "m", fakeprovider.Step{})
	w.Provider.On(keyTwo, "m", fakeprovider.Step{})

	// After the probe's time exactly one other goes; it succeeds and closes the breaker for all.
	harness.Await(t, 10*time.Second, "the second probe closes the breaker", func() error {
		one.Chat(t, "best")
		two.Chat(t, "best")
		if a, b := one.Breaker(t, "p").Breaker, two.Breaker(t, "p").Breaker; a != "CLOSED" || b != "CLOSED" {
			return fmt.Errorf("%s, %s; calls %d", a, b, len(upstreamCalls(w)))
		}
		return nil
	})

	// The first probe's late answer changes nothing.
	w.Provider.Release()
	var took []time.Duration
	for _, answer := range <-probe {
		require.Equal(t, http.StatusOK, answer.Status, "%s", answer)
		took = append(took, answer.Took)
	}
	slices.Sort(took)
	t.Logf("the 99 that were no probe took %s (median), %s (longest)", took[50], took[98])
	require.Equal(t, "CLOSED", one.Breaker(t, "p").Breaker)
	require.Equal(t, "CLOSED", two.Breaker(t, "p").Breaker)
	require.Equal(t, "p", two.Chat(t, "best").Header.Get("X-Omniroute-Provider"))
}

func TestACatalogChangeReachesEveryGateway(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, Gateways: 2})

	w.Apply(t, "models: [{id: new, provider: q}]\n")

	for _, g := range w.Gateways {
		took := harness.Await(t, 8*time.Second, "the new model is served", func() error {
			if a := g.Chat(t, "q/new"); a.Status != http.StatusOK {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
		require.Less(t, took, 2*time.Second)
	}
}

// New credentials are a new era: what the old key was guilty of is over, everywhere.
func TestNewCredentialsFreeAConnectionThatWasOutForGood(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, Gateways: 2})
	w.Provider.On(keyOne, "m", fakeprovider.Step{Status: 401})
	require.Equal(t, "key-2", w.Gateways[0].Chat(t, "p/m").Connection())
	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "key 1 is out", func() error {
			if c := g.Connection(t, "key-1"); c.Phase != "expired" {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}

	w.Apply(t, "connections: [{id: key-1, provider: p, priority: 1, credential: {apiKey: a-new-upstream-credential}}]\n")

	for _, g := range w.Gateways {
		harness.Await(t, 5*time.Second, "key 1 serves with its new credential", func() error {
			if a := g.Chat(t, "p/m"); a.Connection() != "key-1" {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	require.Len(t, w.Provider.Calls(keyOne, "m"), 1, "the old credential is not tried again")
}

// upstreamCalls are those to provider p.
func upstreamCalls(w *harness.World) []fakeprovider.Attempt {
	return append(w.Provider.Calls(keyOne, "m"), w.Provider.Calls(keyTwo, "m")...)
}

// crowd sends n requests at once, spread over the gateways.
func crowd(t *testing.T, n int, model string, gateways ...*harness.Gateway) []harness.Answer {
	answers := make([]harness.Answer, n)
	var all sync.WaitGroup
	for i := range n {
		g := gateways[i%len(gateways)]
		all.Go(func() { answers[i] = g.Send(t.Context(), harness.Body(model, false)) })
	}
	all.Wait()
	return answers
}
