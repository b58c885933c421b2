package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// leavings are the places where a client may leave, each with a provider of its own, so that
// they can be played side by side.
var leavings = []struct {
	name   string
	step   fakeprovider.Step
	stream bool
	// leave returns when the client has seen enough; nil waits for the upstream to hang.
	leave func(body *bufio.Scanner)
}{
	{name: "before headers", stream: true, step: fakeprovider.Step{Hang: fakeprovider.HangHeaders}},
	{name: "before headers, no stream", step: fakeprovider.Step{Hang: fakeprovider.HangHeaders}},
	{name: "before the first token", stream: true, step: fakeprovider.Step{Hang: fakeprovider.HangFirstContent}},
	{name: "half an answer, no stream", step: fakeprovider.Step{Hang: fakeprovider.HangMidStream}},
	{name: "after 3 tokens", stream: true, step: fakeprovider.Step{Hang: fakeprovider.HangMidStream, AfterTokens: 3}, leave: events(4)},
}

// Wherever a client leaves, the upstream is told within a second, nobody is blamed, nothing
// else is tried and nothing is left behind.
func TestAClientThatLeavesIsNobodysFault(t *testing.T) {
	const rounds = 200 // of each
	providers, catalog := leavingCatalog(t)
	w := harness.Start(t, harness.Options{Catalog: catalog})
	g := w.Gateway()

	for i := range leavings {
		leaveOnce(t, w, providers[i], i) // sockets and caches are there from now on
	}
	before := leftBehind(t, g)
	t.Run("side by side", func(t *testing.T) {
		for i := range leavings {
			t.Run(leavings[i].name, func(t *testing.T) {
				t.Parallel()
				for range rounds {
					leaveOnce(t, w, providers[i], i)
				}
			})
		}
	})

	for i := range leavings {
		require.Equal(t, "ready", g.Connection(t, fmt.Sprintf("p%d-1", i)).Phase)
		require.Zero(t, g.Breaker(t, fmt.Sprintf("p%d", i)).Failures)
	}
	require.Empty(t, g.Health(t).Lockouts)
	harness.Await(t, 5*time.Second, "goroutines and sockets back to where they were", func() error {
		after := leftBehind(t, g)
		for name := range before {
			if after[name] > before[name]+5 {
				return fmt.Errorf("%s: %v, before %v", name, after[name], before[name])
			}
		}
		return nil
	})
}

// leftBehind is what a gateway holds when its clients have hung up.
func leftBehind(t *testing.T, g *harness.Gateway) map[string]float64 {
	g.HangUp()
	held := map[string]float64{}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		held[name] = g.Metric(t, name)
		require.Positive(t, held[name], name)
	}
	return held
}

// leavingCatalog starts the providers, p0 and so on, and writes the catalog with two keys for
// each, of which the first goes first and has one slot.
func leavingCatalog(t *testing.T) (providers []*fakeprovider.Provider, catalog string) {
	t.Helper()
	var services, connections, models string
	for i := range leavings {
		provider, err := fakeprovider.Start(fakeprovider.Options{})
		require.NoError(t, err)
		t.Cleanup(provider.Stop)
		providers = append(providers, provider)
		services += fmt.Sprintf("  - {id: p%d, class: api_key, dialect: openai, baseURL: %q}\n", i, provider.URL())
		connections += fmt.Sprintf("  - {id: p%d-1, provider: p%d, priority: 1, maxConcurrent: 1, credential: {apiKey: %s}}\n", i, i, keyOne) +
			fmt.Sprintf("  - {id: p%d-2, provider: p%d, priority: 2, credential: {apiKey: %s}}\n", i, i, keyTwo)
		models += fmt.Sprintf("  - {id: m, provider: p%d}\n", i)
	}
	return providers, "providers:\n" + services + "connections:\n" + connections + "models:\n" + models +
		"apiKeys: [{name: client, key: \"${CLIENT_KEY}\", scopes: [inference]}]\n"
}

// leaveOnce lets one client leave, and the next one find everything as it should be.
func leaveOnce(t *testing.T, w *harness.World, provider *fakeprovider.Provider, i int) {
	t.Helper()
	g, c, model := w.Gateway(), leavings[i], fmt.Sprintf("p%d/m", i)
	provider.Forget()
	provider.On(keyOne, "m", c.step)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		resp, err := g.Open(ctx, w.ClientKey, harness.Body(model, c.stream))
		if err != nil {
			return
		}
		defer resp.Body.Close()
		if c.leave != nil {
			c.leave(bufio.NewScanner(resp.Body))
			leave()
		}
		<-ctx.Done()
	}()
	if c.leave == nil {
		require.NoError(t, provider.Await(soon(t), func(all []fakeprovider.Attempt) bool {
			return len(all) == 1 && all[0].Hanging
		}), "%s: %+v", c.name, provider.Attempts())
		leave()
	}
	<-gone
	left := time.Now()
	require.NoError(t, provider.Await(soon(t), func(all []fakeprovider.Attempt) bool {
		return len(all) == 1 && all[0].Outcome == fakeprovider.OutcomeClientGone
	}), "%s: the upstream was not told", c.name)
	within(t, time.Second, time.Since(left), "telling the upstream")

	// The slot comes free and the key is unblamed: a next request takes it.
	provider.On(keyOne, "m", fakeprovider.Step{})
	harness.Await(t, time.Second, "the slot is free, "+c.name, func() error {
		next := g.Stream(t, model)
		next.RequireComplete(t)
		if next.Connection() != fmt.Sprintf("p%d-1", i) {
			return fmt.Errorf("%s", next)
		}
		return nil
	})
}

func TestAClientThatReadsTheEndMarkerIsBookedAsServed(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoKeys})
	g := w.Gateway()
	var served []string
	for range 200 {
		ctx, leave := context.WithCancel(t.Context())
		resp, err := g.Open(ctx, w.ClientKey, harness.Body("p/m", true))
		require.NoError(t, err)
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() && !strings.Contains(lines.Text(), "[DONE]") {
		}
		leave()
		require.NoError(t, resp.Body.Close())
		served = append(served, resp.Header.Get("X-Request-Id"))
	}
	for _, id := range served {
		record := g.Record(t, id)
		require.Equal(t, http.StatusOK, record.Status)
		require.Empty(t, record.Reason)
		require.EqualValues(t, fakeprovider.OutputTokens, record.OutputTokens)
	}
}

// events reads n events with data.
func events(n int) func(*bufio.Scanner) {
	return func(lines *bufio.Scanner) {
		for n := n; n > 0 && lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "data:") {
				n--
			}
		}
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}
