package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/routing"
)

// gate keeps requests to combos away from a connection for a while.
func (w *world) gate(connection models.ConnectionID, wait time.Duration) {
	w.health.gated[models.Target{Connection: connection}] = *routing.Timed(models.ReasonProviderCooldown, models.ReasonServerError, time.Now().Add(wait))
}

func TestARequestToAComboPassesOverAProviderThatCoolsAndOneToItsModelDoesNot(t *testing.T) {
	for _, stream := range []bool{true, false} {
		inBubble(t, func(t *testing.T, w *world) {
			w.gate("c1", time.Minute)
			got := w.chat("best", stream)
			require.Equal(t, 200, got.status)
			require.Equal(t, "c1:provider_cooldown, d1:ok", got.header.Get("X-OmniRoute-Combo-Trace"))
			require.Equal(t, "c1", w.chat("p/m", stream).header.Get("X-OmniRoute-Connection"))
			require.Equal(t, []models.ConnectionID{"d1", "c1"}, w.attempts())
		})
	}
}

func TestARequestToAComboWaitsForAProviderThatCools(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		waiting(w, 90*time.Second, 300*time.Second, 5)
		w.gate("c1", 5*time.Second)
		w.gate("d1", time.Hour)
		got := w.chat("best", true)
		require.Equal(t, tokenText(5), got.text())
		require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
		require.InDelta(t, 5, got.took.Seconds(), 0.1)
	})
}

func TestWhenEveryTargetIsOutForAnotherReasonEachIsNamedWithItsSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.health.snapshot
		combo := &catalog.ComboView{Name: "all", Strategy: "priority"}
		combo.Route = &catalog.Route{Name: "all", Combo: combo, Legs: append(s.Routes["p/m"].Legs[:1:1], s.Routes["q/n"].Legs...)}
		s.Combos["all"], s.Routes["all"] = combo, combo.Route
		now := time.Now()
		family := *routing.Timed(models.ReasonModelCooldown, models.ReasonRateLimited, now.Add(90*time.Second))
		family.Detail = "rate_limit_exceeded of the model family codex"
		w.health.out[models.Target{Connection: "c1"}] = *routing.Timed(models.ReasonCircuitOpen, models.ReasonServerError, now.Add(30*time.Second))
		w.health.out[models.Target{Connection: "c2"}] = *routing.Timed(models.ReasonConnCooldown, models.ReasonRateLimited, now.Add(12500*time.Millisecond))
		w.health.out[models.Target{Connection: "c3"}] = family
		w.gate("d1", 10*time.Minute)

		got := w.chat("all", false)
		require.Equal(t, 503, got.status)
		require.Equal(t, "13", got.header.Get("Retry-After"), "of the first that comes back, rounded up")
		var excluded []string
		for _, e := range got.problem(t).Diagnostics.Excluded {
			excluded = append(excluded, fmt.Sprintf("%s %s (%s) %d s", e.Connection, e.Reason, e.Detail, e.Seconds))
		}
		require.Equal(t, []string{
			"c1 circuit_open (server_error) 30 s",
			"c2 connection_cooldown (rate_limit_exceeded) 13 s",
			"c3 model_lockout (rate_limit_exceeded of the model family codex) 90 s",
			"d1 provider_cooldown (server_error) 600 s",
		}, excluded)
		require.Empty(t, w.attempts())
		require.Less(t, got.took, 100*time.Millisecond)
	})
}
