package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// What an operator does, by whatever way, is in force on both gateways within a second, without
// a restart of anything.
func TestWhatAnOperatorDoesReachesBothGatewaysWithinASecond(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: operated(), Gateways: 2})

	// One after the other, so that each is measured alone.
	for scope := range hotRules {
		t.Run("a rule for a bad request, scope "+scope, func(t *testing.T) { aRuleIsHot(t, w, scope) })
	}
	t.Run("predicates", func(t *testing.T) { failuresDressedAsSuccess(t, w) })
	t.Run("siblings behind one address", func(t *testing.T) { siblingsCoolTogether(t, w) })
	for _, r := range reliefs {
		r.begin(t, w)
	}
	for _, r := range reliefs {
		t.Run(r.name, func(t *testing.T) { r.run(t, w) })
	}

	requireAudited(t, w)
}

// operated is the catalog: for each case a provider with two keys of its own, and a spare one.
func operated() string {
	c := &casesCatalog{}
	for _, r := range reliefs {
		c.provider(r.id(), r.class(), "")
	}
	for scope := range hotRules {
		for i := range 2 {
			c.provider(ruled(scope, i), "api_key", "")
			c.orSpare(ruled(scope, i))
		}
	}
	c.provider("dressed", "api_key", "")
	c.provider("spare", "api_key", "")
	c.provider("shared", "api_key", "egressShared: true")
	c.connection("shared", "shared-3", "")
	c.connection("shared", "shared-4", "localAddress: 127.0.0.2")
	return c.text("settings: {resilience: {providerBreaker: {local: {resetTimeoutMs: 600000}}}}")
}

// casesCatalog writes a catalog of providers that have nothing to do with each other.
type casesCatalog struct{ providers, connections, models, combos strings.Builder }

func (c *casesCatalog) provider(id, class, more string) {
	fmt.Fprintf(&c.providers, "  - {id: %s, class: %s, dialect: openai, baseURL: PROVIDER_URL, %s}\n", id, class, more)
	c.connection(id, id+"-1", "")
	c.connection(id, id+"-2", "")
	for _, model := range []string{"m", "m2", "m3", "m4"} {
		fmt.Fprintf(&c.models, "  - {id: %s, provider: %s}\n", model, id)
	}
}

// orSpare is a combo of a provider and the spare one.
func (c *casesCatalog) orSpare(id string) {
	fmt.Fprintf(&c.combos, "  - {name: %[1]s-or-spare, strategy: priority, targets: [{model: %[1]s/m}, {model: spare/m}]}\n", id)
}

// connection takes its priority from the last digit of its id.
func (c *casesCatalog) connection(provider, id, more string) {
	fmt.Fprintf(&c.connections, "  - {id: %s, provider: %s, priority: %s, credential: {apiKey: %s}, %s}\n",
		id, provider, id[len(id)-1:], key(id), more)
}

func (c *casesCatalog) text(settings string) string {
	return "providers:\n" + c.providers.String() + "connections:\n" + c.connections.String() + "models:\n" + c.models.String() +
		"combos:\n" + c.combos.String() + "apiKeys: [{name: client, key: \"${CLIENT_KEY}\", scopes: [inference]}]\n" + settings + "\n"
}

// key is what a connection of a casesCatalog presents.
func key(connection string) string { return "upstream-credential-of-" + connection }

// relief is one way to end what keeps something away.
type relief struct {
	name string
	out  outage
	// end ends it; id is the provider, whose first connection is out.
	end     func(t *testing.T, w *harness.World, id string)
	audited string // the action in the audit log; empty when Temporal's history is the record
}

var reliefs = []relief{
	{"DELETE model-cooldowns", locked, func(t *testing.T, w *harness.World, id string) {
		admin(t, w, http.MethodDelete, "/api/resilience/model-cooldowns", `{"connection":"`+id+`-1","model":"m"}`)
	}, "enable_models"},
	{"DELETE cooldowns", cooling, func(t *testing.T, w *harness.World, id string) {
		admin(t, w, http.MethodDelete, "/api/resilience/cooldowns?provider="+id, "")
	}, "clear_cooldown"},
	{"reset of a connection", terminal, func(t *testing.T, w *harness.World, id string) {
		admin(t, w, http.MethodPost, "/api/resilience/reset", `{"connection":"`+id+`-1"}`)
	}, "reset"},
	{"reset of a provider", open, func(t *testing.T, w *harness.World, id string) {
		admin(t, w, http.MethodPost, "/api/resilience/reset", `{"provider":"`+id+`"}`)
	}, "reset"},
	{"command line, connection", terminal, func(t *testing.T, w *harness.World, id string) {
		require.Contains(t, w.CLI(t, "reset", "--connection", id+"-1"), "connection "+id+"-1: reset")
	}, "reset"},
	{"command line, model", locked, func(t *testing.T, w *harness.World, id string) {
		require.Contains(t, w.CLI(t, "reset", "--model", id+"/m"), "connection "+id+"-1: "+id+"/m enabled")
	}, "enable_models"},
	{"command line, provider", open, func(t *testing.T, w *harness.World, id string) {
		require.Contains(t, w.CLI(t, "reset", "--provider", id), "provider "+id+": reset")
	}, "reset"},
	{"update Reset of a connection", terminal, func(t *testing.T, w *harness.World, id string) {
		update(t, w, "connection/"+id+"-1", "Reset", `{}`)
	}, ""},
	{"update EnableModel", locked, func(t *testing.T, w *harness.World, id string) {
		update(t, w, "connection/"+id+"-1", "EnableModel", `{"models":["m"]}`)
	}, ""},
	{"update ClearCooldown", cooling, func(t *testing.T, w *harness.World, id string) {
		update(t, w, "connection/"+id+"-1", "ClearCooldown", `{}`)
	}, ""},
	{"update Reset of a provider", open, func(t *testing.T, w *harness.World, id string) {
		update(t, w, "provider/"+id, "Reset", `{}`)
	}, ""},
}

