package relay_test

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/routing"
)

func TestAnAnswerPassesUntouchedAndIsBooked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		got := w.chat("p/m", false)
		require.Equal(t, 200, got.status)
		require.Equal(t, tokenText(5), got.text())
		require.Contains(t, got.body, `"unknown":1`)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"))
		require.Equal(t, "1", got.header.Get("X-OmniRoute-Attempts"))
		row := w.ledger.last(t)
		require.EqualValues(t, 60, row.OutputTokens)
		require.Equal(t, 200, row.Status)
		require.Equal(t, 1, row.Attempts)
		require.NotContains(t, w.bodies[0], "stream_options")
	})
}

func TestAnAnswerThatIsNoneIsTriedElsewhere(t *testing.T) {
	scripts := map[string]http.HandlerFunc{
		"an error with status 200": refuse(200, `{"error":{"message":"quota","code":"insufficient_quota"}}`),
		"an empty answer":          refuse(200, `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`),
		"no body":                  refuse(200, ``),
		"half a body":              refuse(200, `{"choices":[{"message":{"conte`),
		"a body cut short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"choices":[{"message":{"content":"x"}}]}`)
			panic(http.ErrAbortHandler)
		},
		"a page":      refuse(200, `<html>`),
		"a redirect":  refuse(302, ``, "Location", "http://elsewhere.test/"),
		"status 500":  refuse(500, `{"error":{"message":"boom"}}`),
		"status 503":  refuse(503, ``),
		"status 429":  refuse(429, `{}`, "Retry-After", "30"),
		"status 401":  refuse(401, `{}`),
		"no headers":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"broken gzip": refuse(200, `{"choices":[{"message":{"content":"x"}}]}`, "Content-Encoding", "gzip"),
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", script)
				got := w.chat("best", false)
				require.Equal(t, 200, got.status)
				require.Equal(t, tokenText(5), got.text())
				require.Equal(t, []models.ConnectionID{"c1", "d1"}, w.attempts())
				require.Equal(t, "d1", got.header.Get("X-OmniRoute-Connection"))
				require.Equal(t, "2", got.header.Get("X-OmniRoute-Attempts"))
			})
		})
	}
}

func TestAZippedAnswerIsOpened(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			zip := gzip.NewWriter(rw)
			fmt.Fprint(zip, `{"choices":[{"message":{"content":"zipped"}}]}`)
			require.NoError(t, zip.Close())
		})
		got := w.chat("p/m", false)
		require.Equal(t, "zipped", got.text())
		require.Empty(t, got.header.Get("Content-Encoding"))
	})
}

func TestAFailingConnectionIsFollowedByItsSiblings(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", refuse(429, `{}`, "Retry-After", "30"))
		w.script("c2", refuse(500, `{}`))
		got := w.chat("p/m", false)
		require.Equal(t, 200, got.status)
		require.Equal(t, []models.ConnectionID{"c1", "c2", "c3"}, w.attempts())
		require.Equal(t, "c3", got.header.Get("X-OmniRoute-Connection"))
	})
}

func TestARequestThatIsToBlameItselfIsNotSentElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", refuse(400, `{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}`))
		got := w.chat("best", false)
		require.Equal(t, 400, got.status)
		require.Contains(t, got.problem(t).Error.Message, "maximum context length")
		require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
		require.Empty(t, got.header.Get("Retry-After"))
	})
}

func TestWhenAllFailTheMostUsefulErrorIsShown(t *testing.T) {
	cases := map[string]struct {
		first, second http.HandlerFunc
		status        int
		code          string
		retryAfter    string
	}{
		"a rate limit before a server error": {refuse(429, `{}`, "Retry-After", "30"), refuse(500, `{}`), 429, "rate_limit_exceeded", "3"},
		"the last of two server errors":      {refuse(500, `{}`), refuse(503, `{}`, "Retry-After", "7"), 503, "upstream_error", "3"},
		"the client's own mistake at last":   {refuse(500, `{}`), refuse(422, `{"error":{"message":"bad tool"}}`), 422, "upstream_rejected", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", c.first)
				w.script("d1", c.second)
				got := w.chat("best", true)
				require.Equal(t, c.status, got.status)
				p := got.problem(t)
				require.Equal(t, c.code, p.Error.Code)
				require.Equal(t, c.retryAfter, got.header.Get("Retry-After"), "when the first target comes back")
				require.Equal(t, 2, p.Diagnostics.PoolSize)
				require.Equal(t, 2, p.Diagnostics.Attempted)
				require.Len(t, p.Diagnostics.AttemptOrder, 2)
				require.Equal(t, "2", got.header.Get("X-OmniRoute-Attempts"))
				require.Contains(t, got.header.Get("X-OmniRoute-Combo-Trace"), "c1:")
			})
		})
	}
}

