package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	logrustest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// ruled gives provider p rules; alone takes c2 and c3 out of the way.
func (w *world) ruled(kind string, rules *failure.Rules) {
	w.health.snapshot.Providers["p"].Kind, w.health.snapshot.Providers["p"].Rules = kind, rules
}

func (w *world) alone() {
	w.health.snapshot.Connections["c2"].Disabled = true
	w.health.snapshot.Connections["c3"].Disabled = true
}

func agentrouter() *failure.Rules { return failure.NewRules("agentrouter", nil, nil, nil, nil) }

// Guide section 7: the client is told the truth that the provider hides.
func TestARestatedFailureIsA429WithAWaitToTheClient(t *testing.T) {
	const quota, access = `{"error":{"message":"用户额度不足"}}`, `{"error":{"message":"无权访问模型"}}`
	for name, c := range map[string]struct {
		script     http.HandlerFunc
		stream     bool
		status     int
		code       string
		retryAfter string
		scope      models.Scope
		from       int
	}{
		"a used-up quota":           {refuse(403, quota), false, 429, "rate_limit_exceeded", "60", models.ScopeConnection, 403},
		"as a bad request":          {refuse(400, quota), true, 429, "rate_limit_exceeded", "60", models.ScopeConnection, 400},
		"with a wait of its own":    {refuse(403, quota, "Retry-After", "7"), false, 429, "rate_limit_exceeded", "7", models.ScopeConnection, 403},
		"inside a 200":              {refuse(200, `{"error":{"message":"用户额度不足","code":403}}`), false, 429, "rate_limit_exceeded", "60", models.ScopeConnection, 403},
		"inside a stream":           {cut(0, true, `{"error":{"message":"用户额度不足","code":403}}`), true, 429, "rate_limit_exceeded", "60", models.ScopeConnection, 403},
		"a model that is forbidden": {refuse(403, access), false, 403, "model_not_allowed", "", models.ScopeModel, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.alone()
				w.ruled("agentrouter", agentrouter())
				w.health.snapshot.Connections["c1"].PerModelQuota = true
				w.script("c1", c.script)
				got := w.chat("p/m", c.stream)
				require.Equal(t, c.status, got.status)
				require.Equal(t, c.retryAfter, got.header.Get("Retry-After"))
				p := got.problem(t)
				require.Equal(t, c.code, p.Error.Code)
				require.Equal(t, c.from, p.Diagnostics.AttemptOrder[0].RestatedFrom)
				require.NotEmpty(t, p.Diagnostics.AttemptOrder[0].Rule)
				require.Equal(t, c.scope, w.health.verdict(t, "c1").Scope)
			})
		})
	}
}

func TestWhatAnOperatorsRulePutsOutIsNotAskedAgainByTheRequest(t *testing.T) {
	rules := func(scope models.Scope) *failure.Rules {
		return failure.NewRules("p", []failure.OperatorRule{{Status: 400, Match: "tenant asleep", Scope: scope, Reason: models.ReasonServerError, CooldownMs: 60_000}}, nil, nil, nil)
	}
	for scope, want := range map[models.Scope][]models.ConnectionID{
		models.ScopeModel:      {"c1", "c2", "c3", "d1"},
		models.ScopeConnection: {"c1", "c2", "c3", "d1"},
		models.ScopeProvider:   {"c1", "d1"},
	} {
		t.Run(string(scope), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.ruled("p", rules(scope))
				s := w.health.snapshot
				combo := &catalog.ComboView{Name: "wide", Strategy: "priority"}
				combo.Route = &catalog.Route{Name: "wide", Combo: combo, Legs: append(s.Routes["p/m"].Legs[:1:1], s.Routes["q/n"].Legs...)}
				s.Combos["wide"], s.Routes["wide"] = combo, combo.Route
				for _, c := range []models.ConnectionID{"c1", "c2", "c3"} {
					w.script(c, refuse(400, `{"error":{"message":"Tenant asleep"}}`))
				}
				got := w.chat("wide", false)
				require.Equal(t, 200, got.status)
				require.Equal(t, want, w.attempts())
				require.Equal(t, time.Minute, w.health.verdict(t, "c1").Fixed)
				require.Contains(t, got.header.Get("X-OmniRoute-Combo-Trace"), "c1:server_error by providerErrorRules[0]")
			})
		})
	}
}

