package relay

import (
	"context"
	"sync"
	"time"

	"omniroute/models/failure"
)

// limitReached is the cause of an attempt's context that ran into one of its limits.
type limitReached failure.Kind

func (l limitReached) Error() string { return string(l) }

// watchdog bounds one attempt: the phase it is in, and all phases together. It owns one
// timer. Progress only moves the deadline; the timer notices when it goes off early and
// re-arms itself, so a busy stream costs no timer operations.
type watchdog struct {
	cancel context.CancelCauseFunc
	total  time.Time

	mu       sync.Mutex
	timer    *time.Timer
	phase    failure.Kind
	limit    time.Duration
	deadline time.Time
	armed    time.Time // when the timer goes off
	stopped  bool
}

// watch starts an attempt's context in its first phase.
func watch(parent context.Context, phase failure.Kind, limit, total time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(parent)
	now := time.Now()
	d := &watchdog{cancel: cancel, total: now.Add(total), phase: phase, limit: limit, deadline: now.Add(limit)}
	d.armed = d.next()
	d.mu.Lock()
	d.timer = time.AfterFunc(d.armed.Sub(now), d.fire)
	d.mu.Unlock()
	return ctx, d
}

// enter begins a phase that must end, or see progress, within limit.
func (d *watchdog) enter(phase failure.Kind, limit time.Duration) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase, d.limit, d.deadline = phase, limit, now.Add(limit)
	if next := d.next(); next.Before(d.armed) && !d.stopped {
		d.armed = next
		d.timer.Reset(next.Sub(now))
	}
}

// progress begins the phase's limit anew.
func (d *watchdog) progress(now time.Time) {
	d.mu.Lock()
	d.deadline = now.Add(d.limit)
	d.mu.Unlock()
}

// stop ends the attempt's context and the timer.
func (d *watchdog) stop() {
	d.mu.Lock()
	d.stopped = true
	d.timer.Stop()
	d.mu.Unlock()
	d.cancel(nil)
}

func (d *watchdog) next() time.Time {
	if d.total.Before(d.deadline) {
		return d.total
	}
	return d.deadline
}

func (d *watchdog) fire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return
	}
	now := time.Now()
	switch {
	case !now.Before(d.total):
		d.cancel(limitReached(failure.KindTotalTimeout))
	case !now.Before(d.deadline):
		d.cancel(limitReached(d.phase))
	default:
		d.armed = d.next()
		d.timer.Reset(d.armed.Sub(now))
	}
}
