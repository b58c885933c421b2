package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestARateLimitedKeyCoolsDownAsAWorkflowWhileItsSiblingServes(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoKeys})
	g, c := w.Gateway(), w.Temporal.Client(t)
	const wait = 6 * time.Second
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "6"}})

	// The same client request is answered by the sibling.
	limited := time.Now()
	answer := g.Stream(t, "p/m")
	answer.RequireComplete(t)
	require.Equal(t, fakeprovider.Text, answer.Text())
	require.Equal(t, "key-2", answer.Connection())
	require.Equal(t, "2", answer.Header.Get("X-Omniroute-Attempts"))
	require.Len(t, w.Provider.Calls(keyOne, "m"), 1)

	// The status endpoint says why, and for how long.
	health := g.Connection(t, "key-1")
	require.Equal(t, "cooling", health.Phase)
	require.Equal(t, "rate_limit_exceeded", health.Reason)
	require.Equal(t, 429, health.Status)
	require.Equal(t, 1, health.Level)
	require.InDelta(t, wait.Seconds(), health.Until.Sub(limited).Seconds(), 0.5)

	// Temporal lists the cooldown as a workflow with everything one wants to know.
	sentence := regexp.MustCompile(`(?i)cooling until .+429.+p.+level 1`)
	took := harness.Await(t, 10*time.Second, "connection/key-1 listed", func() error {
		for _, found := range w.Temporal.Workflows(t, c, `OmniConnection = "key-1" AND OmniPhase = "cooling"`) {
			if found.ID == "connection/key-1" && found.Status == "Running" {
				require.Equal(t, "p", found.Attributes["OmniProvider"])
				require.Equal(t, "rate_limit_exceeded", found.Attributes["OmniReason"])
				until, err := time.Parse(time.RFC3339Nano, found.Attributes["OmniUntil"])
				require.NoError(t, err, "OmniUntil")
				require.InDelta(t, wait.Seconds(), until.Sub(limited).Seconds(), 0.5)
				shown, err := w.Temporal.Describe(t, c, found.ID)
				require.NoError(t, err)
				require.Contains(t, shown.Summary, "key-1")
				if !sentence.MatchString(shown.Details) {
					return fmt.Errorf("current details say %q", shown.Details)
				}
				return nil
			}
		}
		return fmt.Errorf("not among the workflows")
	})
	within(t, 2*time.Second, took, "from the answer to the list and its sentence")

	// While it lasts key 1 is left alone.
	for range 5 {
		require.Equal(t, "key-2", g.Chat(t, "p/m").Connection())
	}
	require.Len(t, w.Provider.Calls(keyOne, "m"), 1)

	// Afterwards key 1 serves again, and the workflow has done its work.
	harness.Await(t, wait+2*time.Second, "key 1 serves again", func() error {
		if a := g.Chat(t, "p/m"); a.Connection() != "key-1" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	require.InDelta(t, wait.Seconds(), w.Provider.Calls(keyOne, "m")[1].At.Sub(limited).Seconds(), 0.6)
	harness.Await(t, 5*time.Second, "the workflow completed", func() error {
		for _, found := range w.Temporal.Workflows(t, c, `WorkflowId = "connection/key-1"`) {
			if found.Status == "Completed" {
				return nil
			}
		}
		return fmt.Errorf("still running: %+v", w.Temporal.Workflows(t, c, ""))
	})
	require.Equal(t, "ready", g.Connection(t, "key-1").Phase)
}

// Every way to say how long, well-formed or not: the time to the next attempt is what was
// asked, the base backoff where nothing usable was, the cap where it was too much.
func TestRetryAfterTruthTable(t *testing.T) {
	const (
		base   = 4 * time.Second // below every hint of the table but "2"
		dayCap = 24 * time.Hour
	)
	now := time.Now()
	type row struct {
		name   string
		step   fakeprovider.Step
		want   time.Duration
		guess  bool // the base backoff, with its jitter of 10 %
		target bool // the hint puts out the target, not the connection
	}
	header := func(status int, name, value string) fakeprovider.Step {
		return fakeprovider.Step{Status: status, Headers: map[string]string{name: value}}
	}
	body := func(text string) fakeprovider.Step { return fakeprovider.Step{Status: 429, Body: text} }
	rows := []row{
		{name: "seconds", step: header(429, "Retry-After", "2"), want: 2 * time.Second},
		{name: "zero", step: header(429, "Retry-After", "0"), want: base, guess: true},
		{name: "fraction", step: header(429, "Retry-After", "1.5"), want: 1500 * time.Millisecond},
		{name: "date", step: header(429, "Retry-After", "+30s"), want: 30 * time.Second},
		{name: "past date", step: header(429, "Retry-After", now.Add(-time.Hour).UTC().Format(http.TimeFormat)), want: base, guess: true},
		{name: "negative", step: header(429, "Retry-After", "-5"), want: base, guess: true},
		{name: "nonsense", step: header(429, "Retry-After", "abc"), want: base, guess: true},
		{name: "empty", step: header(429, "Retry-After", ""), want: base, guess: true},
		{name: "absurd", step: header(429, "Retry-After", "9999999999"), want: dayCap},
		{name: "milliseconds", step: header(429, "Retry-After-Ms", "1500"), want: 1500 * time.Millisecond},
		{name: "RetryInfo", step: body(`{"error":{"code":429,"message":"quota","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"52s"}]}}`), want: 52 * time.Second},
		{name: "body milliseconds", step: body(`{"error":{"message":"slow down","retry_after_ms":45000}}`), want: 45 * time.Second},
		{name: "body ISO time", step: body(`{"error":{"message":"limit reached, try again at +20s"}}`), want: 20 * time.Second},
		{name: "reset in epoch seconds", step: header(429, "X-RateLimit-Reset", "epoch s +40s"), want: 40 * time.Second},
		{name: "reset in epoch milliseconds", step: header(429, "X-RateLimit-Reset", "epoch ms +40s"), want: 40 * time.Second},
		{name: "503", step: header(503, "Retry-After", "10"), want: 10 * time.Second, target: true},
		{name: "504 above its cap", step: header(504, "Retry-After", "86400"), want: 5 * time.Minute, target: true},
	}
	// Two more providers are for what comes of several hints, and for a request that waits.
	several, waiting := len(rows), len(rows)+1
	w := harness.Start(t, harness.Options{Catalog: waitingCombo(manyProviders(len(rows)+2, base), waiting)})
	g := w.Gateway()

	t.Run("rows", func(t *testing.T) {
		for i, r := range rows {
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				provider, first := fmt.Sprintf("p%d", i), fmt.Sprintf("upstream-first-%d", i)
				step := absolute(r.step, time.Now())
				step.Times = 1
				w.Provider.On(first, "m", step)
				answer := g.Chat(t, provider+"/m")
				require.Equal(t, provider+"-2", answer.Connection(), "%s", answer)
				at := w.Provider.Calls(first, "m")[0].At

				until := g.Connection(t, provider+"-1").Until
				if r.target {
					require.True(t, until.IsZero(), "a %d is the target's affair", step.Status)
					lockouts := g.Lockouts(t, provider+"-1")
					require.Len(t, lockouts, 1)
					until = lockouts[0].Until
				}
				slack := 500 * time.Millisecond
				if r.guess {
					slack += r.want / 10
				}
				require.InDelta(t, r.want.Seconds(), until.Sub(at).Seconds(), slack.Seconds())

				// What ends soon is watched to its end: the next call comes then, not before.
				if r.want > watched {
					return
				}
				harness.Await(t, r.want+3*time.Second, "the next attempt on key 1", func() error {
					if a := g.Chat(t, provider+"/m"); a.Connection() != provider+"-1" {
						require.Equal(t, http.StatusOK, a.Status, "key 2 serves all the time: %s", a)
						return fmt.Errorf("%s", a)
					}
					return nil
				})
				calls := w.Provider.Calls(first, "m")
				require.Len(t, calls, 2)
				require.InDelta(t, r.want.Seconds(), calls[1].At.Sub(at).Seconds(), slack.Seconds())
			})
		}
	})
	t.Run("a later longer hint extends and a shorter one never shortens", func(t *testing.T) { severalHints(t, w, several) })
	t.Run("a request that waits keeps nobody busy", func(t *testing.T) { waitsIdly(t, w, waiting) })
}