// A model of the same family on the same connection would meet the same limit.
func TestAFamilysLimitSpendsItsSiblingsOnTheConnection(t *testing.T) {
	for name, c := range map[string]struct {
		families [2]string
		perModel bool
		want     []models.ConnectionID
	}{
		"one family":           {[2]string{"f", "f"}, true, []models.ConnectionID{"c1", "c2"}},
		"two families":         {[2]string{"f", "g"}, true, []models.ConnectionID{"c1", "c1"}},
		"no families":          {[2]string{"", ""}, true, []models.ConnectionID{"c1", "c1"}},
		"quotas of an account": {[2]string{"f", "g"}, false, []models.ConnectionID{"c1", "c2"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				s := w.health.snapshot
				p := s.Providers["p"]
				model := func(id, family string) *catalog.ModelView {
					m := &catalog.ModelView{Ref: models.ModelRef{Provider: "p", Model: id}, Family: family}
					s.Models[m.Ref] = m
					return m
				}
				m1, m2 := model("m", c.families[0]), model("m2", c.families[1])
				once := catalog.TargetPolicy{Retries: 1}
				combo := &catalog.ComboView{Name: "kin", Strategy: "priority"}
				combo.Route = &catalog.Route{Name: "kin", Combo: combo, Legs: []catalog.Leg{
					{Model: m1, Connections: p.Connections[:1], Policy: once}, {Model: m2, Connections: p.Connections[:2], Policy: once},
				}}
				s.Routes["kin"] = combo.Route
				s.Connections["c1"].PerModelQuota = c.perModel
				limited := true
				w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
					if limited {
						limited = false
						refuse(429, `{}`)(rw, r)
						return
					}
					healthy(5)(rw, r)
				})
				require.Equal(t, 200, w.chat("kin", false).status)
				require.Equal(t, c.want, w.attempts())
			})
		})
	}
}

// What is dressed as an answer is a failure of its real class; no word of it, and none of our
// own, is passed off as a model's.
func TestAFailureDressedAsSuccessIsTriedElsewhere(t *testing.T) {
	page := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			fmt.Fprint(w, "<!DOCTYPE html>\n<html><body>Just a moment, quota exceeded</body></html>\n")
		}
	}
	type failed struct {
		script http.HandlerFunc
		reason models.Reason
		status int // what it amounts to
	}
	chunk := func(event string) http.HandlerFunc { return cut(0, true, event, "[DONE]") }
	eventNamed := func(w http.ResponseWriter, _ *http.Request) {
		openStream(w)
		fmt.Fprint(w, "event: error\ndata: {\"code\":503,\"message\":\"no\"}\n\n")
	}
	for name, cases := range map[string]struct{ plain, stream failed }{
		"a page": {
			failed{page("text/html"), models.ReasonMalformed, 200},
			failed{page("text/html"), models.ReasonMalformed, 200},
		},
		"a page by another name": {
			failed{page("application/json"), models.ReasonMalformed, 200},
			failed{page("text/event-stream"), models.ReasonEmptyResponse, 200},
		},
		"a bare message": {
			failed{refuse(200, `{"message":"Too many requests"}`), models.ReasonRateLimited, 429},
			failed{chunk(`{"message":"Too many requests"}`), models.ReasonRateLimited, 429},
		},
		"a bare code": {
			failed{refuse(200, `{"code":1302,"msg":"quota exceeded"}`), models.ReasonQuotaExhausted, 429},
			failed{refuse(200, `{"code":1302,"msg":"quota exceeded"}`), models.ReasonQuotaExhausted, 429},
		},
		"a bare detail": {
			failed{refuse(200, `{"detail":"The model is currently overloaded"}`), models.ReasonModelCapacity, 529},
			failed{chunk(`{"detail":"The model is currently overloaded"}`), models.ReasonModelCapacity, 529},
		},
		"an unhelpful message": {
			failed{refuse(200, `{"message":"no"}`), models.ReasonServerError, 502},
			failed{chunk(`{"message":"no"}`), models.ReasonServerError, 502},
		},
		"an envelope": {
			failed{refuse(200, `{"error":{"message":"no","type":"overloaded_error"}}`), models.ReasonModelCapacity, 529},
			failed{chunk(`{"type":"error","error":{"message":"no","type":"overloaded_error"}}`), models.ReasonModelCapacity, 529},
		},
		"a list of errors, an error event": {
			failed{refuse(200, `{"errors":[{"message":"no","code":503}]}`), models.ReasonServerError, 503},
			failed{eventNamed, models.ReasonServerError, 503},
		},
		"MiniMax's": {
			failed{refuse(200, `{"choices":null,"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`), models.ReasonQuotaExhausted, 429},
			failed{chunk(`{"object":"chat.completion.chunk","base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`), models.ReasonQuotaExhausted, 429},
		},
		"no choices": {
			failed{refuse(200, `{"object":"chat.completion","choices":[]}`), models.ReasonEmptyResponse, 200},
			failed{chunk(`{"object":"chat.completion.chunk","choices":[]}`), models.ReasonCutStream, 200},
		},
		"something else": {
			failed{refuse(200, `{"status":"ok"}`), models.ReasonMalformed, 200},
			failed{chunk(`{"status":"ok"}`), models.ReasonCutStream, 200},
		},
	} {
		for streaming, c := range map[bool]failed{false: cases.plain, true: cases.stream} {
			t.Run(fmt.Sprintf("%s, stream %t", name, streaming), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					w.script("c1", c.script)
					got := w.chat("best", streaming)
					require.Equal(t, 200, got.status)
					require.Equal(t, tokenText(5), got.text())
					require.Equal(t, []models.ConnectionID{"c1", "d1"}, w.attempts())
					require.NotContains(t, got.body, "quota")
					v := w.health.verdict(t, "c1")
					require.Equal(t, c.reason, v.Reason)
					require.Equal(t, c.status, v.UpstreamStatus)
				})
			})
		}
	}
}

