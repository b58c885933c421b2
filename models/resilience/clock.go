package resilience

import (
	"slices"
	"time"
)

// Shift gives every instant of the state as a clock shows it that is ahead by d. The clocks of
// replicas differ; a state means the same moments on all of them only when each shifts it from
// its own clock to the shared one, and back.
func (c Cooldown) Shift(d time.Duration) Cooldown {
	for _, t := range []*time.Time{&c.Began, &c.Since, &c.SetAt, &c.EasedAt, &c.TerminalAt, &c.ClearedAt} {
		*t = shifted(*t, d)
	}
	c.Deadline, c.Other = c.shift(d), c.Other.shift(d)
	return c
}

// Shift is Cooldown.Shift for a breaker's opening.
func (o Opening) Shift(d time.Duration) Opening {
	for _, t := range []*time.Time{&o.OpenedAt, &o.Until, &o.ClosedAt} {
		*t = shifted(*t, d)
	}
	return o
}

// Shift is Cooldown.Shift for a count.
func (s Strikes) Shift(d time.Duration) Strikes {
	return Strikes{s.Count, shifted(s.Since, d), shifted(s.At, d)}
}

// Shift is Cooldown.Shift for the whole connection.
func (c Connection) Shift(d time.Duration) Connection {
	if d == 0 {
		return c
	}
	c.Cooldown, c.Rejections, c.Expiries = c.Cooldown.Shift(d), c.Rejections.Shift(d), c.Expiries.Shift(d)
	c.Lockouts = slices.Clone(c.Lockouts)
	for i := range c.Lockouts {
		c.Lockouts[i].Cooldown = c.Lockouts[i].Shift(d)
	}
	return c
}

// Shift is Cooldown.Shift for the whole provider.
func (p Provider) Shift(d time.Duration) Provider {
	return Provider{p.Opening.Shift(d), p.Hold.Shift(d), p.Gate.Shift(d)}
}

// Shift is Cooldown.Shift for one replica's breaker. Attempts under way keep their tickets.
func (b Breaker) Shift(d time.Duration) Breaker {
	b.opening, b.probeUntil = b.opening.Shift(d), shifted(b.probeUntil, d)
	b.failures = slices.Clone(b.failures)
	for i := range b.failures {
		b.failures[i].ends = b.failures[i].ends.Add(d)
	}
	return b
}

// Shift is Cooldown.Shift for a window.
func (w Window) Shift(d time.Duration) Window {
	w.at = slices.Clone(w.at)
	for i := range w.at {
		w.at[i] = w.at[i].Add(d)
	}
	return w
}

// shifted leaves the zero time alone: it stands for never.
func shifted(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
