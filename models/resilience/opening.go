package resilience

import (
	"time"

	"omniroute/models"
)

// BreakerState is one of the four states of the guide's section 1.
type BreakerState string

// States of a provider's breaker.
const (
	BreakerClosed   BreakerState = "CLOSED"
	BreakerDegraded BreakerState = "DEGRADED"
	BreakerOpen     BreakerState = "OPEN"
	BreakerHalfOpen BreakerState = "HALF_OPEN"
)

// Opening is the part of a breaker that replicas share through the provider's row: since
// when it is open, until when, and in which cycle. Like Cooldown it is a join-semilattice
// of whole milliseconds, and like there, fields also hold what has been closed since: read
// them through State. The zero value is a closed breaker.
type Opening struct {
	Era      int64         `json:"era"`
	OpenedAt time.Time     `json:"openedAt,omitzero"`
	Until    time.Time     `json:"until,omitzero"`
	Cycle    int           `json:"cycle"` // openings in a row without a close; 1 for the first
	Reason   models.Reason `json:"reason,omitempty"`
	Status   int           `json:"status,omitempty"`
	Failures int           `json:"failures"`          // in the window when it opened; 1 when a probe failed
	ClosedAt time.Time     `json:"closedAt,omitzero"` // dispatch of the latest successful probe; closes openings before it
}

// State is CLOSED, OPEN or HALF_OPEN at now. OPEN turns into HALF_OPEN lazily, at the instant
// of the deadline (guide section 1).
func (o Opening) State(now time.Time) BreakerState {
	switch {
	case !o.opened():
		return BreakerClosed
	case now.Before(o.Until):
		return BreakerOpen
	default:
		return BreakerHalfOpen
	}
}

// Evidence is the time of the latest observation in the opening.
func (o Opening) Evidence() time.Time { return later(o.OpenedAt, o.ClosedAt) }

// Equal compares openings; instants are compared as instants.
func (o Opening) Equal(x Opening) bool {
	return o.Era == x.Era && o.Cycle == x.Cycle && o.Reason == x.Reason && o.Status == x.Status &&
		o.Failures == x.Failures && o.OpenedAt.Equal(x.OpenedAt) && o.Until.Equal(x.Until) &&
		o.ClosedAt.Equal(x.ClosedAt)
}

// Enter moves to an era that began at the given time, closed; an era that is not newer changes
// nothing.
func (o Opening) Enter(era int64, at time.Time) Opening {
	if era <= o.Era {
		return o
	}
	return Opening{Era: era, ClosedAt: instant(at)}
}

// opened reports whether no successful probe has closed the latest opening.
func (o Opening) opened() bool {
	return !o.OpenedAt.IsZero() && !o.ClosedAt.After(o.OpenedAt)
}
