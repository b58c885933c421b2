package live

import (
	"time"

	"omniroute/models/resilience"
)

// The states that replicas share are told by the database's clock. A replica whose own clock is
// nearly right uses it as if it were the same, so that in a sane system nothing is ever shifted;
// one whose clock is clearly wrong shifts every instant on its way out and in. The offset is
// moved rarely: what was brought in by one offset is not comparable with another.
//
// What is held is told by our own clock. When somebody sets that, everything held moves along
// and the offset back, so that what is shared means the same moments as before. When it is the
// database's clock that was set, or was never compared before, what is held stays.
const (
	tolerated = time.Second            // a difference below is none
	steady    = 500 * time.Millisecond // an offset in use is kept while it is this near
)

// heedStep notices that our clock was set since the last look, which the time that has really
// passed tells, and moves what is held along. It is asked wherever evidence comes in; between
// the step and that, cooldowns are off by it.
func (l *Live) heedStep() {
	if time.Duration(l.origin()-l.began.Load()).Abs() < steady {
		return
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	l.moveAlong()
}

// origin is when this replica began, in nanoseconds, as its clock has it now.
func (l *Live) origin() int64 { return l.options.Now().UnixNano() - int64(l.options.Uptime()) }

// moveAlong is heedStep for a caller that holds changing.
func (l *Live) moveAlong() {
	origin := l.origin()
	step := time.Duration(origin - l.began.Load()).Round(time.Millisecond)
	if step.Abs() < steady {
		return
	}
	l.began.Store(origin)
	skew := l.skew() - step
	if skew.Abs() < tolerated {
		skew = 0
	}
	l.offset.Store(int64(skew))
	index := l.index.Load()
	for _, c := range index.connections {
		c.shift(step)
	}
	for _, p := range index.providers {
		p.shift(step)
	}
	l.options.Log.WithField("by", step.String()).Warn("this clock was set; what is out is out for as long as before")
}

// shift moves everything that is held of the connection.
func (c *connection) shift(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durable, c.provisional, c.backoff = c.durable.Shift(d), c.provisional.Shift(d), c.backoff.Shift(d)
	c.local = resilience.Connection{Lockouts: c.local}.Shift(d).Lockouts
	if !c.applied.IsZero() {
		c.applied = c.applied.Add(d)
	}
	c.refresh()
}

// shift moves everything that is held of the provider.
func (p *provider) shift(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.durable, p.state, p.window = p.durable.Shift(d), p.state.Shift(d), p.window.Shift(d)
	p.set(p.breaker.Shift(d))
}

// follow takes in how far the shared clock was last seen ahead of ours.
func (l *Live) follow(skew time.Duration) {
	used, kept := l.skew(), steady
	if used == 0 {
		kept = tolerated
	}
	if (skew - used).Abs() < kept {
		return
	}
	if skew.Abs() < tolerated {
		skew = 0
	}
	l.offset.Store(int64(skew.Round(time.Millisecond)))
	log := l.options.Log.WithField("ahead", skew.Round(time.Millisecond).String())
	if skew == 0 {
		log.Info("this clock and the database's agree again")
		return
	}
	log.Warn("the database's clock is ahead of this one, or behind; shared times are shifted")
}

// skew is how far the shared clock is ahead of ours.
func (l *Live) skew() time.Duration { return time.Duration(l.offset.Load()) }
