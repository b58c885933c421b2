package e2e

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
	"omniroute/models"
	"omniroute/models/store"
)

const (
	stormKeys = 200
	stormRate = 300 // failing requests a second
	// stormVariable says for how long, such as 60s.
	stormVariable = "OMNIROUTE_STORM"
	usualStorm    = 10 * time.Second
	// What half of the clients, and what nearly all of them, wait for an answer at most. That is
	// generous, for a small machine that runs all of it. Temporal takes a tenth of these changes
	// on such a machine, so whoever waited for it would wait for most of the storm.
	halfWithin   = 500 * time.Millisecond
	nearlyWithin = 5 * time.Second
	// settlingPatience is how long the workflows may need for what the storm has left.
	settlingPatience = 3 * time.Minute
)

// Hundreds of accounts that fail all the time are hundreds of workflows. Nobody waits for them,
// nothing piles up, and in the end they hold what the gateway holds.
func TestAStormOfFailuresDelaysNobodyAndEndsInOneTruth(t *testing.T) {
	length := usualStorm
	if text := os.Getenv(stormVariable); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err, stormVariable)
	}
	w := harness.Start(t, harness.Options{Catalog: stormCatalog(), Plain: true})
	g := w.Gateway()

	// Every key is back just before its next request.
	require.NoError(t, w.Provider.Script(stormScript(func(int) fakeprovider.Step {
		return fakeprovider.Step{Status: http.StatusTooManyRequests, Headers: map[string]string{"Retry-After-Ms": "400"}}
	})))
	seen := storm(t, g, length)
	half, nearly := seen.took[len(seen.took)/2], seen.took[len(seen.took)*99/100]
	attempts := g.Metric(t, "omniroute_attempts_total")
	t.Logf("%d requests, %.0f attempts, answers after %s (median) and %s (99 %%), at most %d changes waiting, %.0f sent",
		len(seen.took), attempts, half, nearly, seen.pending, g.Metric(t, "omniroute_outbox_sent_total"))
	require.Empty(t, seen.wrong)
	require.Greater(t, attempts, 0.8*stormRate*length.Seconds(), "most requests failed at the provider, not at a cooldown")
	require.Less(t, half, halfWithin)
	require.Less(t, nearly, nearlyWithin)
	require.LessOrEqual(t, seen.pending, stormKeys+1, "one change for each entity")
	require.Zero(t, g.Metric(t, "omniroute_outbox_dropped_total"))

	// One more failure of each, which stays.
	w.Provider.Forget()
	require.NoError(t, w.Provider.Script(stormScript(lastFailure)))
	for i := range stormKeys {
		harness.Await(t, 10*time.Second, "the last failure of "+stormID(i), func() error {
			if answer := g.Chat(t, stormID(i)); len(w.Provider.Calls(stormKey(i), "m")) == 0 {
				return fmt.Errorf("%s", answer)
			}
			return nil
		})
	}
	settled := harness.Await(t, settlingPatience, "the workflows have looked at everything", func() error {
		if h := g.Health(t); h.Unpublished.Entities > 0 || h.Outbox.Pending > 0 {
			return fmt.Errorf("unpublished %+v, outbox %+v", h.Unpublished, h.Outbox)
		}
		return nil
	})
	t.Logf("settled after %s, %.0f changes sent", settled, g.Metric(t, "omniroute_outbox_sent_total"))
	requireOneTruth(t, w)
}

// lastFailure puts a key out until an instant of its own, or, one in ten, for good.
func lastFailure(i int) fakeprovider.Step {
	if i%10 == 0 {
		return fakeprovider.Step{Status: http.StatusPaymentRequired, Body: `{"error":{"message":"Insufficient credits."}}`}
	}
	return fakeprovider.Step{Status: http.StatusTooManyRequests, Headers: map[string]string{"Retry-After": fmt.Sprint(900 + i)}}
}

