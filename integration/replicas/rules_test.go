package replicas

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

// hotRules are what a rule of each scope puts out.
var hotRules = map[string]func(t *testing.T, g *harness.Gateway, id string) error{
	"model": func(t *testing.T, g *harness.Gateway, id string) error {
		for _, l := range g.Health(t).Lockouts {
			if l.Connection == id+"-1" && l.Scope == "model" && l.Model == "m" && l.Durable && l.SecondsLeft > 100 {
				return nil
			}
		}
		return fmt.Errorf("no lockout: %+v", g.Health(t).Lockouts)
	},
	"connection": func(t *testing.T, g *harness.Gateway, id string) error {
		if c := g.Connection(t, id+"-1"); c.Phase != "cooling" || c.Reason != "model_capacity" || c.Status != 400 || c.SecondsLeft < 100 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	},
	"provider": func(t *testing.T, g *harness.Gateway, id string) error {
		if held := hold(t, g, id); held.Reason != "model_capacity" || held.SecondsLeft < 100 {
			return fmt.Errorf("%+v", held)
		}
		return nil
	},
}

// ruled are the providers of a case: the rule works on the first through the first gateway, on
// the second through the other.
func ruled(scope string, gateway int) string { return fmt.Sprintf("%s-rule-%d", scope, gateway) }

// discharged is a bad request that has words of its own.
var discharged = fakeprovider.Step{Status: 400, Body: `{"error":{"message":"The flux capacitor is discharged."}}`}

