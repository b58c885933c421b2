package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestFiftyParallel429sAreOneEpisode(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoKeys + "settings: {resilience: {connectionCooldown: {apikey: {baseCooldownMs: 30000}}}}\n"})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders, Status: 429})

	answers, began := crowd(t, w, 50, "p/m")

	for _, answer := range answers {
		require.Equal(t, "key-2", answer.Connection(), "%s", answer)
	}
	require.Equal(t, 50, w.Provider.Concurrency(keyOne, "m").Max, "they really ran side by side")
	health := g.Connection(t, "key-1")
	require.Equal(t, 1, health.Level)
	require.InDelta(t, 30, health.Until.Sub(began).Seconds(), 3+1, "the base with its jitter, not a power of two of it")
	require.Equal(t, "CLOSED", g.Breaker(t, "p").Breaker)
	require.Zero(t, g.Breaker(t, "p").Failures)
}

func TestFiftyParallel503sOpenTheBreakerOnceAndOpenMeansNoCalls(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoKeys})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Hang: fakeprovider.HangHeaders, Status: 503})
	w.Provider.On(keyTwo, "m", fakeprovider.Step{Status: 503})

	answers, _ := crowd(t, w, 50, "p/m")
	for _, answer := range answers {
		require.GreaterOrEqual(t, answer.Status, 500, "%s", answer)
	}

	breaker := g.Breaker(t, "p")
	require.Equal(t, "OPEN", breaker.Breaker)
	require.Equal(t, 1, breaker.Cycle)
	require.InDelta(t, 30, breaker.SecondsLeft, 2)

	w.Provider.Forget()
	refused := g.Chat(t, "p/m")
	require.Equal(t, http.StatusServiceUnavailable, refused.Status, "%s", refused)
	require.Equal(t, "all_targets_cooling_down", refused.ErrorCode())
	require.Regexp(t, `^[1-9]\d*$`, refused.Header.Get("Retry-After"))
	require.Empty(t, w.Provider.Attempts())
	within(t, 200*time.Millisecond, refused.Took, "a refusal that asks nobody")
}

func TestFailuresThatAreNotTheProvidersNeverOpenItsBreaker(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: manyProviders(5, time.Second)})
	g := w.Gateway()
	for i, status := range []int{429, 401, 403, 400, 404} {
		w.Provider.On(fmt.Sprintf("upstream-first-%d", i), "m", fakeprovider.Step{Status: status})
		w.Provider.On(fmt.Sprintf("upstream-second-%d", i), "m", fakeprovider.Step{Status: status})
		for range 20 {
			g.Chat(t, fmt.Sprintf("p%d/m", i))
		}
		breaker := g.Breaker(t, fmt.Sprintf("p%d", i))
		require.Equal(t, "CLOSED", breaker.Breaker, "after %d", status)
		require.Zero(t, breaker.Failures, "after %d", status)
	}
}

// Each failure puts out the smallest thing that explains it. Key 1 of a provider fails once
// on one model; then its neighbours are asked.
func TestBlameMatrix(t *testing.T) {
	type row struct {
		name     string
		step     fakeprovider.Step
		thisOut  bool // key 1 is out for the model that failed
		otherOut bool // key 1 is out for its other model as well
		trips    bool // the breaker is charged
		passedOn int  // status that the client sees although key 2 is there
	}
	contextLength := `{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`
	rows := []row{
		{name: "404", step: fakeprovider.Step{Status: 404}, thisOut: true},
		{name: "500", step: fakeprovider.Step{Status: 500}, thisOut: true, trips: true},
		{name: "502", step: fakeprovider.Step{Status: 502}, thisOut: true, trips: true},
		{name: "503", step: fakeprovider.Step{Status: 503}, thisOut: true, trips: true},
		{name: "504", step: fakeprovider.Step{Status: 504}, thisOut: true, trips: true},
		{name: "empty answer", step: fakeprovider.Step{Empty: true}, thisOut: true, trips: true},
		{name: "429", step: fakeprovider.Step{Status: 429, Headers: map[string]string{"Retry-After": "60"}}, thisOut: true, otherOut: true},
		{name: "401", step: fakeprovider.Step{Status: 401}, thisOut: true, otherOut: true},
		{name: "402", step: fakeprovider.Step{Status: 402}, thisOut: true, otherOut: true},
		{name: "400", step: fakeprovider.Step{Status: 400}, passedOn: 400},
		{name: "context length", step: fakeprovider.Step{Status: 400, Body: contextLength}, passedOn: 400},
	}
	w := harness.Start(t, harness.Options{Catalog: manyProviders(len(rows), time.Minute)})
	g := w.Gateway()
	for i, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			provider, first := fmt.Sprintf("p%d", i), fmt.Sprintf("upstream-first-%d", i)
			step := r.step
			step.Times = 1
			w.Provider.On(first, "m", step)

			answer := g.Chat(t, provider+"/m")
			if r.passedOn != 0 {
				require.Equal(t, r.passedOn, answer.Status, "%s", answer)
				require.Empty(t, w.Provider.Calls(fmt.Sprintf("upstream-second-%d", i), "m"), "the request is wrong: nobody else is asked")
			} else {
				require.Equal(t, provider+"-2", answer.Connection(), "%s", answer)
			}

			served := func(model string) string {
				answer := g.Chat(t, model)
				require.Equal(t, http.StatusOK, answer.Status, "%s", answer)
				return answer.Connection()
			}
			owner := map[bool]string{false: provider + "-1", true: provider + "-2"}
			require.Equal(t, owner[r.thisOut], served(provider+"/m"))
			require.Equal(t, owner[r.otherOut], served(provider+"/m2"))

			// A success outweighs a failure, so the charge shows when both keys fail.
			w.Provider.On(first, "m2", step)
			w.Provider.On(fmt.Sprintf("upstream-second-%d", i), "m2", step)
			g.Chat(t, provider+"/m2")
			charged := map[bool]int{true: 2}[r.trips]
			require.Equal(t, charged, g.Breaker(t, provider).Failures)
		})
	}
	// Nobody paid for a neighbour: every other provider serves from its first key.
	require.Equal(t, "p9-1", g.Chat(t, "p9/m").Connection())
}

// crowd sends n requests, waits until the provider holds all of them, and lets them go on at
// the moment it returns.
func crowd(t *testing.T, w *harness.World, n int, model string) ([]harness.Answer, time.Time) {
	t.Helper()
	answers := make([]harness.Answer, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i] = w.Gateway().Send(t.Context(), harness.Body(model, false)) })
	}
	require.NoError(t, w.Provider.Await(soon(t), func(attempts []fakeprovider.Attempt) bool {
		hanging := 0
		for _, a := range attempts {
			if a.Hanging {
				hanging++
			}
		}
		return hanging == n
	}))
	released := time.Now()
	w.Provider.Release()
	all.Wait()
	return answers, released
}