// watched is the longest wait that is watched to its end.
const watched = 10 * time.Second

// severalHints is about three calls that are on their way when the first hint arrives.
func severalHints(t *testing.T, w *harness.World, i int) {
	g, first, second := w.Gateway(), fmt.Sprintf("upstream-first-%d", i), fmt.Sprintf("p%d-2", i)
	limit := func(seconds string, latencyMs int64) fakeprovider.Step {
		return fakeprovider.Step{Times: 1, LatencyMs: latencyMs, Status: 429, Headers: map[string]string{"Retry-After": seconds}}
	}
	w.Provider.On(first, "m", limit("20", 300), limit("60", 500), limit("5", 700))

	at := time.Now()
	done := make(chan harness.Answer, 3)
	for range 3 {
		go func() { done <- g.Send(t.Context(), harness.Body(fmt.Sprintf("p%d/m", i), false)) }()
	}
	for range 3 {
		answer := <-done
		require.Equal(t, second, answer.Connection(), "%s", answer)
	}

	require.Len(t, w.Provider.Calls(first, "m"), 3)
	health := g.Connection(t, fmt.Sprintf("p%d-1", i))
	require.InDelta(t, 60, health.Until.Sub(at).Seconds(), 1.5)
	require.Equal(t, 1, health.Level, "one episode")
}