func TestANoteThatIsNoErrorPasses(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, `{"type":"info","message":"You are number 3 in the queue."}`)
			healthy(3)(rw, r)
			say(rw, `{"message":"Thank you for the fish."}`)
		})
		got := w.chat("p/m", true)
		require.Equal(t, tokenText(3), got.text())
		require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
	})
}

// predicates of an operator for provider p: a text, a Chinese text, and a path.
func predicates() *failure.Rules {
	return failure.NewRules("p", nil, nil, []failure.Predicate{
		{ID: "sorry", Contains: "your Tokens are used up", Reason: models.ReasonQuotaExhausted},
		{ID: "chinese", Contains: "额度不足", Status: 429},
		{ID: "coded", Path: "base.code", Equals: "1002", Status: 503},
	}, nil)
}

func pieces(texts ...string) []string {
	events := make([]string, 0, len(texts))
	for _, text := range texts {
		events = append(events, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, text))
	}
	return events
}

func TestAPredicateOfTheOperatorsTurnsAnAnswerIntoAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		script http.HandlerFunc
		stream bool
		rule   string
		reason models.Reason
	}{
		"a text in an answer":           {refuse(200, `{"choices":[{"message":{"content":"Sorry, YOUR tokens are used up."},"finish_reason":"stop"}]}`), false, "sorry", models.ReasonQuotaExhausted},
		"a text in escapes":             {refuse(200, `{"choices":[{"message":{"content":"\u989d\u5ea6\u4e0d\u8db3"},"finish_reason":"stop"}]}`), false, "chinese", models.ReasonRateLimited},
		"a value at a path":             {refuse(200, `{"base":{"code":1002},"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}`), false, "coded", models.ReasonServerError},
		"a text on a page":              {refuse(200, `<p>Your tokens are used up</p>`), false, "sorry", models.ReasonQuotaExhausted},
		"an answer instead of a stream": {refuse(200, `{"note":"Your tokens are used up"}`), true, "sorry", models.ReasonQuotaExhausted},
		"a text in one event":           {cut(0, true, append(pieces("Sorry, your tokens are used up."), finishEvent, "[DONE]")...), true, "sorry", models.ReasonQuotaExhausted},
		"a text over many events":       {cut(0, true, append(pieces("Sor", "ry, yo", "ur tok", "ens a", "re us", "ed up", "."), finishEvent, "[DONE]")...), true, "sorry", models.ReasonQuotaExhausted},
		"a path in an event":            {cut(0, true, `{"base":{"code":"1002"},"choices":[]}`, tokenEvent(0), finishEvent, "[DONE]"), true, "coded", models.ReasonServerError},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.ruled("p", predicates())
				w.script("c1", c.script)
				got := w.chat("best", c.stream)
				require.Equal(t, 200, got.status)
				require.Equal(t, tokenText(5), got.text())
				require.Equal(t, []models.ConnectionID{"c1", "d1"}, w.attempts())
				v := w.health.verdict(t, "c1")
				require.Equal(t, c.rule, v.Rule)
				require.Equal(t, c.reason, v.Reason)
			})
		})
	}
}

