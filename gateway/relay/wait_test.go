package relay_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// waiting is a world whose operator has switched waiting on, with these bounds for combos and
// plain models alike.
func waiting(w *world, longest, budget time.Duration, attempts int) {
	on, seconds := true, int64(longest/time.Second)
	longestMs, budgetMs := longest.Milliseconds(), budget.Milliseconds()
	w.health.snapshot.Settings.Resilience.ComboCooldownWait = resilience.ComboWaitSettings{Enabled: &on, MaxWaitMs: &longestMs, MaxAttempts: &attempts, BudgetMs: &budgetMs}
	w.health.snapshot.Settings.Resilience.WaitForCooldown = resilience.CooldownWaitSettings{Enabled: &on, MaxRetries: &attempts, MaxRetryWaitSec: &seconds, BudgetMs: &budgetMs}
}

// cool puts a connection out for a while.
func (w *world) cool(connection models.ConnectionID, because models.Reason, wait time.Duration) {
	w.health.out[models.Target{Connection: connection}] = *routing.Timed(models.ReasonConnCooldown, because, time.Now().Add(wait))
}

// sometimes answers 429 for the first so many attempts, and then well.
func sometimes(refusals int, wait string) http.HandlerFunc {
	attempts := 0
	return func(rw http.ResponseWriter, r *http.Request) {
		if attempts++; attempts <= refusals {
			refuse(429, `{}`, "Retry-After", wait)(rw, r)
			return
		}
		healthy(5)(rw, r)
	}
}

func (w *world) waitsCounted(t *testing.T, outcome string, want int) {
	families, err := w.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "omniroute_waits_total" && metric.GetLabel()[0].GetValue() == outcome {
				require.EqualValues(t, want, metric.GetCounter().GetValue())
				return
			}
		}
	}
	require.Zero(t, want, "waits %s", outcome)
}

func TestARequestWaitsForTheFirstTargetAndIsServed(t *testing.T) {
	for _, stream := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			waiting(w, 90*time.Second, 300*time.Second, 5)
			w.cool("c1", models.ReasonRateLimited, 20*time.Second)
			w.cool("d1", models.ReasonRateLimited, 5*time.Second)
			got := w.chat("best", stream)
			require.Equal(t, tokenText(5), got.text())
			require.Equal(t, []models.ConnectionID{"d1"}, w.attempts())
			require.InDelta(t, 5, got.took.Seconds(), 0.1)
			require.Equal(t, "1", got.header.Get("X-OmniRoute-Attempts"))
			require.Equal(t, 200, w.ledger.last(t).Status)
			w.waitsCounted(t, "woken", 1)
		})
	}
}

func TestAPlainModelWaitsByItsOwnSettingAndACombosSaysNothingOfIt(t *testing.T) {
	script := func(w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		for i, c := range []models.ConnectionID{"c1", "c2", "c3"} {
			w.script(c, sometimes(1, fmt.Sprint(30-10*i)))
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		script(w)
		got := w.chat("p/m", true)
		require.Equal(t, tokenText(5), got.text())
		require.Equal(t, []models.ConnectionID{"c1", "c2", "c3", "c3"}, w.attempts(), "all failed, and the first to come back serves")
		require.InDelta(t, 10, got.took.Seconds(), 0.1)
		require.Equal(t, "4", got.header.Get("X-OmniRoute-Attempts"))
	})
	inBubble(t, func(t *testing.T, w *world) {
		script(w)
		w.health.snapshot.Settings.Resilience.WaitForCooldown = resilience.CooldownWaitSettings{}
		got := w.chat("p/m", true)
		require.Equal(t, 429, got.status, "off is the default")
		require.Less(t, got.took, time.Second)
	})
}