// waitsIdly is about one request that waits for its only target while most others cool down.
func waitsIdly(t *testing.T, w *harness.World, i int) {
	const wait, look = 4 * time.Second, 3 * time.Second
	g, first := w.Gateway(), fmt.Sprintf("upstream-first-%d", i)
	w.Provider.On(first, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": fmt.Sprint(wait.Seconds())}})
	done := make(chan harness.Answer, 1)
	go func() { done <- g.Send(t.Context(), harness.Body("waits", false)) }()
	harness.Await(t, 5*time.Second, "the cooldown is published", func() error {
		if c := g.Connection(t, fmt.Sprintf("p%d-1", i)); c.Phase != "cooling" || !c.Durable {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})

	busy := func() float64 { return g.Metric(t, "process_cpu_seconds_total") }
	before := busy()
	<-time.After(look)
	require.Less(t, busy()-before, look.Seconds()/20, "of a processor")

	answer := <-done
	require.Equal(t, http.StatusOK, answer.Status, "%s", answer)
	calls := w.Provider.Calls(first, "m")
	require.Len(t, calls, 2)
	require.InDelta(t, wait.Seconds(), calls[1].At.Sub(calls[0].At).Seconds(), 0.5)
}

// waitingCombo adds a combo that waits for the first connection of a provider.
func waitingCombo(catalog string, i int) string {
	return strings.Replace(catalog, "settings: {resilience: {", fmt.Sprintf(
		"combos: [{name: waits, strategy: priority, targets: [{model: p%[1]d/m, connection: p%[1]d-1}]}]\n"+
			"settings: {resilience: {comboCooldownWait: {enabled: true, maxWaitMs: 10000}, ", i), 1)
}

// manyProviders has n providers p0, p1, ... of two keys and two models each.
func manyProviders(n int, base time.Duration) string {
	text := "providers:\n"
	for i := range n {
		text += fmt.Sprintf("  - {id: p%d, class: api_key, dialect: openai, baseURL: PROVIDER_URL}\n", i)
	}
	text += "connections:\n"
	for i := range n {
		text += fmt.Sprintf("  - {id: p%[1]d-1, provider: p%[1]d, priority: 1, credential: {apiKey: upstream-first-%[1]d}}\n", i)
		text += fmt.Sprintf("  - {id: p%[1]d-2, provider: p%[1]d, priority: 2, credential: {apiKey: upstream-second-%[1]d}}\n", i)
	}
	text += "models:\n"
	for i := range n {
		text += fmt.Sprintf("  - {id: m, provider: p%[1]d}\n  - {id: m2, provider: p%[1]d}\n", i)
	}
	return text + fmt.Sprintf(`
apiKeys:  [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
settings: {resilience: {connectionCooldown: {apikey: {baseCooldownMs: %d}}}}
`, base.Milliseconds())
}

// absolute fills in the times that a row gives as an offset from now.
func absolute(s fakeprovider.Step, now time.Time) fakeprovider.Step {
	for name, value := range s.Headers {
		switch value {
		case "+30s":
			// The header has whole seconds: the half makes the error of cutting even.
			value = now.Add(30*time.Second + 500*time.Millisecond).UTC().Format(http.TimeFormat)
		case "epoch s +40s":
			value = fmt.Sprint(now.Add(40*time.Second + 500*time.Millisecond).Unix())
		case "epoch ms +40s":
			value = fmt.Sprint(now.Add(40 * time.Second).UnixMilli())
		}
		s.Headers[name] = value
	}
	if s.Body == `{"error":{"message":"limit reached, try again at +20s"}}` {
		s.Body = fmt.Sprintf(`{"error":{"message":"limit reached, try again at %s"}}`, now.Add(20*time.Second).UTC().Format(time.RFC3339Nano))
	}
	return s
}