// Listening holds a stream back for its first words only, and takes nothing from it.
func TestAStreamThatIsListenedToPassesWhole(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		text   string
	}{
		"a long answer":      {append(pieces(strings.Split(strings.Repeat("word ", 200), "d")...), finishEvent, "[DONE]"), strings.Repeat("wor ", 200)},
		"a short one":        {append(pieces("Yes", "."), finishEvent, "[DONE]"), "Yes."},
		"without a marker":   {append(pieces("Yes", "."), finishEvent), "Yes."},
		"only a tool call":   {[]string{`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"}}]}}]}`, finishEvent, "[DONE]"}, ""},
		"too late to matter": {append(pieces(strings.Repeat("word ", 60), "your tokens are used up"), finishEvent, "[DONE]"), strings.Repeat("word ", 60) + "your tokens are used up"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.ruled("p", predicates())
				w.script("c1", cut(0, true, c.events...))
				got := w.chat("p/m", true)
				require.Equal(t, 200, got.status)
				require.Equal(t, c.text, got.text())
				require.Equal(t, 1, got.count("[DONE]"))
				require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
			})
		})
	}
	t.Run("slowly, within the limits of an answer that flows", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.ruled("p", predicates())
			w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
				openStream(rw)
				for range 10 {
					say(rw, pieces("word ")...)
					rest(r, limits.FirstContent/2)
				}
				say(rw, finishEvent, "[DONE]")
			})
			got := w.chat("p/m", true)
			require.Equal(t, strings.Repeat("word ", 10), got.text())
			require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
		})
	})
	t.Run("cut while it is held back, it is tried elsewhere", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.ruled("p", predicates())
			w.script("c1", cut(0, false, pieces("Hel", "lo")...))
			got := w.chat("best", true)
			require.Equal(t, tokenText(5), got.text())
			require.Equal(t, models.ReasonCutStream, w.health.verdict(t, "c1").Reason)
		})
	})
	t.Run("where only paths are looked at, nothing is held back", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.ruled("p", failure.NewRules("p", nil, nil, []failure.Predicate{{ID: "coded", Path: "base.code"}}, nil))
			w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
				openStream(rw)
				say(rw, pieces("first ")...)
				rest(r, 5*time.Second)
				say(rw, append(pieces("second"), finishEvent, "[DONE]")...)
			})
			got := w.chat("p/m", true)
			require.Equal(t, "first second", got.text())
			require.Zero(t, w.ledger.last(t).FirstToken)
		})
	})
}

func TestTheLineOfARequestNamesTheRuleThatDecided(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		lines := logrustest.NewLocal(w.log)
		w.ruled("agentrouter", agentrouter())
		w.script("c1", refuse(403, `{"error":{"message":"用户额度不足"}}`))
		require.Equal(t, 200, w.chat("best", false).status)
		line := lines.LastEntry()
		require.Equal(t, "agentrouter-user-quota-exhausted", line.Data["rule"])
		require.Equal(t, 403, line.Data["restated_from"])
		require.Equal(t, 429, line.Data["restated_to"])
		require.Equal(t, "c1:quota_exhausted by agentrouter-user-quota-exhausted, d1:ok", line.Data["trace"])
	})
}
