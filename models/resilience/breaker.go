package resilience

import (
	"slices"
	"time"

	"omniroute/models"
)

// Breaker is one replica's circuit breaker of one provider (guide section 1). It is a value:
// every method returns the next one. The zero value is closed.
//
// The window of failures is this replica's own; the opening is shared. Results are matched to
// the state they were admitted in by generation: whatever was sent before the breaker opened,
// closed or gave its probe away says nothing about the state after.
type Breaker struct {
	opening    Opening
	generation uint64
	failures   []mark    // oldest first, at most FailureThreshold; never changed in place
	degraded   bool      // entered DEGRADED and not yet left it
	recoverAt  int       // failures in the window at which DEGRADED is left
	probeUntil time.Time // HALF_OPEN: the probe's place is taken until then; zero = free
}

// mark is one counted failure. It carries its own end, so that reading the window needs no policy.
type mark struct {
	connection models.ConnectionID
	ends       time.Time
}

// Ticket is the right to one attempt, to be handed back with its result.
type Ticket struct {
	Generation uint64
	Probe      bool
	Dispatched time.Time
}

// Outcome is what an attempt says about the provider.
type Outcome string

// Outcomes of an attempt. Ignored says nothing: the client left, or the fault is an account's.
const (
	Succeeded Outcome = "succeeded"
	Failed    Outcome = "failed"
	Ignored   Outcome = "ignored"
)

// Result is how an attempt ended.
type Result struct {
	Outcome    Outcome
	Connection models.ConnectionID
	// UsableConnections is how many connections of the provider are usable now, this one
	// included. With two or more, failures of a single one do not open the breaker.
	UsableConnections int
	Reason            models.Reason
	Status            int
}

// State is the breaker's state at now; deadlines and the window are read lazily.
func (b Breaker) State(now time.Time) BreakerState {
	if s := b.opening.State(now); s != BreakerClosed {
		return s
	}
	if b.degraded && b.Failures(now) > b.recoverAt {
		return BreakerDegraded
	}
	return BreakerClosed
}

// Failures is how many failures the window holds at now.
func (b Breaker) Failures(now time.Time) int { return len(b.failures) - b.ended(now) }

// Quiet reports that a success would change nothing: closed, and nothing is counted.
func (b Breaker) Quiet() bool { return len(b.failures) == 0 && !b.opening.opened() }

// Opening is the shared part.
func (b Breaker) Opening() Opening { return b.opening }

// Admit asks for one attempt. CLOSED and DEGRADED let everything through. HALF_OPEN lets
// exactly one probe through, whose place is freed after ProbeTimeout if it never reports.
// When ok is false, retryAt says when to ask again.
func (b Breaker) Admit(p BreakerPolicy, now time.Time) (next Breaker, t Ticket, ok bool, retryAt time.Time) {
	switch b.opening.State(now) {
	case BreakerOpen:
		return b, Ticket{}, false, b.opening.Until
	case BreakerHalfOpen:
		if now.Before(b.probeUntil) {
			return b, Ticket{}, false, b.probeUntil
		}
		b.generation++
		b.probeUntil = now.Add(max(p.ProbeTimeout, time.Millisecond))
		return b, Ticket{Generation: b.generation, Probe: true, Dispatched: now}, true, time.Time{}
	default:
		return b, Ticket{Generation: b.generation, Dispatched: now}, true, time.Time{}
	}
}

// Report takes an attempt's result. changed says that the shared opening changed: the breaker
// opened, opened again, or closed. A result whose ticket is of an earlier generation is late
// and changes nothing; so a crowd of failures opens the breaker once and never moves the end.
func (b Breaker) Report(t Ticket, r Result, p BreakerPolicy, now time.Time) (next Breaker, changed bool) {
	if t.Generation != b.generation {
		return b, false
	}
	if t.Probe {
		return b.settleProbe(t, r, p, now)
	}
	switch r.Outcome {
	case Succeeded:
		return b.forgive(now), false
	case Failed:
		return b.count(r, p, now)
	default:
		return b, false
	}
}

