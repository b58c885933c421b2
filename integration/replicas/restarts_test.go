package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// everyState has a provider for each state that something can be in.
func everyState(w *harness.World) string {
	return fmt.Sprintf(`
providers:
  - {id: plain, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
  - {id: metered, class: api_key, dialect: openai, baseURL: PROVIDER_URL, quota: {perModel: true, families: {small: ["mini-*"]}}}
  - {id: account, class: oauth, dialect: openai, baseURL: PROVIDER_URL, oauth: {tokenURL: %q, clientId: omni, clientSecret: upstream-client-secret}}
  - {id: broken, class: local, dialect: openai, baseURL: PROVIDER_URL}
  - {id: held, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
connections:
  - {id: limited, provider: plain, priority: 1, credential: {apiKey: upstream-credential-of-limited}}
  - {id: refused, provider: plain, priority: 2, credential: {apiKey: upstream-credential-of-refused}}
  - {id: banned, provider: plain, priority: 3, credential: {apiKey: upstream-credential-of-banned}}
  - {id: unpaid, provider: plain, priority: 4, credential: {apiKey: upstream-credential-of-unpaid}}
  - {id: partly, provider: plain, priority: 5, credential: {apiKey: upstream-credential-of-partly}}
  - {id: healthy, provider: plain, priority: 6, credential: {apiKey: upstream-credential-of-healthy}}
  - {id: by-family, provider: metered, credential: {apiKey: upstream-credential-of-by-family}}
  - {id: expired, provider: account, priority: 1, credential: {accessToken: upstream-credential-of-expired, refreshToken: fake-rt-unknown}}
  - {id: broken-1, provider: broken, priority: 1, credential: {apiKey: upstream-credential-of-broken-1}}
  - {id: broken-2, provider: broken, priority: 2, credential: {apiKey: upstream-credential-of-broken-2}}
  - {id: held-1, provider: held, credential: {apiKey: upstream-credential-of-held-1}}
models:
  - {id: m, provider: plain}
  - {id: m, provider: account}
  - {id: m, provider: broken}
  - {id: m, provider: held}
  - {id: mini-a, provider: metered}
  - {id: mini-b, provider: metered}
apiKeys: [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
settings:
  resilience:
    modelLockout: {enabled: true, baseCooldownMs: 600000}
    providerBreaker: {local: {resetTimeoutMs: 600000}}
  providerErrorRules: {held: [{status: 400, match: maintenance, scope: provider, cooldownMs: 600000}]}
`, w.Provider.TokenURL())
}

