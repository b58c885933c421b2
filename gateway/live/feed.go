package live

import (
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// rowSeen is the row that an entity's state was last taken from.
type rowSeen struct {
	read  bool
	stamp models.Stamp
	skew  time.Duration // by which its instants were brought to our clock
}

// newer reports that r outranks another row. Before a row was read, none does.
func (r rowSeen) newer(o rowSeen) bool { return r.read && r.stamp.After(o.stamp) }

// outdates reports that r is of a later era than the row that is there now. An era never ends
// backwards: the row that was read has gone, and the one that is there is another.
func (r rowSeen) outdates(stamp models.Stamp) bool { return r.read && stamp.Era < r.stamp.Era }

// StatesChanged takes published rows in: the newest stamp of an entity wins. A complete read
// also forgets the rows that have vanished and offers again what no verdict has considered
// yet, in case its message was lost.
func (l *Live) StatesChanged(states *catalog.States) {
	l.changing.Lock()
	defer l.changing.Unlock()
	l.moveAlong()
	l.follow(states.Skew)
	now := l.options.Now()
	asked := states.Asked
	if asked.IsZero() || asked.After(now) {
		asked = now
	}
	index := l.index.Load()
	seen := make(map[*connection]bool, len(states.Connections))
	for _, row := range states.Connections {
		if c := index.connections[row.Connection]; c != nil {
			seen[c] = true
			if states.Complete && c.row.outdates(row.Stamp) {
				c.forgetRow()
			}
			l.adoptConnection(c, row, asked, now)
		}
	}
	seenProviders := make(map[*provider]bool, len(states.Providers))
	for _, row := range states.Providers {
		if p := index.providers[row.Provider]; p != nil {
			seenProviders[p] = true
			if states.Complete && p.seen.outdates(row.Stamp) {
				p.forgetRow()
			}
			l.adoptProvider(p, row, asked, now)
		}
	}
	if !states.Complete {
		return
	}
	l.synced = true
	for _, c := range index.connections {
		if !seen[c] {
			c.forgetRow()
		}
		c.prune(now)
		l.offerAgain(c, now)
	}
	for _, p := range index.providers {
		if p.seen.read && !seenProviders[p] {
			p.forgetRow()
		}
		l.offerProviderAgain(p, now)
	}
}

// FeedHealth notes whether the feed reads the database.
func (l *Live) FeedHealth(err error) {
	before := l.feed.Load()
	next := &FeedReport{OK: err == nil, Since: before.Since}
	if err != nil {
		next.Error = err.Error()
	}
	if next.OK != before.OK || before.Since.IsZero() {
		next.Since = l.options.Now()
	}
	l.feed.Store(next)
}

// adoptConnection takes a row that is newer than what we hold.
func (l *Live) adoptConnection(c *connection, row catalog.ConnectionState, asked, now time.Time) {
	skew := l.skew()
	state := row.State.Shift(-skew)
	state.Cooldown.Era, state.Cooldown.Until = row.Era, deadline(state.Cooldown.Until, row.Remaining, asked, now)
	c.mu.Lock()
	read := rowSeen{true, row.Stamp, skew}
	if c.row.newer(read) || c.row == read && !stepped(c.durable.Cooldown.Until, state.Cooldown.Until) {
		c.mu.Unlock()
		return
	}
	before := c.current()
	newEra := row.Era > before.Era()
	c.row, c.durable, c.applied = read, state, row.AppliedThrough
	if !c.applied.IsZero() {
		c.applied = c.applied.Add(-skew)
	}
	// What the row has seen is the row's from now on, by whatever clock it is told. A later era than
	// the row's was that of a row that has gone.
	if c.provisional.Era() != state.Era() || resilience.SeenConnection(state, c.provisional, now) {
		c.provisional = resilience.Connection{}
	}
	c.leave(before.Era())
	after := c.refresh()
	c.mu.Unlock()

	if after.Era() == before.Era() && len(after.Lockouts) == resilience.MaxLockouts {
		l.countDropped(before.Out(now), after)
	}
	if worthALine(before.Cooldown.Standing(now), after.Cooldown.Standing(now)) {
		l.logConnection(c, after.Cooldown.Standing(now))
	}
	// A workflow of the era before may still run: `omniroute apply` writes the row alone. What
	// happened while no replica ran, such a workflow finds by itself.
	if newEra && l.synced {
		began := state.Cooldown.Began
		l.offerConnection(c, resilience.Connection{}.Enter(state.Era(), began), began)
	}
}

// clockStep is how far a deadline may be from the one that the database's clock tells before
// we believe that some clock was set.
const clockStep = time.Second

// deadline is until, unless the time that the database says remains is clearly another: then
// the row was written by a clock that was wrong. What remained did so at some moment between the
// question and now, which may be seconds; it is counted from the question, so that a slow answer
// makes nothing longer.
func deadline(until time.Time, remaining time.Duration, asked, now time.Time) time.Time {
	if until.IsZero() {
		return until
	}
	earliest, latest := asked.Add(remaining), now.Add(remaining)
	if earliest.Sub(until) >= clockStep || until.Sub(latest) >= clockStep {
		return millisecond(earliest)
	}
	return until
}

// worthALine leaves out deadlines that came back a few milliseconds off.
func worthALine(before, after resilience.Standing) bool {
	return before.Phase != after.Phase || before.Reason != after.Reason || before.Level != after.Level || stepped(before.Until, after.Until)
}

func stepped(a, b time.Time) bool { return a.Sub(b).Abs() >= clockStep }

// forgetRow lets go of a row that has been deleted.
func (c *connection) forgetRow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	era := c.shared().Era()
	c.row, c.durable, c.applied = rowSeen{}, resilience.Connection{}, time.Time{}
	c.leave(era)
	c.refresh()
}