// id is the relief's provider.
func (r relief) id() string {
	return strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(r.name))
}

// class is local where a breaker is to open, because two failures open it.
func (r relief) class() string {
	if r.out == open {
		return "local"
	}
	return "api_key"
}

// begin puts the relief's connection, or its provider, out.
func (r relief) begin(t *testing.T, w *harness.World) {
	w.Provider.On(key(r.id()+"-1"), "m", r.out.step())
	if r.out == open {
		w.Provider.On(key(r.id()+"-2"), "m", r.out.step())
	}
	answer := w.Gateway().Chat(t, r.id()+"/m")
	require.Equal(t, r.out != open, answer.Status == http.StatusOK, "%s", answer)
}

func (r relief) run(t *testing.T, w *harness.World) {
	one, two := w.Gateways[0], w.Gateways[1]
	first := r.id() + "-1"
	for _, g := range w.Gateways {
		harness.Await(t, 10*time.Second, "both know", func() error {
			if out, shared := r.out.seen(t, g, r.id()); !out || !shared {
				return fmt.Errorf("%s on %s: %t, shared: %t", r.out, g.URL(), out, shared)
			}
			return nil
		})
	}
	w.Provider.On(key(first), "m")

	r.end(t, w, r.id())

	ended := time.Now()
	for _, g := range []*harness.Gateway{two, one} {
		harness.Await(t, 10*time.Second, "out no more", func() error {
			if out, _ := r.out.seen(t, g, r.id()); out {
				return fmt.Errorf("still %s on %s", r.out, g.URL())
			}
			return nil
		})
	}
	require.Less(t, time.Since(ended), time.Second)
	if r.out != open { // of that, what put out each target alone lasts a little longer
		require.Equal(t, first, two.Chat(t, r.id()+"/m").Connection())
		require.Equal(t, first, one.Chat(t, r.id()+"/m").Connection())
	}
}

// outage is a way to be out.
type outage string

const (
	cooling  outage = "cooling"
	locked   outage = "locked"
	terminal outage = "terminal"
	open     outage = "open"
)

// step is the answer that leads there.
func (o outage) step() fakeprovider.Step {
	switch o {
	case cooling:
		return fakeprovider.Step{Status: 429, Headers: map[string]string{"Retry-After": "600"}}
	case locked:
		return fakeprovider.Step{Status: 404}
	case terminal:
		return fakeprovider.Step{Status: 401}
	default:
		return fakeprovider.Step{Status: 503}
	}
}

// seen reports whether a gateway shows the outage, and as one that every replica shares.
func (o outage) seen(t *testing.T, g *harness.Gateway, provider string) (out, shared bool) {
	health := g.Health(t)
	for _, p := range health.Providers {
		if p.Provider == provider && o == open && p.Breaker != "CLOSED" {
			return true, p.Breaker == "OPEN"
		}
	}
	for _, l := range health.Lockouts {
		if l.Connection == provider+"-1" && o == locked && l.Model == "m" {
			return true, l.Durable && l.Scope == "model"
		}
	}
	for _, c := range health.Connections {
		if c.Connection == provider+"-1" && (o == cooling && c.Phase == "cooling" || o == terminal && c.Phase == "expired") {
			return true, c.Durable
		}
	}
	return false, false
}

// admin calls the management API of the first gateway; it must succeed.
func admin(t *testing.T, w *harness.World, method, path, body string) string {
	t.Helper()
	status, text := w.Gateway().Admin(t, method, path, body)
	require.Equal(t, http.StatusOK, status, "%s %s %s: %s", method, path, body, text)
	return text
}

// update sends an update as Temporal's Web UI does: a name, and JSON as it was typed.
func update(t *testing.T, w *harness.World, workflow, name, argument string) {
	t.Helper()
	handle, err := w.Temporal.Client(t).UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: workflow, UpdateName: name, Args: []any{json.RawMessage(argument)},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	var answer struct{ Published bool }
	require.NoError(t, handle.Get(t.Context(), &answer))
	require.True(t, answer.Published)
}

// requireAudited finds every relief of the API and the command line, and the settings, in the
// audit log.
func requireAudited(t *testing.T, w *harness.World) {
	type entry struct{ Actor, Action, Kind, Entity string }
	var log struct{ Items []entry }
	require.NoError(t, json.Unmarshal([]byte(admin(t, w, http.MethodGet, "/api/audit?limit=1000", "")), &log))
	for _, section := range []string{"providerErrorRules", "responsePredicates"} {
		require.True(t, slices.ContainsFunc(log.Items, func(e entry) bool {
			return e.Kind == "setting" && e.Entity == section && e.Actor != ""
		}), "%s is not among %+v", section, log.Items)
	}
	for _, r := range reliefs {
		var found []string
		for _, e := range log.Items {
			if e.Action != "create" && (e.Entity == r.id() || e.Entity == r.id()+"-1") {
				require.NotEmpty(t, e.Actor)
				found = append(found, e.Action)
			}
		}
		if r.audited == "" {
			require.Empty(t, found, r.name)
		} else {
			require.Equal(t, []string{r.audited}, found, r.name)
		}
	}
}
