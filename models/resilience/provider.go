package resilience

import (
	"time"
)

// Provider is everything durable about one provider: its breaker's opening, and the cooldown
// of the provider as a whole, which the window gate or a rule of scope provider sets. The zero
// value is a healthy provider. The era is the opening's; a newer one wins as a whole.
type Provider struct {
	Opening Opening  `json:"opening"`
	Hold    Cooldown `json:"hold,omitzero"` // of a rule of scope provider; keeps every request away
	Gate    Cooldown `json:"gate,omitzero"` // of the window gate; keeps requests to combos away
}

// Era is the reset epoch of the provider.
func (p Provider) Era() int64 { return p.Opening.Era }

// Fail applies a failure that a rule blames on the whole provider. Nothing ends for good with
// a provider.
func (p Provider) Fail(f Failure, policy CooldownPolicy) (next Provider, changed bool) {
	f.Terminal = ""
	p.Hold, changed = p.Hold.Fail(f, policy)
	return p, changed
}

// Trip shuts the window gate for its cooldown, unless it is shut: failures that go on extend
// nothing, so that its end is fixed.
func (p Provider) Trip(f Failure, policy WindowPolicy) (next Provider, changed bool) {
	if !p.Gate.Dormant(f.At) {
		return p, false
	}
	f.Terminal, f.Hint, f.Fixed = "", 0, max(policy.Cooldown, leastCooldown)
	p.Gate, changed = p.Gate.Fail(f, CooldownPolicy{})
	return p, changed
}

// Succeed applies a success of any of the provider's connections: what kept the provider away
// is over where it was set before the attempt was dispatched. The breaker has rules of its own.
func (p Provider) Succeed(dispatched time.Time) (next Provider, changed bool) {
	var held, gated bool
	p.Hold, held = p.Hold.Succeed(dispatched)
	p.Gate, gated = p.Gate.Succeed(dispatched)
	return p, held || gated
}

// Reset is an operator's reset: a new era begins, closed and without cooldowns.
func (p Provider) Reset(now time.Time) Provider { return p.Enter(p.Era()+1, now) }

// Enter moves to an era that began at the given time; one that is not newer changes nothing.
func (p Provider) Enter(era int64, at time.Time) Provider {
	if era <= p.Era() {
		return p
	}
	// The era of hold and gate stays zero, so that nothing of them is lost in a join.
	healthy := Cooldown{Began: instant(at), ClearedAt: instant(at)}
	return Provider{p.Opening.Enter(era, at), healthy, healthy}
}

// Evidence is the time of the latest observation in the state.
func (p Provider) Evidence() time.Time {
	return later(p.Opening.Evidence(), later(p.Hold.Evidence(), p.Gate.Evidence()))
}

// Dormant reports whether no cooldown lies ahead and the breaker is closed.
func (p Provider) Dormant(now time.Time) bool {
	return p.Opening.State(now) == BreakerClosed && p.Hold.Dormant(now) && p.Gate.Dormant(now)
}

// Next is the earliest time ahead at which something ends by itself; zero when nothing does.
func (p Provider) Next(now time.Time) time.Time {
	next := p.Gate.sooner(p.Hold.sooner(time.Time{}, now), now)
	if p.Opening.State(now) == BreakerOpen && (next.IsZero() || p.Opening.Until.Before(next)) {
		return p.Opening.Until
	}
	return next
}

// Settled reports that there is nothing to time, to try or to clear.
func (p Provider) Settled() bool {
	return !p.Opening.opened() && p.Hold.Settled() && p.Gate.Settled()
}

// Equal compares states.
func (p Provider) Equal(o Provider) bool {
	return p.Opening.Equal(o.Opening) && p.Hold.Equal(o.Hold) && p.Gate.Equal(o.Gate)
}