func TestWhenEveryTargetCoolsTheClientIsToldWhenToComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		now := time.Now()
		w.health.out[models.Target{Connection: "c1"}] = routing.Exclusion{Reason: models.ReasonCircuitOpen, Until: now.Add(90 * time.Second)}
		w.health.out[models.Target{Connection: "d1"}] = *routing.Timed(models.ReasonConnCooldown, models.ReasonRateLimited, now.Add(12500*time.Millisecond))
		got := w.chat("best", true)
		require.Equal(t, 503, got.status)
		require.Equal(t, "13", got.header.Get("Retry-After"), "rounded up")
		p := got.problem(t)
		require.Equal(t, "all_targets_cooling_down", p.Error.Code)
		require.Equal(t, "service_unavailable", p.Error.Type)
		require.Equal(t, "wait", p.Diagnostics.Recovery.Action)
		require.Len(t, p.Diagnostics.Excluded, 2)
		require.Equal(t, models.ReasonCircuitOpen, p.Diagnostics.Excluded[0].Reason)
		require.Equal(t, 90, p.Diagnostics.Excluded[0].Seconds)
		require.Equal(t, "rate_limit_exceeded", p.Diagnostics.Excluded[1].Detail)
		require.Equal(t, 13, p.Diagnostics.Excluded[1].Seconds)
		require.Equal(t, "0", got.header.Get("X-OmniRoute-Attempts"))
		require.Equal(t, "c1:circuit_open, d1:connection_cooldown", got.header.Get("X-OmniRoute-Combo-Trace"))
		require.Empty(t, w.attempts())
		require.Equal(t, 503, w.ledger.last(t).Status)
	})
}

func TestWhatCannotBeServedIsExplainedByItsCause(t *testing.T) {
	cases := map[string]struct {
		model      string
		out        map[models.ConnectionID]models.Reason
		status     int
		code       string
		retryAfter string
	}{
		"every account is terminal":       {"best", map[models.ConnectionID]models.Reason{"c1": models.ReasonBanned, "d1": models.ReasonCreditsExhausted}, 503, "all_accounts_inactive", ""},
		"one is terminal, one is cooling": {"best", map[models.ConnectionID]models.Reason{"c1": models.ReasonBanned, "d1": models.ReasonConnCooldown}, 503, "all_targets_cooling_down", "30"},
		"every slot is taken":             {"best", map[models.ConnectionID]models.Reason{"c1": models.ReasonConcurrency, "d1": models.ReasonConcurrency}, 429, "RATE_LIMIT_QUEUE_FULL", "1"},
		"a combo without targets":         {"empty", nil, 404, "no_executable_targets", ""},
		"a model without connections":     {"lonely/x", nil, 404, "no_executable_targets", ""},
		"no such model":                   {"p/n", nil, 404, "model_not_found", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				for connection, reason := range c.out {
					w.health.out[models.Target{Connection: connection}] = routing.Exclusion{Reason: reason, Until: time.Now().Add(30 * time.Second)}
				}
				got := w.chat(c.model, false)
				require.Equal(t, c.status, got.status)
				require.Equal(t, c.code, got.problem(t).Error.Code)
				require.Equal(t, c.retryAfter, got.header.Get("Retry-After"))
				require.Empty(t, w.attempts())
			})
		})
	}
}

func TestADisabledConnectionIsNeverCalled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.health.snapshot.Connections["c1"].Disabled = true
		require.Equal(t, "c2", w.chat("p/m", false).header.Get("X-OmniRoute-Connection"))
		w.health.snapshot.Connections["d1"].Disabled = true
		require.Equal(t, "all_accounts_inactive", w.chat("q/n", false).problem(t).Error.Code)
	})
}

func TestAKeyReachesOnlyTheConnectionsAndModelsOnItsLists(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		key := w.health.snapshot.Keys[hashKey(clientKey)]
		key.Connections = map[models.ConnectionID]bool{"c2": true}
		require.Equal(t, "c2", w.chat("p/m", false).header.Get("X-OmniRoute-Connection"))
		got := w.chat("q/n", false)
		require.Equal(t, 403, got.status)
		require.Equal(t, "model_not_allowed", got.problem(t).Error.Code)

		key.Connections, key.Models = nil, map[string]bool{"p/m": true}
		require.Equal(t, 200, w.chat("p/m", false).status)
		require.Equal(t, 200, w.chat("m", false).status, "the same model by its short name")
		require.Equal(t, 403, w.chat("best", false).status)
		require.NotContains(t, w.chat("bestt", false).body, "best,", "what the key may not use is not suggested")
	})
}

