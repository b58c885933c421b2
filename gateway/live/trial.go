package live

import (
	"slices"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// trialAlone is how long the first attempt after a cooldown keeps the others away, who would
// come all at once. Afterwards they only rank behind it: an attempt that takes long to answer
// is no failure, and one that hangs holds nobody up.
const trialAlone = time.Second

// trial is an attempt under way that goes first after a cooldown.
type trial struct {
	of    resilience.LockKey // whose lockout has passed, or ofConnection
	since time.Time
}

// ofConnection stands for the connection's own cooldown among the keys of its lockouts.
var ofConnection = resilience.LockKey{}

func (t trial) ends() time.Time { return t.since.Add(trialAlone) }

// alone reports whether the trial keeps others away at now. A clock that was set back does not
// make it last.
func (t trial) alone(now time.Time) bool { return !now.Before(t.since) && now.Before(t.ends()) }

// onTrial are the keys of what covers a model and has passed without a success since.
func (h *hot) onTrial(conn *catalog.ConnectionView, model, family string, now time.Time) []resilience.LockKey {
	var keys []resilience.LockKey
	if len(h.Lockouts) > 0 {
		keys = h.Trials(model, family, now)
	}
	if conn.Policy.Standing(h.Cooldown, now).Trial {
		keys = append(keys, ofConnection)
	}
	return keys
}

// aside is how a trial keeps another attempt out.
func (h *hot) aside(t trial, now time.Time) *routing.Exclusion {
	if t.of == ofConnection {
		return routing.Timed(models.ReasonConnCooldown, h.Cooldown.Standing(now).Reason, t.ends())
	}
	for i := range h.Lockouts {
		if lock := &h.Lockouts[i]; lock.LockKey == t.of {
			s := lock.Standing(now)
			s.Until = t.ends()
			return locked(lock, s)
		}
	}
	return nil
}

// checkTrials says how the trials of these keys that are under way keep another attempt out, or
// behind.
func (c *connection) checkTrials(h *hot, keys []resilience.LockKey, now time.Time) (out *routing.Exclusion, rank routing.Rank) {
	if len(keys) == 0 {
		return nil, routing.RankFull
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.trials {
		switch {
		case !slices.Contains(keys, t.of):
		case t.alone(now):
			out = longer(out, h.aside(t, now))
		default:
			rank = routing.RankTrial
		}
	}
	return out, rank
}

// goFirst makes the caller the trial of those keys that nobody tries yet, and returns them. It
// is kept out when another one was quicker.
func (c *connection) goFirst(h *hot, keys []resilience.LockKey, now time.Time) (mine []resilience.LockKey, out *routing.Exclusion) {
	if len(keys) == 0 {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.trials {
		at := slices.Index(keys, t.of)
		if at < 0 {
			continue
		}
		if t.alone(now) {
			return nil, h.aside(t, now)
		}
		keys = slices.Delete(keys, at, at+1)
	}
	if len(c.trials)+len(keys) > resilience.MaxLockouts+1 {
		return nil, nil
	}
	for _, key := range keys {
		c.trials = append(c.trials, trial{key, now})
	}
	return keys, nil
}

// tried ends the trials of these keys.
func (c *connection) tried(keys []resilience.LockKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trials = slices.DeleteFunc(c.trials, func(t trial) bool { return slices.Contains(keys, t.of) })
}

// goFirst makes the caller the trial after a hold if there is none, and keeps it out when
// another one was quicker.
func (p *provider) goFirst(now time.Time) (mine bool, out *routing.Exclusion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := p.state.Hold.Standing(now)
	switch {
	case !hold.Trial:
		return false, nil
	case p.trial == nil:
		p.trial = &trial{since: now}
		return true, nil
	case p.trial.alone(now):
		return false, routing.Timed(models.ReasonProviderCooldown, hold.Reason, p.trial.ends())
	default:
		return false, nil
	}
}

// tried ends the trial after a hold.
func (p *provider) tried() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trial = nil
}