// Every process is killed while something is out in every way there is. Whoever starts again
// knows all of it, and so do the lists of Temporal.
func TestAfterAKillInEveryStateTheViewIsTheSame(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: catalog})
	w.Apply(t, everyState(w))
	g := w.Gateway()
	for connection, step := range map[string]fakeprovider.Step{
		"limited":   {Status: 429, Headers: map[string]string{"Retry-After": "900"}},
		"refused":   {Status: 401},
		"banned":    {Status: 403, Body: `{"error":{"message":"Your account has been deactivated."}}`},
		"unpaid":    {Status: 402},
		"partly":    {Status: 404},
		"by-family": {Status: 429, Headers: map[string]string{"Retry-After": "900"}},
		"expired":   {Status: 401},
		"broken-1":  {Status: 503},
		"broken-2":  {Status: 503},
		"held-1":    {Status: 400, Body: `{"error":{"message":"Down for maintenance."}}`},
	} {
		w.Provider.On(key(connection), fakeprovider.Any, step)
	}
	harness.Await(t, 10*time.Second, "the catalog is there", func() error {
		if a := g.Chat(t, "plain/m"); a.Connection() != "healthy" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	for _, model := range []string{"metered/mini-a", "account/m", "broken/m", "held/m"} {
		require.GreaterOrEqual(t, g.Chat(t, model).Status, 400)
	}

	before := viewOf(t, g)
	require.Equal(t, map[string]string{
		"connection limited": "cooling rate_limit_exceeded 429", "connection refused": "expired expired 0", "connection banned": "banned banned 0",
		"connection unpaid": "credits_exhausted credits_exhausted 0", "connection expired": "cooling expired 401, 1 expiries",
		"lockout of partly": "model m not_found 404", "lockout of by-family": "family small rate_limit_exceeded 429",
		"lockout of broken-1": "exact m server_error 503", "lockout of broken-2": "exact m server_error 503",
		"breaker of broken": "OPEN cycle 1", "hold of held": "quota_exhausted",
	}, before.states)
	harness.Await(t, 10*time.Second, "all of it is durable", func() error {
		if now := viewOf(t, g); len(now.alone) > 0 {
			return fmt.Errorf("only in the gateway: %v", now.alone)
		}
		return nil
	})
	requireListed(t, w)
	calls := len(w.Provider.Attempts())

	g.Kill()
	w.Worker.Kill()
	w.Temporal.Kill()
	w.Temporal.Start(t)
	w.Worker = w.StartWorker(t)
	g.Start(t)

	ready := time.Now()
	harness.Await(t, 10*time.Second, "the same view", func() error {
		after := viewOf(t, g)
		if fmt.Sprint(after.states) != fmt.Sprint(before.states) || len(after.alone) > 0 {
			return fmt.Errorf("%v, only in the gateway: %v", after.states, after.alone)
		}
		for what, until := range before.until {
			require.InDelta(t, 0, after.until[what].Sub(until).Seconds(), 1, what)
		}
		return nil
	})
	require.Less(t, time.Since(ready), 5*time.Second)
	require.Equal(t, "healthy", g.Chat(t, "plain/m").Connection())
	for _, model := range []string{"metered/mini-a", "metered/mini-b", "account/m", "broken/m", "held/m"} {
		require.Equal(t, http.StatusServiceUnavailable, g.Chat(t, model).Status, model)
	}
	require.Len(t, w.Provider.Attempts(), calls+1, "what is out is left alone")
	requireListed(t, w)
	limited := stateOf(t, w.Temporal.Client(t), "connection/limited")
	require.Equal(t, "cooling", limited.Phase)
	require.Regexp(t, `^cooling until \d\d:\d\d:\d\d UTC.* 429 rate_limit_exceeded from plain, level 1`, limited.Sentence)
}

// requireListed asks Temporal's lists what an operator would.
func requireListed(t *testing.T, w *harness.World) {
	t.Helper()
	c := w.Temporal.Client(t)
	soon := time.Now().Add(12 * time.Minute).UTC().Format(time.RFC3339)
	for query, want := range map[string][]string{
		`OmniProvider = "plain" AND OmniPhase = "cooling"`:                                {"connection/limited"},
		`OmniPhase IN ("banned", "expired", "credits_exhausted")`:                         {"connection/banned", "connection/refused", "connection/unpaid"},
		`OmniPhase = "locked"`:                                                            {"connection/broken-1", "connection/broken-2", "connection/by-family", "connection/partly"},
		`OmniModel = "small"`:                                                             {"connection/by-family"},
		`OmniModel = "m" AND OmniProvider = "plain"`:                                      {"connection/partly"},
		`OmniReason = "expired" AND OmniPhase = "cooling"`:                                {"connection/expired"},
		`OmniConnection = "limited" AND OmniReason = "rate_limit_exceeded"`:               {"connection/limited"},
		`OmniUntil > "` + soon + `"`:                                                      {"connection/by-family", "connection/limited"},
		`WorkflowType = "Provider" AND OmniPhase = "OPEN"`:                                {"provider/broken"},
		`WorkflowType = "Provider" AND OmniPhase = "HELD"`:                                {"provider/held"},
		`WorkflowType = "Provider" AND ExecutionStatus = "Running"`:                       {"provider/broken", "provider/held"},
		`OmniProvider = "plain" AND OmniPhase = "cooling" AND OmniUntil < "` + soon + `"`: {},
	} {
		harness.Await(t, 10*time.Second, query, func() error {
			found := []string{}
			for _, workflow := range w.Temporal.Workflows(t, c, query) {
				found = append(found, workflow.ID)
			}
			if slices.Sort(found); !slices.Equal(found, want) {
				return fmt.Errorf("found %v, not %v", found, want)
			}
			return nil
		})
	}
}

// view is everything that is out as one gateway tells it.
type view struct {
	states map[string]string
	until  map[string]time.Time
	alone  []string // what no row tells
}

func viewOf(t *testing.T, g *harness.Gateway) view {
	t.Helper()
	status, body := g.Admin(t, http.MethodGet, "/api/monitoring/health", "")
	require.Equal(t, http.StatusOK, status, body)
	var health struct {
		Providers []struct {
			Provider, Breaker string
			Cycle             int
			Until             time.Time
			Hold              *held
		}
		Connections []struct {
			Connection, Phase, Reason    string
			Status, Rejections, Expiries int
			Until                        time.Time
			Durable                      bool
		}
		Lockouts []struct {
			Connection, Scope, Model, Reason string
			Status                           int
			Until                            time.Time
			Durable                          bool
		}
		Unpublished struct{ Entities int }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &health))
	v := view{states: map[string]string{}, until: map[string]time.Time{}}
	note := func(what, state string, until time.Time, durable bool) {
		v.states[what], v.until[what] = state, until
		if !durable {
			v.alone = append(v.alone, what)
		}
	}
	for _, p := range health.Providers {
		if p.Breaker != "CLOSED" {
			note("breaker of "+p.Provider, fmt.Sprintf("%s cycle %d", p.Breaker, p.Cycle), p.Until, true)
		}
		if p.Hold != nil {
			note("hold of "+p.Provider, p.Hold.Reason, p.Hold.Until, true)
		}
	}
	for _, c := range health.Connections {
		if c.Phase == "ready" {
			continue
		}
		state := fmt.Sprintf("%s %s %d", c.Phase, c.Reason, c.Status)
		if c.Expiries > 0 && c.Phase == "cooling" {
			state += fmt.Sprintf(", %d expiries", c.Expiries)
		}
		note("connection "+c.Connection, state, c.Until, c.Durable)
	}
	for _, l := range health.Lockouts {
		note("lockout of "+l.Connection, fmt.Sprintf("%s %s %s %d", l.Scope, l.Model, l.Reason, l.Status), l.Until, l.Durable)
	}
	if health.Unpublished.Entities > 0 {
		v.alone = append(v.alone, fmt.Sprintf("%d entities", health.Unpublished.Entities))
	}
	return v
}

// shown is what the query State answers.
type shown struct {
	Phase    string
	Sentence string
}

// stateOf asks a workflow where it stands.
func stateOf(t *testing.T, c client.Client, workflow string) shown {
	t.Helper()
	answer, err := c.QueryWorkflow(t.Context(), workflow, "", "State")
	require.NoError(t, err)
	var s shown
	require.NoError(t, answer.Get(&s))
	return s
}
