package outbox

import (
	"context"
	"time"
)

// send is one sender: it takes the entry that is due first, delivers it and puts it back,
// either to be sent again or to keep the pace of its entity.
func (o *Outbox) send() {
	for {
		e, change := o.next()
		if e == nil {
			return
		}
		started := time.Now()
		ctx, cancel := context.WithTimeout(o.ctx, sendTimeout)
		err := o.options.Send(ctx, change)
		cancel()
		o.settle(e, change, started, err)
	}
}

// next waits for an entry that is due and holds it. It returns nil when the outbox stops.
func (o *Outbox) next() (*entry, Change) {
	for {
		e, change, wait := o.take(time.Now())
		if e != nil {
			return e, change
		}
		if !o.sleep(wait) {
			return nil, Change{}
		}
	}
}

// take holds the first entry when it is due. Otherwise it says how long until one may be,
// zero when there is none to wait for.
func (o *Outbox) take(now time.Time) (*entry, Change, time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 {
		first := o.queue[0]
		if first.pending && !first.due.After(now) {
			o.queue.remove(first)
			first.pending, first.held, first.heldSince = false, true, first.since
			o.held++
			if len(o.queue) > 0 {
				o.signal()
			}
			return first, first.change, 0
		}
		if first.pending || first.due.After(now) && !o.draining {
			return nil, Change{}, first.due.Sub(now)
		}
		o.queue.remove(first) // its pace has passed and nothing came: forget the entity
		delete(o.entries, first.key)
	}
	o.finishDrain()
	return nil, Change{}, 0
}

// sleep waits for the token, for the time when an entry falls due (zero: no such time), or
// for the end, which it reports as false.
func (o *Outbox) sleep(wait time.Duration) bool {
	var due <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-o.wake:
	case <-due:
	case <-o.ctx.Done():
		return false
	}
	return true
}

// settle puts a sent entry back. A failed change is merged with what came meanwhile, so that
// nothing is lost and nothing is sent twice over.
func (o *Outbox) settle(e *entry, sent Change, started time.Time, err error) {
	now := time.Now()
	o.mu.Lock()
	e.held = false
	o.held--
	switch {
	case err == nil:
		o.metrics.sent.Inc()
		o.recovered(e)
		e.deliver(sent)
		e.due = started.Add(pace)
	case o.draining:
		o.metrics.failed.Inc()
		o.metrics.drop(sent.Severity(), causeStopped)
		o.recovered(e)
		e.pending = false
	default:
		o.metrics.failed.Inc()
		o.failed(e, err)
		if e.pending {
			o.metrics.merged.Inc()
			sent = sent.Merge(e.change)
		}
		e.set(sent)
		e.since = e.heldSince
		e.due = now.Add(o.backoff(e.failures))
	}
	if o.draining {
		e.due = now
	}
	o.queue.add(e)
	o.mu.Unlock()
	o.signal()
}

// failed and recovered keep count of the entities that do not get through, so that the log
// tells the beginning and the end of an outage and not every try. Callers hold the mutex.
func (o *Outbox) failed(e *entry, err error) {
	if e.failures++; e.failures > 1 {
		return
	}
	if o.failing++; o.failing == 1 {
		o.options.Log.WithError(err).WithField("entity", e.key).Warn("state changes do not arrive, keeping and trying on")
	}
}

func (o *Outbox) recovered(e *entry) {
	if e.failures == 0 {
		return
	}
	e.failures = 0
	if o.failing--; o.failing == 0 {
		o.options.Log.Info("state changes arrive again")
	}
}

// backoff doubles from 0.2 s to 10 s, each time somewhere in the upper half.
func (o *Outbox) backoff(failures int) time.Duration {
	full := backoffMax
	if shift := failures - 1; shift < 6 {
		full = min(backoffFirst<<shift, backoffMax)
	}
	return full/2 + time.Duration(o.options.Rand()*float64(full/2))
}

// finishDrain tells Stop that nothing is left. Callers hold the mutex.
func (o *Outbox) finishDrain() {
	if !o.draining || o.held > 0 || len(o.entries) > 0 {
		return
	}
	select {
	case <-o.drained:
	default:
		close(o.drained)
	}
}
