package relay

import (
	"context"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// maxWaiting is how many requests of a replica wait for a target at once. Each holds its body,
// so one that comes later is answered as if it could not wait.
const maxWaiting = 1000

// waits is what a request has used up of its policy.
type waits struct {
	times int
	spent time.Duration
}

// serve plans and walks until the request has its answer. When only timers keep it from one,
// and the first of them ends soon enough, it waits for that and plans again from scratch
// (guide section 4).
func (r *run) serve(ctx context.Context) *models.Error {
	for {
		plan, refusal := r.plan(time.Now())
		if refusal != nil {
			return refusal
		}
		refusal, exhausted := r.walk(ctx, plan)
		if !exhausted {
			return refusal
		}
		wait, worth := r.recovery(time.Now())
		if !worth || !r.takeSeat() {
			return r.unserved()
		}
		if !r.await(ctx, wait) {
			return r.interrupted()
		}
		if refusal := r.checkKeyAgain(time.Now()); refusal != nil {
			return refusal
		}
	}
}

// recovery is how long to wait for the first target that is worth waiting for.
func (r *run) recovery(now time.Time) (wait time.Duration, worth bool) {
	policy := r.waitPolicy()
	if r.waits.times >= policy.Attempts || len(r.trials) >= r.limits.MaxAttempts {
		return 0, false
	}
	first := time.Duration(-1)
	for i := range r.pool {
		target := r.pool[i].Target
		conn := r.snapshot.Connections[target.Connection]
		if conn.Disabled {
			continue
		}
		out, _ := r.health.Check(conn, target.Model, r.isCombo(), now)
		remaining, waitable, other := r.untilBack(target, out, now)
		if other {
			return 0, false
		}
		if waitable && (first < 0 || remaining < first) {
			first = remaining
		}
	}
	if first < 0 || first > policy.Longest || r.waits.spent+first > policy.Budget {
		return 0, false
	}
	return min(r.spread(first), policy.Budget-r.waits.spent), true
}

// untilBack is how long a target is out for; not waitable when nobody should wait for it. It
// is something other than a timer when it is the target's slots, or when the target is in and
// has failed all the same: then waiting would not help.
func (r *run) untilBack(target models.Target, out *routing.Exclusion, now time.Time) (remaining time.Duration, waitable, other bool) {
	switch {
	case out == nil:
		// It came back while others were tried, or just now.
		failed := r.lastTrial(target)
		return 0, true, failed != nil && failed.verdict.Scope == models.ScopeNone
	case out.Reason == models.ReasonConcurrency:
		return 0, false, true
	case !out.Reason.Timer() || !worthWaiting(out.Because):
		return 0, false, false
	}
	if remaining = out.Until.Sub(now); remaining <= 0 {
		remaining = unknownWait
	}
	return remaining, true, false
}

// worthWaiting is false for what a timer only guesses at: a quota that may be used up until
// midnight, credentials that somebody has to renew, an account that is being refused, a model
// that is not there.
func worthWaiting(because models.Reason) bool {
	switch because {
	case models.ReasonQuotaExhausted, models.ReasonAuth, models.ReasonExpired, models.ReasonRequestRejected, models.ReasonNotFound:
		return false
	default:
		return true
	}
}

func (r *run) waitPolicy() resilience.WaitPolicy {
	if r.isCombo() {
		return r.snapshot.Settings.Resilience.ComboWait()
	}
	return r.snapshot.Settings.Resilience.ModelWait()
}

// takeSeat counts the request among those that wait and reports whether there was room.
func (r *Relay) takeSeat() bool {
	if r.waiting.Add(1) > r.seats {
		r.waiting.Add(-1)
		r.metrics.waits.WithLabelValues("crowded").Inc()
		return false
	}
	return true
}

// await waits on a seat, holding no slot, and reports whether the client and we lasted. A drain
// ends it at once: another replica may serve the request, and nothing has begun here.
func (r *run) await(ctx context.Context, wait time.Duration) bool {
	defer r.waiting.Add(-1)
	r.waits.times++
	r.waits.spent += wait
	lasted := r.pause(ctx, wait, r.closing)
	outcome := "woken"
	if !lasted {
		outcome = "interrupted"
	}
	r.metrics.waits.WithLabelValues(outcome).Inc()
	return lasted
}

// checkKeyAgain makes sure that a key which was revoked, narrowed or ran out while its request
// waited opens nothing any more.
func (r *run) checkKeyAgain(now time.Time) *models.Error {
	if r.Key == nil {
		return nil
	}
	for _, key := range r.health.Snapshot().Keys {
		if key.ID == r.Key.ID && key.Valid(now) && key.Scopes[catalog.ScopeInference] {
			r.Key = key
			return nil
		}
	}
	r.result.reason = models.ReasonNotAllowed
	return models.Errorf(models.CodeInvalidAPIKey, "The API key is no longer valid.")
}
