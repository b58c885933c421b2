package replicas

import (
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

// blameTimer is every guess of the blame matrix: the base and the longest at once.
const blameTimer = 8 * time.Second

// blame is one failing answer to connection 1 and model m1 of a provider, and the smallest thing
// that explains it. The provider has a second connection and three models.
type blame struct {
	name       string
	provider   string // more fields of it
	connection string // more fields of both connections
	step       fakeprovider.Step
	client     int      // status that the client sees when nothing else may serve
	retryAfter string   // and its Retry-After, when it matters
	out        []string // models that are out on connection 1
	scope      string   // of the lockout; empty = the connection itself, or nothing
	reason     string
	phase      string // of connection 1; empty = ready
	trips      int    // failures that the breaker counts
	stateless  bool   // nobody else is asked, nothing is remembered
}

const (
	quotaFamilies = ", quota: {perModel: true, families: {f: [m1, m2]}}"
	perModel      = ", passthroughModels: true"
)

var (
	justM1, m1AndM2, everyModel = []string{"m1"}, []string{"m1", "m2"}, []string{"m1", "m2", "m3"}
	quotaText                   = `{"error":{"message":"You exceeded your current quota.","type":"quota_exceeded"}}`
)

func blames() []blame {
	answers := func(status int, body string) fakeprovider.Step { return fakeprovider.Step{Status: status, Body: body} }
	soon := func(status int) fakeprovider.Step {
		return fakeprovider.Step{Status: status, Headers: map[string]string{"Retry-After": "6"}}
	}
	message := func(text string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, text) }
	return []blame{
		{name: "404", step: answers(404, ""), client: 404, out: justM1, scope: "model", reason: "not_found"},
		{name: "502", step: answers(502, ""), client: 502, out: justM1, scope: "exact", reason: "server_error", trips: 1},
		{name: "503", step: answers(503, ""), client: 503, out: justM1, scope: "exact", reason: "server_error", trips: 1},
		{name: "503 with a hint", step: soon(503), client: 503, out: justM1, scope: "exact", reason: "server_error", trips: 1},
		{name: "504", step: answers(504, ""), client: 504, out: justM1, scope: "exact", reason: "server_error", trips: 1},
		{name: "empty answer", step: fakeprovider.Step{Empty: true}, client: 502, out: justM1, scope: "exact", reason: "empty_response", trips: 1},
		{name: "reset", step: fakeprovider.Step{Cut: fakeprovider.CutResetEarly}, client: 502, out: justM1, scope: "exact", reason: "transport_error", trips: 1},

		{name: "429", step: answers(429, ""), client: 429, out: everyModel, phase: "cooling", reason: "rate_limit_exceeded"},
		{name: "429, quotas by family", provider: quotaFamilies, step: soon(429), client: 429, out: m1AndM2, scope: "family", reason: "rate_limit_exceeded"},
		{name: "429, quotas by model", connection: perModel, step: answers(429, ""), client: 429, out: justM1, scope: "model", reason: "rate_limit_exceeded"},
		{name: "402, quotas by family", provider: quotaFamilies, step: answers(402, ""), client: 503, out: m1AndM2, scope: "family", reason: "credits_exhausted"},
		{name: "402, quotas by model", connection: perModel, step: answers(402, ""), client: 503, out: justM1, scope: "model", reason: "credits_exhausted"},
		{name: "401 about the key", step: answers(401, ""), client: 503, out: everyModel, phase: "expired", reason: "expired"},

		{name: "400 about a quota", step: answers(400, quotaText), client: 429, out: everyModel, phase: "cooling", reason: "quota_exhausted"},
		{name: "401 about a quota", step: answers(401, quotaText), client: 429, out: everyModel, phase: "cooling", reason: "quota_exhausted"},
		{name: "403 about a quota", step: answers(403, quotaText), client: 429, out: everyModel, phase: "cooling", reason: "quota_exhausted"},
		{
			name: "403 that means 429", provider: ", kind: agentrouter", step: answers(403, message("用户额度不足")),
			client: 429, retryAfter: "60", out: everyModel, phase: "cooling", reason: "quota_exhausted",
		},
		{
			name: "403 that means 403", provider: ", kind: agentrouter", step: answers(403, message("无权访问模型 m1, 额度不足")),
			client: 403, out: justM1, scope: "model", reason: "auth_error",
		},

		{name: "400", step: answers(400, ""), client: 400, stateless: true},
		{
			name: "context length", step: answers(400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`),
			client: 400, stateless: true,
		},
		{name: "the client leaves", step: fakeprovider.Step{Hang: fakeprovider.HangHeaders}, stateless: true},
	}
}

// Each failing answer is given once, to a request on the first gateway. Then its neighbours are
// asked: the same on the gateway that saw it and on the one that only heard of it.
func TestBlameMatrixOnTheGatewayThatSawTheFailureAndOnTheOther(t *testing.T) {
	rows := blames()
	w := harness.Start(t, harness.Options{Catalog: blameCatalog(rows), Gateways: 2})
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			at := time.Now()
			row.fail(t, w, i)
			row.requireBlame(t, w.Gateways[0], i)
			row.awaitNews(t, w.Gateways[1], i)
			if !row.stateless {
				require.Less(t, time.Since(at), time.Second, "the other gateway learns of it")
			}
			for _, g := range w.Gateways {
				row.requireNeighbours(t, w, g, i)
			}
		})
	}
	for i, row := range rows {
		t.Run(row.name+" passes", func(t *testing.T) { row.requireEnd(t, w, i) })
	}
}

// fail sends one request that meets the failing answer.
func (b blame) fail(t *testing.T, w *harness.World, i int) {
	g := w.Gateways[0]
	step := b.step
	step.Times = 1
	w.Provider.On(blameKey(i, 1), "m1", step)
	switch {
	case step.Hang != "":
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		hanging := func(calls []fakeprovider.Attempt) bool { return len(calls) > 0 && calls[len(calls)-1].Hanging }
		gone := func(calls []fakeprovider.Attempt) bool { return !calls[len(calls)-1].ClosedAt.IsZero() }
		answer := make(chan harness.Answer, 1)
		go func() { answer <- g.Send(ctx, harness.Body(blamed(i)+"/m1", false)) }()
		patience, done := context.WithTimeout(t.Context(), 10*time.Second)
		defer done()
		require.NoError(t, w.Provider.Await(patience, hanging))
		leave()
		require.NoError(t, w.Provider.Await(patience, gone))
		require.ErrorIs(t, (<-answer).Err, context.Canceled)
	case b.stateless:
		answer := g.Chat(t, blamed(i)+"/m1")
		require.Equal(t, b.client, answer.Status, "%s", answer)
	default:
		answer := g.Chat(t, strictly(i, 1, "m1"))
		require.Equal(t, b.client, answer.Status, "%s", answer)
		if b.retryAfter != "" {
			require.Equal(t, b.retryAfter, answer.Header.Get("Retry-After"))
		}
	}
	require.Len(t, w.Provider.Calls(blameKey(i, 1), fakeprovider.Any), 1, "not tried again")
	require.Empty(t, w.Provider.Calls(blameKey(i, 2), fakeprovider.Any))
}

// requireBlame is about what a gateway says it knows: exactly the blame.
func (b blame) requireBlame(t *testing.T, g *harness.Gateway, i int) {
	t.Helper()
	breaker := g.Breaker(t, blamed(i))
	require.Equal(t, "CLOSED", breaker.Breaker)
	require.Equal(t, b.trips, breaker.Failures)
	require.NoError(t, b.known(t, g, i))
	require.Equal(t, "ready", g.Connection(t, connectionOf(i, 2)).Phase)
	require.Empty(t, g.Lockouts(t, connectionOf(i, 2)))
}

// awaitNews waits until a gateway knows of it without having seen it.
func (b blame) awaitNews(t *testing.T, g *harness.Gateway, i int) {
	t.Helper()
	harness.Await(t, 5*time.Second, "the other gateway knows", func() error { return b.known(t, g, i) })
	require.Zero(t, g.Breaker(t, blamed(i)).Failures, "only openings are shared")
}

func (b blame) known(t *testing.T, g *harness.Gateway, i int) error {
	t.Helper()
	c, lockouts := g.Connection(t, connectionOf(i, 1)), g.Lockouts(t, connectionOf(i, 1))
	phase, locks := "ready", 0
	if b.phase != "" {
		phase = b.phase
	}
	if b.scope != "" {
		locks = 1
	}
	if c.Phase != phase || len(lockouts) != locks {
		return fmt.Errorf("%+v, %+v", c, lockouts)
	}
	if b.phase != "" {
		require.Equal(t, b.reason, c.Reason)
	}
	if b.scope != "" {
		name := map[string]string{"family": "f"}[b.scope]
		if name == "" {
			name = "m1"
		}
		require.Equal(t, b.scope+" "+name, lockouts[0].Scope+" "+lockouts[0].Model+lockouts[0].Family)
		require.Equal(t, b.reason, lockouts[0].Reason)
		require.Equal(t, 1, lockouts[0].FailureCount)
	}
	return nil
}

// requireNeighbours asks for every model on connection 1, for the same model on connection 2 and
// for another provider. What is out is not called.
func (b blame) requireNeighbours(t *testing.T, w *harness.World, g *harness.Gateway, i int) {
	t.Helper()
	for _, model := range everyModel {
		before := len(w.Provider.Calls(blameKey(i, 1), model))
		answer := g.Chat(t, strictly(i, 1, model))
		if !b.keepsOut(model) {
			require.Equal(t, http.StatusOK, answer.Status, "%s: %s", model, answer)
			continue
		}
		require.NotEqual(t, http.StatusOK, answer.Status, "%s: %s", model, answer)
		require.Len(t, w.Provider.Calls(blameKey(i, 1), model), before, "%s was called", model)
	}
	require.Equal(t, http.StatusOK, g.Chat(t, strictly(i, 2, "m1")).Status)
	require.Equal(t, "q-1", g.Chat(t, "q/m1").Connection())
	served := connectionOf(i, 1)
	if b.keepsOut("m1") {
		served = connectionOf(i, 2)
	}
	require.Equal(t, served, g.Chat(t, blamed(i)+"/m1").Connection())
}

// requireEnd waits until both gateways serve everything again, without an operator, no sooner
// than they should. What is out for good stays out.
func (b blame) requireEnd(t *testing.T, w *harness.World, i int) {
	t.Helper()
	if b.phase == "expired" {
		for _, g := range w.Gateways {
			require.Equal(t, "expired", g.Connection(t, connectionOf(i, 1)).Phase)
			require.Equal(t, connectionOf(i, 2), g.Chat(t, blamed(i)+"/m1").Connection())
		}
		return
	}
	for _, g := range w.Gateways {
		for _, model := range everyModel {
			harness.Await(t, blameTimer+5*time.Second, model+" is served", func() error {
				if answer := g.Chat(t, strictly(i, 1, model)); answer.Status != http.StatusOK {
					return fmt.Errorf("%s", answer)
				}
				return nil
			})
		}
	}
	if calls := w.Provider.Calls(blameKey(i, 1), "m1"); !b.stateless {
		least := blameTimer * 9 / 10
		if hint := b.step.Headers["Retry-After"]; hint != "" {
			least = 6 * time.Second
		}
		require.GreaterOrEqual(t, calls[1].At.Sub(calls[0].At), least)
	}
}

func (b blame) keepsOut(model string) bool {
	return strings.Contains(strings.Join(b.out, " "), model)
}

func blamed(i int) string { return fmt.Sprintf("r%d", i) }

func connectionOf(i, n int) string { return fmt.Sprintf("r%d-%d", i, n) }

func blameKey(i, n int) string { return fmt.Sprintf("upstream-credential-r%d-%d", i, n) }

// strictly is a combo of one model on one connection.
func strictly(i, n int, model string) string { return fmt.Sprintf("r%d-%d-%s", i, n, model) }

// blameCatalog has a provider for each row, and q beside them.
func blameCatalog(rows []blame) string {
	var providers, connections, catalogModels, combos strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&providers, "  - {id: %s, class: api_key, dialect: openai, baseURL: PROVIDER_URL%s}\n", blamed(i), row.provider)
		for n := 1; n <= 2; n++ {
			fmt.Fprintf(&connections, "  - {id: %s, provider: %s, priority: %d, credential: {apiKey: %s}%s}\n",
				connectionOf(i, n), blamed(i), n, blameKey(i, n), row.connection)
		}
		for _, model := range everyModel {
			fmt.Fprintf(&catalogModels, "  - {id: %s, provider: %s}\n", model, blamed(i))
			for n := 1; n <= 2; n++ {
				fmt.Fprintf(&combos, "  - {name: %s, strategy: priority, targets: [{model: %s/%s, connection: %s}]}\n",
					strictly(i, n, model), blamed(i), model, connectionOf(i, n))
			}
		}
	}
	timer := blameTimer.Milliseconds()
	return "providers:\n  - {id: q, class: api_key, dialect: openai, baseURL: PROVIDER_URL}\n" + providers.String() +
		"connections:\n  - {id: q-1, provider: q, credential: {apiKey: upstream-credential-q}}\n" + connections.String() +
		"models:\n  - {id: m1, provider: q}\n" + catalogModels.String() + "combos:\n" + combos.String() + fmt.Sprintf(`
apiKeys: [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
settings:
  resilience:
    modelLockout: {enabled: true, baseCooldownMs: %[1]d, maxCooldownMs: %[1]d}
    connectionCooldown: {apikey: {baseCooldownMs: %[1]d, maxCooldownMs: %[1]d}}
`, timer)
}