// Merge takes in an opening or a closing that arrived from another replica or an operator.
func (b Breaker) Merge(o Opening) Breaker {
	joined := JoinOpening(b.opening, o)
	if joined.Equal(b.opening) {
		return b
	}
	before := b.opening
	b.opening = joined
	moved := joined.Era != before.Era || joined.opened() != before.opened() || !joined.OpenedAt.Equal(before.OpenedAt)
	if moved {
		b = b.turn()
	}
	return b
}

// Forget is a breaker of which nothing is known, its era included; what is under way is late.
func (b Breaker) Forget() Breaker { return Breaker{generation: b.generation + 1} }

// YieldProbe notes that another replica holds the half-open probe until then.
func (b Breaker) YieldProbe(until time.Time) Breaker {
	b.generation++
	b.probeUntil = until
	return b
}

func (b Breaker) settleProbe(t Ticket, r Result, p BreakerPolicy, now time.Time) (Breaker, bool) {
	switch r.Outcome {
	case Succeeded:
		b.opening.ClosedAt = later(b.opening.ClosedAt, later(instant(t.Dispatched), b.opening.OpenedAt.Add(time.Millisecond)))
		return b.turn(), true
	case Failed:
		return b.open(r, b.opening.Cycle+1, 1, p, now), true
	default:
		b.generation++
		b.probeUntil = time.Time{}
		return b, false
	}
}

// forgive removes the oldest failure: one success outweighs one failure.
func (b Breaker) forgive(now time.Time) Breaker {
	if ended := b.ended(now); ended < len(b.failures) {
		b.failures = b.failures[ended+1:]
	} else {
		b.failures = nil
	}
	return b.recovered()
}

func (b Breaker) count(r Result, p BreakerPolicy, now time.Time) (Breaker, bool) {
	threshold := max(1, p.FailureThreshold)
	b.failures = b.failures[b.ended(now):]
	b = b.recovered()
	if surplus := len(b.failures) + 1 - threshold; surplus > 0 {
		b.failures = b.failures[surplus:]
	}
	b.failures = append(slices.Clone(b.failures), mark{r.Connection, now.Add(p.Window)})
	if len(b.failures) >= threshold && (r.UsableConnections < 2 || b.spread()) {
		return b.open(r, 1, len(b.failures), p, now), true
	}
	if len(b.failures) >= max(1, p.DegradationThreshold) {
		b.degraded, b.recoverAt = true, p.DegradationThreshold/2
	}
	return b, false
}

// spread reports whether the counted failures come from at least two connections.
func (b Breaker) spread() bool {
	for _, m := range b.failures[1:] {
		if m.connection != b.failures[0].connection {
			return true
		}
	}
	return false
}

func (b Breaker) open(r Result, cycle, failures int, p BreakerPolicy, now time.Time) Breaker {
	// Later than the opening before and not before its close, whatever clocks they are of.
	b.opening.OpenedAt = later(later(instant(now), b.opening.ClosedAt), b.opening.OpenedAt.Add(time.Millisecond))
	b.opening.Until = deadline(now, p.openTime(cycle))
	b.opening.Cycle, b.opening.Failures = cycle, failures
	b.opening.Reason, b.opening.Status = r.Reason, r.Status
	return b.turn()
}

// turn begins a new generation with an empty window and no probe.
func (b Breaker) turn() Breaker {
	return Breaker{opening: b.opening, generation: b.generation + 1}
}

// recovered leaves DEGRADED once the window has emptied to half of the threshold (hysteresis).
func (b Breaker) recovered() Breaker {
	if len(b.failures) <= b.recoverAt {
		b.degraded, b.recoverAt = false, 0
	}
	return b
}

// ended is how many of the oldest failures have left the window.
func (b Breaker) ended(now time.Time) int {
	for i, m := range b.failures {
		if now.Before(m.ends) {
			return i
		}
	}
	return len(b.failures)
}

// openTime is how long the breaker stays open in a cycle: the reset timeout, doubled for every
// cycle past the escalation count, at most MaxBackoffMultiplier times the reset timeout.
func (p BreakerPolicy) openTime(cycle int) time.Duration {
	factor, most := 1, max(1, p.MaxBackoffMultiplier)
	for i := p.BackoffEscalationCount; i < cycle && factor < most; i++ {
		factor *= 2
	}
	return max(p.ResetTimeout, leastCooldown) * time.Duration(min(factor, most))
}
