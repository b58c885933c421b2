package live

import (
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// failConnection applies a failure to the whole connection at once and offers what the row does
// not know. It returns until when the connection is out now; zero when nothing changed.
func (l *Live) failConnection(p *pass, f resilience.Failure) (until time.Time) {
	c := p.connection
	c.mu.Lock()
	if !c.concerns(p, f.Reason) {
		c.mu.Unlock()
		return time.Time{}
	}
	f.At = millisecond(c.after(f.At))
	news, changed := c.fail(f)
	c.mu.Unlock()
	if !changed {
		return time.Time{}
	}
	l.tellFailure(c, news, f.At)
	return news.Cooldown.Until
}

// fail applies a failure of the whole connection and returns what the row does not know then.
// Callers hold the mutex.
func (c *connection) fail(f resilience.Failure) (news resilience.Connection, changed bool) {
	next, changed := c.shared().Fail(f, c.view.Load().Policy)
	if !changed {
		return resilience.Connection{}, false
	}
	c.provisional = next
	c.refresh()
	return next.News(c.durable), true
}

func (l *Live) tellFailure(c *connection, news resilience.Connection, at time.Time) {
	if s := news.Cooldown.Standing(at); s.Phase != models.PhaseReady { // else it only counts
		l.logConnection(c, s)
	}
	l.offerConnection(c, news, at)
}

// failModel locks out the model that a failure is about, or all of its family, and tells the
// other replicas where the policy says so; else it is this replica's own backoff.
func (l *Live) failModel(p *pass, v failure.Verdict, f resilience.Failure) {
	c := p.connection
	family := l.family(p.model)
	key := resilience.KeyOf(v.Lock, p.model.Model, family)
	c.mu.Lock()
	if !c.concerns(p, f.Reason) {
		c.mu.Unlock()
		return
	}
	f.At = millisecond(c.after(f.At))
	policy, tell := c.view.Load().Policy.Model(key, amountsTo(v))
	var before resilience.Connection
	if hot := c.hot.Load(); hot != nil {
		before = hot.Connection
	}
	next, changed := c.lockOut(key, f, policy, tell)
	view, news := before, resilience.Connection{}
	if changed {
		view, news = c.refresh(), next.News(c.durable)
	}
	c.mu.Unlock()

	if len(view.Lockouts) == resilience.MaxLockouts && view.Cooldown.Terminal == "" {
		l.countDropped(append(before.Out(f.At), resilience.Lockout{LockKey: key}), view)
	}
	if !changed || !tell {
		return
	}
	_, standing := next.Locked(p.model.Model, family, f.At)
	l.logLockout(c, key, standing)
	l.offerConnection(c, news, f.At)
}

// lockOut applies the failure to the register that it belongs to and returns the register.
// Callers hold the mutex.
func (c *connection) lockOut(key resilience.LockKey, f resilience.Failure, policy resilience.CooldownPolicy, tell bool) (next resilience.Connection, changed bool) {
	shared := c.shared()
	if tell {
		if next, changed = shared.FailModel(key, f, policy); changed {
			c.provisional = next.Prune(f.At)
		}
		return next, changed
	}
	mine := own(shared, c.local)
	// It goes on from what is shared of the key, such as an operator's clear.
	for i := range shared.Lockouts {
		if shared.Lockouts[i].LockKey == key {
			mine = resilience.JoinConnection(mine, own(shared, slices.Clone(shared.Lockouts[i:i+1])))
		}
	}
	if next, changed = mine.FailModel(key, f, policy); changed {
		c.local = next.Prune(f.At).Lockouts
	}
	return next, changed
}

// amountsTo is the status by which the lockout policy knows a failure: the upstream's own, or
// what a gateway says of an upstream that gave none.
func amountsTo(v failure.Verdict) int {
	switch {
	case v.UpstreamStatus >= 400:
		return v.UpstreamStatus
	case v.Reason == models.ReasonTimeout:
		return 504
	default:
		return 502
	}
}

// backOff keeps requests to combos away from a connection whose provider failed, for longer
// each time, while the provider cooldown is on.
func (l *Live) backOff(p *pass, f resilience.Failure) {
	c := p.connection
	policy := c.provider.view.Load().Gate
	if !policy.Enabled || c.view.Load().Policy.NoCooldown {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.concerns(p, f.Reason) {
		return
	}
	f.At = millisecond(c.after(f.At))
	f.Terminal, f.Hint, f.Fixed = "", 0, 0
	next, changed := c.backoff.Fail(f, policy.Backoff())
	if changed {
		c.backoff = next
		c.refresh()
	}
}

// succeedConnection clears or eases what was set before the attempt was dispatched: the
// connection's cooldown, the lockouts of the model, and the backoff of the provider cooldown.
func (l *Live) succeedConnection(p *pass, now time.Time) {
	c := p.connection
	family := l.family(p.model)
	c.mu.Lock()
	if !c.concerns(p, "") {
		c.mu.Unlock()
		return
	}
	before, dispatched := c.shared(), p.sent(now)
	next, tell := before.Succeed(p.model.Model, family, dispatched)
	if tell {
		c.provisional = next
	}
	mine, eased := own(next, c.local).Succeed(p.model.Model, family, dispatched)
	if eased {
		c.local = mine.Lockouts
	}
	backoff, recovered := c.backoff.Succeed(dispatched)
	c.backoff = backoff
	if !tell && !eased && !recovered {
		c.mu.Unlock()
		return
	}
	c.refresh()
	news := next.News(c.durable)
	c.mu.Unlock()
	if !tell {
		return
	}
	if after := next.Cooldown.Standing(now); worthALine(before.Cooldown.Standing(now), after) {
		l.logConnection(c, after)
	}
	l.offerConnection(c, news, millisecond(now))
}

// family is the quota family of a model; empty when it has none.
func (l *Live) family(model models.ModelRef) string {
	if m := l.snapshot.Load().Models[model]; m != nil {
		return m.Family
	}
	return ""
}

// countDropped counts the lockouts that had to go for lack of room in the view.
func (l *Live) countDropped(ran []resilience.Lockout, view resilience.Connection) {
	for i := range ran {
		key := ran[i].LockKey
		if !slices.ContainsFunc(view.Lockouts, func(l resilience.Lockout) bool { return l.LockKey == key }) {
			l.metrics.lockoutsDropped.Inc()
		}
	}
}

func (l *Live) logConnection(c *connection, s resilience.Standing) {
	switch {
	case s.Phase.Terminal():
		l.options.Log.WithFields(logrus.Fields{"provider": c.provider.id, "connection": c.id, "reason": s.Reason}).
			Warn("connection is out until a reset or new credentials")
	case s.Phase == models.PhaseCooling:
		l.options.Log.WithFields(logrus.Fields{
			"provider": c.provider.id, "connection": c.id,
			"reason": s.Reason, "status": s.Status, "backoff_level": s.Level, "until": s.Until.Format(time.RFC3339Nano),
		}).Info("connection cools down")
	default:
		l.options.Log.WithFields(logrus.Fields{"provider": c.provider.id, "connection": c.id}).Info("connection is healthy again")
	}
}

// logLockout notes a lockout that all replicas are told of.
func (l *Live) logLockout(c *connection, key resilience.LockKey, s resilience.Standing) {
	l.options.Log.WithFields(logrus.Fields{
		"provider": c.provider.id, "connection": c.id, "scope": key.Scope, "model": key.Name,
		"reason": s.Reason, "status": s.Status, "backoff_level": s.Level, "until": s.Until.Format(time.RFC3339Nano),
	}).Info("model is locked out")
}