// requireOneTruth compares what the rows say with what the gateway acts upon, and both with
// what the provider did.
func requireOneTruth(t *testing.T, w *harness.World) {
	t.Helper()
	type truth struct {
		Phase, Reason string
		Status, Level int
		Until         string
	}
	health := w.Gateway().Health(t)
	inMemory := map[string]truth{}
	for _, c := range health.Connections {
		require.True(t, c.Durable, c.Connection)
		inMemory[c.Connection] = truth{c.Phase, c.Reason, c.Status, c.Level, milliseconds(c.Until)}
	}

	rows, err := store.Open(t.Context(), w.DatabaseURL, nil, logrus.New())
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // only read from
	states, err := rows.States(t.Context(), 0)
	require.NoError(t, err)
	inRows := map[string]truth{}
	for _, c := range states.Connections {
		s := c.State.Cooldown.Standing(states.Now)
		out := truth{string(s.Phase), string(s.Reason), s.Status, s.Level, milliseconds(time.Time{})}
		if s.Phase == models.PhaseCooling {
			out.Until = milliseconds(s.Until)
		}
		inRows[string(c.Connection)] = out
	}

	require.Equal(t, inMemory, inRows)
	for i, c := range health.Connections {
		if i%10 == 0 {
			require.Equal(t, "credits_exhausted", c.Phase, "%+v", c)
			continue
		}
		calls := w.Provider.Calls(stormKey(i), "m")
		require.Equal(t, "cooling", c.Phase, "%+v", c)
		until := calls[len(calls)-1].At.Add(time.Duration(900+i) * time.Second)
		require.WithinDuration(t, until, c.Until, 3*time.Second, "%+v", c)
	}
}

func milliseconds(at time.Time) string {
	return at.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano)
}

// stormed is what a storm has shown.
type stormed struct {
	took    []time.Duration // sorted
	wrong   []string        // answers that are no honest refusal
	pending int             // changes that waited in the outbox, at most
}

// storm calls all keys in turn, at a rate that does not depend on the answers.
func storm(t *testing.T, g *harness.Gateway, length time.Duration) stormed {
	t.Helper()
	var (
		mu    sync.Mutex
		seen  stormed
		calls sync.WaitGroup
	)
	began := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for sent, looked := 0, began; ; {
		now := <-tick.C
		if now.Sub(began) >= length {
			break
		}
		for ; sent < int(now.Sub(began).Seconds()*stormRate); sent++ {
			body := harness.Body(stormID(sent%stormKeys), sent%2 == 0)
			calls.Go(func() {
				answer := g.Send(t.Context(), body)
				mu.Lock()
				defer mu.Unlock()
				seen.took = append(seen.took, answer.Took)
				if answer.Err != nil || answer.Status != http.StatusTooManyRequests && answer.Status != http.StatusServiceUnavailable {
					seen.wrong = append(seen.wrong, answer.String())
				}
			})
		}
		if now.Sub(looked) > 500*time.Millisecond {
			looked = now
			seen.pending = max(seen.pending, int(g.Metric(t, "omniroute_outbox_pending")))
		}
	}
	calls.Wait()
	require.NotEmpty(t, seen.took)
	slices.Sort(seen.took)
	return seen
}

// stormID is a connection, and the combo that consists of it alone. The order of the ids is
// that of the numbers.
func stormID(i int) string { return fmt.Sprintf("storm-%03d", i) }

func stormKey(i int) string { return fmt.Sprintf("storm-credential-%03d", i) }

func stormCatalog() string {
	var connections, combos strings.Builder
	for i := range stormKeys {
		fmt.Fprintf(&connections, "  - {id: %s, provider: p, credential: {apiKey: %s}}\n", stormID(i), stormKey(i))
		fmt.Fprintf(&combos, "  - {name: %s, strategy: priority, targets: [{model: p/m, connection: %s}]}\n", stormID(i), stormID(i))
	}
	return "providers: [{id: p, class: api_key, dialect: openai, baseURL: PROVIDER_URL}]\n" +
		"models: [{id: m, provider: p}]\n" +
		"apiKeys: [{name: client, key: \"${CLIENT_KEY}\", scopes: [inference]}]\n" +
		"connections:\n" + connections.String() + "combos:\n" + combos.String()
}

// stormScript has one rule for each key.
func stormScript(step func(i int) fakeprovider.Step) fakeprovider.Script {
	var script fakeprovider.Script
	for i := range stormKeys {
		script.Rules = append(script.Rules, fakeprovider.Rule{Key: stormKey(i), Model: "m", Steps: []fakeprovider.Step{step(i)}})
	}
	return script
}
