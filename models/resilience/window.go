package resilience

import (
	"slices"
	"time"
)

// Window is one replica's memory of a provider's failures for the optional provider cooldown
// (guide section 1, window gate). The zero value remembers nothing.
type Window struct {
	at []time.Time // oldest first, at most the threshold; never changed in place
}

// WindowPolicy is what the gate runs with. The zero value never trips.
type WindowPolicy struct {
	Enabled  bool
	Failures int           // that trip it
	Within   time.Duration // of each other
	Cooldown time.Duration // for which the provider is then left alone
	// Least and Longest bound the backoff of a single connection between its failures, which
	// doubles from one to the other.
	Least, Longest time.Duration
}

// Fail counts a failure. tripped says that as many as the threshold lie within the window; the
// next count begins anew.
func (w Window) Fail(now time.Time, p WindowPolicy) (next Window, tripped bool) {
	if !p.Enabled || p.Failures < 1 {
		return Window{}, false
	}
	kept := slices.DeleteFunc(slices.Clone(w.at), func(t time.Time) bool { return now.Sub(t) >= p.Within })
	kept = append(kept, now)
	if len(kept) >= p.Failures {
		return Window{}, true
	}
	return Window{kept}, false
}

// Succeed clears the window.
func (w Window) Succeed() Window { return Window{} }

// Empty reports that nothing is remembered, so that a success would clear nothing.
func (w Window) Empty() bool { return len(w.at) == 0 }

// Failures is how many failures the window holds at now.
func (w Window) Failures(now time.Time, p WindowPolicy) int {
	n := 0
	for _, t := range w.at {
		if now.Sub(t) < p.Within {
			n++
		}
	}
	return n
}

// Backoff is the policy of a single connection's own cooldown under the gate: it doubles from
// Least to Longest, at most ten times. Zero is next to nothing, and not the base of cooldowns.
func (p WindowPolicy) Backoff() CooldownPolicy {
	return CooldownPolicy{Base: max(p.Least, leastCooldown), MaxSteps: 10, Max: max(p.Longest, p.Least, leastCooldown)}
}