func TestWhatWaitingDoesNotHelpIsAnsweredAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		out  routing.Exclusion
		code string
	}{
		"too long":           {*routing.Timed(models.ReasonCircuitOpen, models.ReasonServerError, time.Now().Add(math.MaxInt32*time.Second)), "all_targets_cooling_down"},
		"a quota is used up": {*routing.Timed(models.ReasonConnCooldown, models.ReasonQuotaExhausted, time.Time{}), "all_targets_cooling_down"},
		"of a family":        {routing.Exclusion{Reason: models.ReasonModelCooldown, Because: models.ReasonQuotaExhausted, Detail: "quota_exhausted of the model family codex"}, "all_targets_cooling_down"},
		"of a provider":      {*routing.Timed(models.ReasonProviderCooldown, models.ReasonQuotaExhausted, time.Time{}), "all_targets_cooling_down"},
		"credentials":        {*routing.Timed(models.ReasonConnCooldown, models.ReasonAuth, time.Time{}), "all_targets_cooling_down"},
		"a token":            {*routing.Timed(models.ReasonConnCooldown, models.ReasonExpired, time.Time{}), "all_targets_cooling_down"},
		"refused":            {*routing.Timed(models.ReasonConnCooldown, models.ReasonRequestRejected, time.Time{}), "all_targets_cooling_down"},
		"no such model":      {*routing.Timed(models.ReasonModelCooldown, models.ReasonNotFound, time.Time{}), "all_targets_cooling_down"},
		"out for good":       {routing.Exclusion{Reason: models.ReasonBanned}, "all_accounts_inactive"},
		"slots, not a timer": {routing.Exclusion{Reason: models.ReasonConcurrency}, "RATE_LIMIT_QUEUE_FULL"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				waiting(w, 90*time.Second, 300*time.Second, 5)
				if c.out.Reason.Timer() && c.out.Until.IsZero() {
					c.out.Until = time.Now().Add(5 * time.Second)
				}
				w.health.out[models.Target{Connection: "c1"}] = c.out
				w.health.out[models.Target{Connection: "d1"}] = c.out
				got := w.chat("best", false)
				require.Equal(t, c.code, got.problem(t).Error.Code)
				require.Less(t, got.took, time.Second)
				w.waitsCounted(t, "woken", 0)
			})
		})
	}
}

// One target that is not worth waiting for does not keep the request from waiting for another.
func TestTheSoonestOfThoseWorthWaitingForCounts(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		w.cool("c1", models.ReasonQuotaExhausted, 2*time.Second)
		w.cool("d1", models.ReasonServerError, 30*time.Second)
		got := w.chat("best", false)
		require.Equal(t, 200, got.status)
		require.InDelta(t, 30, got.took.Seconds(), 0.1)
	})
}

func TestAWaitIsLengthenedByATenthAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 90*time.Second, 5)
		for draw, most := range map[uint64]float64{0: 80.1, math.MaxUint64: 88.1, 7_999_999_999: 88.1} {
			w.draw = draw
			w.cool("c1", models.ReasonRateLimited, 80*time.Second)
			w.cool("d1", models.ReasonRateLimited, 80*time.Second)
			got := w.chat("best", false)
			require.Equal(t, 200, got.status)
			require.GreaterOrEqual(t, got.took, 80*time.Second)
			require.LessOrEqual(t, got.took.Seconds(), most)
		}
	})
}

func TestWaitingEndsWithItsAttemptsAndItsBudget(t *testing.T) {
	for name, c := range map[string]struct {
		longest, budget time.Duration
		attempts        int
		waits           int
	}{
		"attempts":               {90 * time.Second, 300 * time.Second, 2, 2},
		"budget":                 {40 * time.Second, 100 * time.Second, 5, 2}, // the third would end after 120 s
		"the longest wait":       {39 * time.Second, 300 * time.Second, 5, 0},
		"the request's attempts": {90 * time.Second, 300 * time.Second, 10, 5}, // 12 attempts, two a round
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				waiting(w, c.longest, c.budget, c.attempts)
				w.script("c1", refuse(429, `{}`, "Retry-After", "40"))
				w.script("d1", refuse(429, `{}`, "Retry-After", "40"))
				got := w.chat("best", false)
				require.Equal(t, 429, got.status)
				require.InDelta(t, 40*c.waits, got.took.Seconds(), 0.5)
				require.Len(t, w.attempts(), 2*(c.waits+1))
				w.waitsCounted(t, "woken", c.waits)
			})
		})
	}
}

func TestAClientThatLeavesWhileItWaitsCausesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		w.cool("c1", models.ReasonRateLimited, 30*time.Second)
		w.cool("d1", models.ReasonRateLimited, 30*time.Second)
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, leave)
		_, err := w.send(ctx, "best", true, "")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, 499, w.ledger.last(t).Status)
		require.Less(t, w.ledger.last(t).Total, 11*time.Second)
		<-time.After(time.Minute)
		require.Empty(t, w.attempts())
		require.Empty(t, w.health.passes, "nobody is blamed")
		w.waitsCounted(t, "interrupted", 1)
	})
}

func TestADrainEndsThoseThatWaitAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		w.cool("c1", models.ReasonRateLimited, 30*time.Second)
		w.cool("d1", models.ReasonRateLimited, 30*time.Second)
		answer := make(chan reply)
		go func() { answer <- w.chat("best", false) }()
		synctest.Wait()
		go w.relay.Drain(t.Context()) // which would give those that run all the time they need
		got := <-answer
		require.Equal(t, "shutting_down", got.problem(t).Error.Code)
		require.Less(t, got.took, time.Second)
		require.Empty(t, w.attempts())
	})
}

// Minutes may pass: what the operator changed meanwhile holds.
func TestARequestThatWaitedIsPlannedFromScratch(t *testing.T) {
	cases := map[string]struct {
		change func(s *catalog.Snapshot)
		check  func(t *testing.T, w *world, got reply)
	}{
		"the combo got another target": {
			func(s *catalog.Snapshot) {
				route := *s.Routes["best"]
				leg := s.Routes["p/m"].Legs[0]
				leg.Connections = leg.Connections[1:2]
				route.Legs = []catalog.Leg{leg}
				s.Routes = map[string]*catalog.Route{"best": &route}
			},
			func(t *testing.T, w *world, got reply) {
				require.Equal(t, 200, got.status)
				require.Equal(t, []models.ConnectionID{"c2"}, w.attempts())
			},
		},
		"the combo was removed": {
			func(s *catalog.Snapshot) { s.Routes = map[string]*catalog.Route{} },
			func(t *testing.T, w *world, got reply) {
				require.Equal(t, "model_not_found", got.problem(t).Error.Code)
			},
		},
		"the key was revoked": {
			func(s *catalog.Snapshot) { s.Keys = map[[32]byte]*catalog.KeyView{} },
			func(t *testing.T, w *world, got reply) {
				require.Equal(t, 401, got.status)
				require.Equal(t, "invalid_api_key", got.problem(t).Error.Code)
				require.Empty(t, w.attempts())
			},
		},
		"the key was narrowed": {
			func(s *catalog.Snapshot) {
				s.Keys = map[[32]byte]*catalog.KeyView{hashKey(clientKey): {ID: "k1", Scopes: map[string]bool{"inference": true}, Models: map[string]bool{"q/n": true}}}
			},
			func(t *testing.T, w *world, got reply) {
				require.Equal(t, "model_not_allowed", got.problem(t).Error.Code)
			},
		},
		"waiting was switched off": {
			func(s *catalog.Snapshot) { s.Settings = catalog.Settings{} },
			func(t *testing.T, w *world, got reply) { require.Equal(t, 200, got.status) },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				waiting(w, 90*time.Second, 300*time.Second, 5)
				w.cool("c1", models.ReasonRateLimited, 30*time.Second)
				w.cool("d1", models.ReasonRateLimited, 30*time.Second)
				answer := make(chan reply)
				go func() { answer <- w.chat("best", false) }()
				synctest.Wait()
				changed := *w.health.Snapshot()
				c.change(&changed)
				w.health.replace(&changed)
				c.check(t, w, <-answer)
			})
		})
	}
}

func TestOnlySoManyRequestsWaitAndTheOthersAreToldToComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		w.relay.SetSeats(2)
		w.cool("c1", models.ReasonRateLimited, 30*time.Second)
		w.cool("d1", models.ReasonRateLimited, 30*time.Second)
		answers := make(chan reply, 2)
		for range 2 {
			go func() { answers <- w.chat("best", false) }()
		}
		synctest.Wait()
		got := w.chat("best", false)
		require.Equal(t, 503, got.status)
		require.Equal(t, "30", got.header.Get("Retry-After"))
		require.Less(t, got.took, time.Second)
		w.waitsCounted(t, "crowded", 1)
		require.NoError(t, testutil.GatherAndCompare(w.registry, strings.NewReader(`
# HELP omniroute_requests_waiting Requests that wait for a target to come back.
# TYPE omniroute_requests_waiting gauge
omniroute_requests_waiting 2
`), "omniroute_requests_waiting"))
		for range 2 {
			require.Equal(t, 200, (<-answers).status)
		}
		w.cool("c1", models.ReasonRateLimited, 30*time.Second)
		w.cool("d1", models.ReasonRateLimited, 30*time.Second)
		require.Equal(t, 200, w.chat("best", false).status, "the seats are free again")
	})
}