func TestNoMoreAttemptsAreMadeThanTheSettingAllows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		two := 2
		w.health.snapshot.Settings.Limits.MaxAttempts = &two
		for _, c := range []models.ConnectionID{"c1", "c2", "c3"} {
			w.script(c, refuse(500, `{}`))
		}
		require.Equal(t, 502, w.chat("p/m", false).status)
		require.Equal(t, []models.ConnectionID{"c1", "c2"}, w.attempts())
	})
}

func TestNobodyIsToldToWaitForACooldownWhileATargetThatWasNotTriedIsIn(t *testing.T) {
	one := 1
	for name, last := range map[string]*routing.Exclusion{
		"it is in":           nil,
		"its slots are full": {Reason: models.ReasonConcurrency},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.health.snapshot.Settings.Limits.MaxAttempts = &one
				w.script("c1", refuse(429, `{}`, "Retry-After", "60"))
				if last != nil {
					w.health.out[models.Target{Connection: "d1"}] = *last
				}
				got := w.chat("best", false)
				require.Equal(t, 429, got.status)
				require.Equal(t, "1", got.header.Get("Retry-After"))
			})
		})
	}
}

func TestAComboThatRetriesAsksEveryOtherTargetFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		calls := 0
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				refuse(500, `{}`)(rw, r)
				return
			}
			healthy(5)(rw, r)
		})
		w.script("d1", refuse(429, `{}`, "Retry-After", "60"))
		got := w.chat("stubborn", false)
		require.Equal(t, 200, got.status)
		require.Equal(t, []models.ConnectionID{"c1", "d1", "c1"}, w.attempts())
		require.InDelta(t, 3, got.took.Seconds(), 0.5, "after c1's own pause, not before")
	})
}

func TestAComboThatRetriesGivesUpAfterItsRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", refuse(500, `{}`))
		w.script("d1", refuse(500, `{}`))
		require.Equal(t, 502, w.chat("stubborn", false).status)
		require.Equal(t, []models.ConnectionID{"c1", "d1", "c1", "d1"}, w.attempts())
	})
}

func TestADrainLetsRequestsFinishAndRefusesNewOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, tokenEvent(0))
			rest(r, 5*time.Second)
			say(rw, finishEvent, "[DONE]")
		})
		running := make(chan reply)
		go func() { running <- w.chat("p/m", true) }()
		synctest.Wait()
		drained := make(chan time.Duration)
		go func() {
			started := time.Now()
			w.relay.Drain(t.Context())
			drained <- time.Since(started)
		}()
		synctest.Wait()
		refused := w.chat("p/m", false)
		require.Equal(t, 503, refused.status)
		require.Equal(t, "shutting_down", refused.problem(t).Error.Code)
		require.Equal(t, 1, (<-running).count("[DONE]"))
		require.Less(t, <-drained, 6*time.Second)
	})
}

func TestADrainThatRunsOutOfTimeEndsStreamsWithAnErrorEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, tokenEvent(0))
			hang(rw, r)
		})
		w.script("d1", hang)
		stream, answer := make(chan reply), make(chan reply)
		go func() { stream <- w.chat("p/m", true) }()
		go func() { answer <- w.chat("q/n", false) }()
		synctest.Wait()
		go w.relay.Drain(canceled(t))
		broken := <-stream
		require.Equal(t, token(0), broken.text())
		require.Equal(t, "shutting_down", broken.lastError(t).Error.Code)
		require.Zero(t, broken.count("[DONE]"))
		refused := <-answer
		require.Equal(t, 503, refused.status)
		require.Equal(t, "1", refused.header.Get("Retry-After"))
		require.Equal(t, []string{"abandoned"}, w.health.endings("c1"))
		require.Equal(t, []string{"abandoned"}, w.health.endings("d1"))
	})
}

func TestTheBodySentUpstreamIsTheClientsExceptForTheModel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", refuse(500, `{}`))
		big := `,"x_unknown":{"é":[1.50,"世界"]},"tools":[{"type":"function","function":{"name":"f"}}],"metadata":"` + strings.Repeat("🚀", 100_000) + `"`
		require.Equal(t, 200, w.chatWith("best", false, big).status)
		require.Len(t, w.bodies, 2)
		require.Equal(t, `{"model":"m","stream":false,"messages":[{"role":"user","content":"hi"}]`+big+`}`, w.bodies[0])
		require.Equal(t, strings.Replace(w.bodies[0], `"m"`, `"n"`, 1), w.bodies[1], "each attempt derives its own from the original")
	})
}