// forgetRow lets go of a row that has been deleted, and with it of all that is known of the
// provider: one that comes back is another.
func (p *provider) forgetRow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.durable = rowSeen{}, resilience.Provider{}
	p.state, p.window = resilience.Provider{}, resilience.Window{}
	p.set(p.breaker.Forget())
}

// prune forgets the lockouts that ended so long ago that they are of no use to anybody, so that
// the connection is healthy again though nobody has asked for their models since.
func (c *connection) prune(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.durable.Lockouts) + len(c.provisional.Lockouts) + len(c.local)
	if before == 0 {
		return
	}
	c.durable, c.provisional = c.durable.Prune(now), c.provisional.Prune(now)
	c.local = own(c.durable, c.local).Prune(now).Lockouts
	if len(c.durable.Lockouts)+len(c.provisional.Lockouts)+len(c.local) < before {
		c.refresh()
	}
}

// offerAgain repeats what the row's verdict has not seen.
func (l *Live) offerAgain(c *connection, now time.Time) {
	news, owed := c.unpublished(now)
	if c.repeats.due(owed, news.Evidence(), l.options.Uptime()) {
		l.offerConnection(c, news, news.Evidence())
	}
}

// A message may have been lost, which one repetition at the next complete read makes good. What
// no row says after several of them, nobody publishes: no worker runs.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// repeats are an entity's offers of one thing again.
type repeats struct {
	of    time.Time     // the evidence that is owed
	pause time.Duration // until the next, from the latest
	next  time.Duration // uptime; a clock that is set does not matter
}

// due reports whether to offer again at an uptime what is owed, and counts it as offered.
// Repetitions of the same evidence come further and further apart.
func (r *repeats) due(owed bool, evidence time.Time, uptime time.Duration) bool {
	switch {
	case !owed:
		*r = repeats{}
		return false
	case !r.of.Equal(evidence):
		*r = repeats{of: evidence}
	case uptime < r.next:
		return false
	}
	r.pause = min(max(2*r.pause, firstPause), longestPause)
	r.next = uptime + r.pause
	return true
}

// unpublished is what the row does not say, and whether it owes it to the other replicas: its
// verdict has not seen all of it, and it is of use to somebody because the row or this replica
// has something that lasts.
func (c *connection) unpublished(now time.Time) (news resilience.Connection, owed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if resilience.SeenConnection(c.durable, c.provisional, now) {
		return resilience.Connection{}, false
	}
	shared := c.shared()
	counts := shared.Rejections.Count > 0 || shared.Expiries.Count > 0
	return shared.News(c.durable), counts || !c.durable.Settled() || !shared.Dormant(now)
}

// adoptProvider merges what another replica or an operator knows of a provider into ours.
func (l *Live) adoptProvider(p *provider, row catalog.ProviderState, asked, now time.Time) {
	skew := l.skew()
	state := row.State.Shift(-skew)
	state.Opening.Era, state.Opening.Until = row.Era, deadline(state.Opening.Until, row.Remaining, asked, now)
	p.mu.Lock()
	read := rowSeen{true, row.Stamp, skew}
	if p.seen.newer(read) || p.seen == read {
		p.mu.Unlock()
		return
	}
	p.seen, p.durable = read, state
	before, held := p.breaker.State(now), p.out(now)
	if row.Era > p.state.Era() {
		p.window = resilience.Window{}
	}
	joined := resilience.JoinProvider(p.state, state)
	p.state = joined
	p.set(p.breaker.Merge(joined.Opening))
	after, holds := p.breaker.State(now), p.out(now)
	p.mu.Unlock()
	if before != after {
		l.logBreaker(p, before, after, joined.Opening)
	}
	if held != holds {
		l.logProvider(p, joined, now)
	}
}

// offerProviderAgain repeats what the row does not have.
func (l *Live) offerProviderAgain(p *provider, now time.Time) {
	state, owed := p.unpublished(now)
	if p.repeats.due(owed, state.Evidence(), l.options.Uptime()) {
		l.offerProvider(p, state, state.Evidence())
	}
}

// unpublished is what is known of the provider, and whether its row owes it to the other
// replicas.
func (p *provider) unpublished(now time.Time) (state resilience.Provider, owed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	state = p.state
	if resilience.SeenProvider(p.durable, state) {
		return state, false
	}
	rowIsOut := p.durable.Opening.State(now) != resilience.BreakerClosed || !p.durable.Hold.Settled() || !p.durable.Gate.Settled()
	weAreOut := state.Opening.State(now) == resilience.BreakerOpen || !state.Hold.Dormant(now) || !state.Gate.Dormant(now)
	return state, rowIsOut || weAreOut
}
