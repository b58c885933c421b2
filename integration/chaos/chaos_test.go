// Package chaos takes parts away from under a running system.
package chaos

import (
	"context"
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
providers:   [{id: p, class: api_key, dialect: openai, baseURL: PROVIDER_URL}]
connections:
  - {id: key-1, provider: p, priority: 1, credential: {apiKey: upstream-credential-one}}
  - {id: key-2, provider: p, priority: 2, credential: {apiKey: upstream-credential-two}}
models:      [{id: m, provider: p}]
apiKeys:     [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`

const keyOne = "upstream-credential-one"

// Temporal hangs, then is gone, then comes back, while clients call and a key fails.
func TestWithTemporalAwayClientsNoticeNothing(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog})
	g, c := w.Gateway(), w.Temporal.Client(t)
	calm := load(t, g, 3*time.Second, nil)

	w.Temporal.Freeze(t)
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "120"}})
	frozen := load(t, g, 6*time.Second, func() error {
		h := g.Health(t)
		if !h.Outbox.Degraded || h.Status != "degraded" {
			return fmt.Errorf("health says %s, outbox %+v", h.Status, h.Outbox)
		}
		return nil
	})
	w.Temporal.Kill()
	gone := load(t, g, 3*time.Second, nil)

	for name, measured := range map[string]loaded{"frozen": frozen, "gone": gone} {
		require.Empty(t, measured.errors, name)
		require.Less(t, measured.p99-calm.p99, 50*time.Millisecond, "%s: %s, calm %s", name, measured.p99, calm.p99)
	}
	require.Equal(t, "cooling", g.Connection(t, "key-1").Phase, "the gateway goes on like one that is alone")
	require.Equal(t, "degraded", g.Health(t).Status)

	// What happened meanwhile arrives once Temporal is back.
	w.Temporal.Start(t)
	harness.Await(t, 30*time.Second, "the cooldown arrives in Temporal", func() error {
		for _, found := range w.Temporal.Workflows(t, c, `OmniConnection = "key-1"`) {
			if found.Status == "Running" && found.Attributes["OmniPhase"] == "cooling" {
				return nil
			}
		}
		return fmt.Errorf("%+v", w.Temporal.Workflows(t, c, ""))
	})
	harness.Await(t, 30*time.Second, "all is well again", func() error {
		if h := g.Health(t); h.Status != "ok" {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})
}

// Postgres freezes, then is gone, then comes back: clients are served from the last snapshot.
func TestWithPostgresAwayChatGoesOnAndAdminWritesAreRefused(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, OwnPostgres: true})
	g := w.Gateway()
	load(t, g, time.Second, nil)

	w.Postgres.Kill(t)
	away := load(t, g, 5*time.Second, nil)

	require.Empty(t, away.errors)
	status, _ := g.Get(t, "/readyz", "")
	require.Equal(t, http.StatusOK, status, "ready stays true")
	for path, body := range map[string]string{
		"/api/catalog/apply": "models: [{id: other, provider: p}]\n",
	} {
		status, text := g.Admin(t, http.MethodPost, path, body)
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %s", path, text)
		require.Contains(t, text, "catalog_unavailable")
	}
	harness.Await(t, 10*time.Second, "degraded is shown", func() error {
		if h := g.Health(t); h.Status != "degraded" || h.Database.OK {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})

	w.Postgres.Restart(t)
	harness.Await(t, 60*time.Second, "all is well again", func() error {
		if h := g.Health(t); h.Status != "ok" {
			return fmt.Errorf("%s %+v", h.Status, h.Database)
		}
		return nil
	})
	status, text := g.Admin(t, http.MethodPost, "/api/catalog/apply", "models: [{id: other, provider: p}]\n")
	require.Equal(t, http.StatusOK, status, text)
	harness.Await(t, 10*time.Second, "the change is served", func() error {
		if a := g.Chat(t, "p/other"); a.Status != http.StatusOK {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
}

func TestAFrozenPostgresDelaysNoChat(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog, OwnPostgres: true})
	g := w.Gateway()
	calm := load(t, g, 2*time.Second, nil)

	w.Postgres.Pause(t)
	frozen := load(t, g, 5*time.Second, nil)
	w.Postgres.Resume(t)

	require.Empty(t, frozen.errors)
	require.Less(t, frozen.p99-calm.p99, 50*time.Millisecond, "%s, calm %s", frozen.p99, calm.p99)
}

// A worker that dies takes nothing with it: another one goes on where it stopped.
func TestAnotherWorkerGoesOnWithAKilledOnesTimers(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog})
	g, c := w.Gateway(), w.Temporal.Client(t)
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "5"}})
	require.Equal(t, "key-2", g.Chat(t, "p/m").Connection())
	harness.Await(t, 5*time.Second, "the cooldown is durable", func() error {
		if h := g.Connection(t, "key-1"); !h.Durable {
			return fmt.Errorf("%+v", h)
		}
		return nil
	})

	w.Worker.Kill()
	w.Worker = w.StartWorker(t)

	harness.Await(t, 30*time.Second, "the workflow completes", func() error {
		for _, found := range w.Temporal.Workflows(t, c, `WorkflowId = "connection/key-1"`) {
			if found.Status == "Completed" {
				return nil
			}
		}
		return fmt.Errorf("%+v", w.Temporal.Workflows(t, c, ""))
	})
	require.Equal(t, "key-1", g.Chat(t, "p/m").Connection())
}

// loaded is what a while of load saw.
type loaded struct {
	calls  int
	errors []string
	p99    time.Duration
}

// load calls steadily, 40 times a second, half of it streaming, and checks meanwhile that
// what must become true does.
func load(t *testing.T, g *harness.Gateway, length time.Duration, meanwhile func() error) loaded {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var (
		mu    sync.Mutex
		took  []time.Duration
		found loaded
		calls sync.WaitGroup
	)
	calls.Go(func() {
		tick := time.NewTicker(25 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			stream := n%2 == 0
			calls.Go(func() {
				answer := g.Send(t.Context(), harness.Body("p/m", stream))
				mu.Lock()
				defer mu.Unlock()
				took = append(took, answer.Took)
				if answer.Err != nil || answer.Status != http.StatusOK || answer.Text() != fakeprovider.Text {
					found.errors = append(found.errors, answer.String())
				}
			})
		}
	})
	if meanwhile != nil {
		harness.Await(t, length, "what is to be seen under load", meanwhile)
	}
	calls.Wait()
	require.NotEmpty(t, took)
	slices.Sort(took)
	found.calls, found.p99 = len(took), took[len(took)*99/100]
	return found
}