// A bad request is the client's affair until an operator says what a provider means by it. Then
// it puts out exactly the scope of the rule, whichever gateway sees it.
func aRuleIsHot(t *testing.T, w *harness.World, scope string) {
	out := hotRules[scope]
	for i, g := range w.Gateways {
		id := ruled(scope, i)
		w.Provider.On(key(id+"-1"), fakeprovider.Any, discharged)
		answer := g.Chat(t, id+"/m")
		require.Equal(t, http.StatusBadRequest, answer.Status, "%s", answer)
		require.Empty(t, w.Provider.Calls(key(id+"-2"), fakeprovider.Any), "a bad request is not tried elsewhere")
		require.Equal(t, "ready", g.Connection(t, id+"-1").Phase)
	}

	rule := []map[string]any{{"status": 400, "match": "FLUX capacitor", "scope": scope, "reason": "model_capacity", "cooldownMs": 120_000}}
	patch(t, w, "providerErrorRules", map[string]any{ruled(scope, 0): rule, ruled(scope, 1): rule})

	set := time.Now()
	for i, g := range w.Gateways {
		id := ruled(scope, i)
		harness.Await(t, 10*time.Second, "the rule is in force", func() error {
			if a := g.Chat(t, id+"-or-spare"); a.Status != http.StatusOK {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	require.Less(t, time.Since(set), time.Second)
	for i, g := range w.Gateways {
		id := ruled(scope, i)
		for _, each := range w.Gateways {
			harness.Await(t, 10*time.Second, "both know", func() error { return out(t, each, id) })
		}
		w.Provider.On(key(id+"-1"), fakeprovider.Any)
		other, direct := g.Chat(t, id+"/m2"), g.Chat(t, id+"/m")
		switch scope {
		case "model":
			require.Equal(t, id+"-1", other.Connection(), "another model is served: %s", other)
			require.Equal(t, id+"-2", direct.Connection(), "another key serves the model: %s", direct)
		case "connection":
			require.Equal(t, id+"-2", other.Connection(), "%s", other)
			require.Equal(t, id+"-2", direct.Connection(), "%s", direct)
		case "provider":
			require.Equal(t, http.StatusServiceUnavailable, direct.Status, "%s", direct)
			require.NotEmpty(t, direct.Header.Get("Retry-After"))
			require.Empty(t, w.Provider.Calls(key(id+"-2"), fakeprovider.Any), "a held provider is left alone")
			require.Equal(t, "spare-1", g.Chat(t, id+"-or-spare").Connection())
		}
	}
}

// An answer that an operator knows for a failure is one: nothing of it reaches the client, and
// another connection answers. Each case has a model of its own.
func failuresDressedAsSuccess(t *testing.T, w *harness.World) {
	const whole = `{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Sorry, the Balance is too low."}}]}`
	const stream = `data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"Sorry, the Balance is too low."},"finish_reason":null}]}

data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`
	const told = `{"id":"x","object":"chat.completion","created":1,"model":"m","result":{"state":"denied"},"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Fine."}}]}`
	events := map[string]string{"Content-Type": "text/event-stream"}
	w.Provider.On(key("dressed-1"), "m", fakeprovider.Step{Body: whole})
	w.Provider.On(key("dressed-1"), "m2", fakeprovider.Step{Body: stream, Headers: events})
	w.Provider.On(key("dressed-1"), "m3", fakeprovider.Step{Body: told})
	w.Provider.On(key("dressed-1"), "m4", fakeprovider.Step{Body: whole})
	require.Contains(t, w.Gateway().Chat(t, "dressed/m").Text(), "too low", "nobody has said that this is a failure")
	require.Contains(t, w.Gateway().Stream(t, "dressed/m2").Text(), "too low")

	patch(t, w, "responsePredicates", map[string]any{"dressed": []map[string]any{
		{"id": "balance", "contains": "balance is too low", "status": 502},
		{"id": "state", "path": "result.state", "equals": "denied", "status": 429, "reason": "rate_limit_exceeded"},
	}})

	set := time.Now()
	for i, model := range []string{"m", "m4"} {
		harness.Await(t, 10*time.Second, "the predicates are in force", func() error {
			if a := w.Gateways[i].Chat(t, "dressed/"+model); a.Connection() != "dressed-2" || a.Text() != fakeprovider.Text {
				return fmt.Errorf("%s", a)
			}
			return nil
		})
	}
	require.Less(t, time.Since(set), time.Second)
	streamed := w.Gateways[1].Stream(t, "dressed/m2")
	streamed.RequireComplete(t)
	require.Equal(t, fakeprovider.Text, streamed.Text(), "of the first answer nothing is left")
	require.Equal(t, "dressed-2", streamed.Connection())
	require.Equal(t, "ready", w.Gateways[1].Connection(t, "dressed-1").Phase, "so far models are out")

	byPath := w.Gateways[1].Chat(t, "dressed/m3")
	require.Equal(t, fakeprovider.Text, byPath.Text(), "%s", byPath)
	limited := w.Gateways[1].Connection(t, "dressed-1")
	require.Equal(t, "cooling", limited.Phase, "what a predicate makes of an answer decides what it puts out")
	require.Equal(t, "rate_limit_exceeded", limited.Reason)
}

// A limit on an address is that of every connection behind it: they cool together, and none of
// them is tried. A sibling that is out for good stays so, one behind another address serves.
func siblingsCoolTogether(t *testing.T, w *harness.World) {
	w.Provider.On(key("shared-1"), "m", fakeprovider.Step{Times: 1, Status: 401})
	require.Equal(t, "shared-2", w.Gateways[0].Chat(t, "shared/m").Connection())
	w.Provider.On(key("shared-2"), "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "90"}})

	limited := time.Now()
	require.Equal(t, "shared-4", w.Gateways[0].Chat(t, "shared/m").Connection())

	require.Empty(t, w.Provider.Calls(key("shared-3"), fakeprovider.Any))
	for _, g := range w.Gateways {
		harness.Await(t, 10*time.Second, "both know", func() error {
			for _, id := range []string{"shared-2", "shared-3"} {
				c := g.Connection(t, id)
				if c.Phase != "cooling" || !c.Durable {
					return fmt.Errorf("%+v", c)
				}
				require.InDelta(t, 90, c.Until.Sub(limited).Seconds(), 1, "%+v", c)
			}
			if c := g.Connection(t, "shared-1"); c.Phase != "expired" {
				return fmt.Errorf("a sibling that is out for good: %+v", c)
			}
			return nil
		})
		require.Equal(t, "ready", g.Connection(t, "shared-4").Phase)
	}
	require.Less(t, time.Since(limited), 2*time.Second)
	found := map[string]bool{}
	for _, workflow := range w.Temporal.Workflows(t, w.Temporal.Client(t), `OmniProvider = "shared" AND OmniPhase = "cooling"`) {
		found[workflow.ID] = true
	}
	require.Equal(t, map[string]bool{"connection/shared-2": true, "connection/shared-3": true}, found, "each has its own workflow")
}

// patch changes one section of the settings through the first gateway.
func patch(t *testing.T, w *harness.World, section string, value any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{section: value})
	require.NoError(t, err)
	admin(t, w, http.MethodPatch, "/api/settings", string(body))
}

// held is what keeps every request away from a provider.
type held struct {
	Reason      string    `json:"reason"`
	Until       time.Time `json:"until"`
	SecondsLeft int       `json:"secondsLeft"`
}

func hold(t *testing.T, g *harness.Gateway, provider string) held {
	t.Helper()
	status, body := g.Admin(t, http.MethodGet, "/api/monitoring/health", "")
	require.Equal(t, http.StatusOK, status, body)
	var health struct {
		Providers []struct {
			Provider string
			Hold     held
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &health))
	for _, p := range health.Providers {
		if p.Provider == provider {
			return p.Hold
		}
	}
	require.Failf(t, "no such provider", "%s", provider)
	return held{}
}
