package live

import (
	"context"
	"fmt"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// Check says why a target is out now, or how far behind it goes: its provider is DEGRADED, or
// it is just back from a cooldown and another request has been trying it for a while. Of several causes it names
// the one that lasts longest. Requests to combos also heed the provider cooldown.
func (l *Live) Check(conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (*routing.Exclusion, routing.Rank) {
	c := l.index.Load().connections[conn.ID]
	if c == nil || c.provider.id != model.Provider { // since the caller took its snapshot
		return &routing.Exclusion{Reason: models.ReasonUnavailable}, routing.RankFull
	}
	return l.check(c, conn, model, combo, now)
}

func (l *Live) check(c *connection, conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (*routing.Exclusion, routing.Rank) {
	if conn.Disabled {
		return &routing.Exclusion{Reason: models.ReasonDisabled}, routing.RankFull
	}
	var out *routing.Exclusion
	rank := routing.RankFull
	if hot := c.hot.Load(); hot != nil {
		out, rank = l.checkConnection(c, hot, conn, model, combo, now)
	}
	if c.provider.calm.Load() == nil {
		held, behind := c.provider.check(combo, now)
		out, rank = longer(out, held), max(rank, behind)
	}
	if out == nil && c.full(conn.MaxConcurrent) {
		out = &routing.Exclusion{Reason: models.ReasonConcurrency}
	}
	if out != nil {
		return out, routing.RankFull
	}
	return nil, rank
}

// checkConnection looks at what is known against a connection and a model on it.
func (l *Live) checkConnection(c *connection, hot *hot, conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (out *routing.Exclusion, rank routing.Rank) {
	standing := conn.Policy.Standing(hot.Cooldown, now)
	switch {
	case standing.Phase.Terminal():
		return &routing.Exclusion{Reason: models.Reason(standing.Phase)}, routing.RankFull
	case standing.Phase == models.PhaseCooling:
		out = routing.Timed(models.ReasonConnCooldown, standing.Reason, standing.Until)
	}
	gated := combo && conn.Provider.Gate.Enabled && !conn.Policy.NoCooldown
	if backoff := hot.backoff.Standing(now); gated && backoff.Phase == models.PhaseCooling {
		out = longer(out, routing.Timed(models.ReasonProviderCooldown, backoff.Reason, backoff.Until))
	}
	family := l.family(model)
	if lock, standing := hot.Locked(model.Model, family, now); lock != nil && standing.Phase == models.PhaseCooling {
		out = longer(out, locked(lock, standing))
	}
	first, rank := c.checkTrials(hot, hot.onTrial(conn, model.Model, family, now), now)
	return longer(out, first), rank
}

func locked(lock *resilience.Lockout, s resilience.Standing) *routing.Exclusion {
	out := routing.Timed(models.ReasonModelCooldown, s.Reason, s.Until)
	if lock.Scope == models.LockFamily {
		out.Detail = fmt.Sprintf("%s of the model family %s", s.Reason, lock.Name)
	}
	return out
}

// longer is the exclusion that lasts longer; either may be nil.
func longer(a, b *routing.Exclusion) *routing.Exclusion {
	if b != nil && b.Outlasts(a) {
		return b
	}
	return a
}

// Admit gives the right to one attempt: it checks again, takes the breaker's ticket, at
// half-open the probe that all replicas share, and one of the connection's slots. The first
// attempt after a cooldown or a lockout becomes its trial. What counts is the catalog of now,
// not the one that the caller planned by.
func (l *Live) Admit(ctx context.Context, planned *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (Pass, *routing.Exclusion) {
	c := l.index.Load().connections[planned.ID]
	if c == nil || c.provider.id != model.Provider {
		return nil, &routing.Exclusion{Reason: models.ReasonUnavailable}
	}
	// The era first: credentials arrive before the era that they begin, so an attempt that is
	// said to be of an era never carries the credentials of the one before.
	era := c.era.Load()
	conn := c.view.Load()
	if out, _ := l.check(c, conn, model, combo, now); out != nil {
		return nil, out
	}
	if !c.takeSlot(conn.MaxConcurrent) {
		return nil, &routing.Exclusion{Reason: models.ReasonConcurrency}
	}
	p := &pass{live: l, connection: c, view: conn, era: era, model: model, dispatched: c.after(now)}
	if out := l.admit(ctx, p, now); out != nil {
		p.release()
		return nil, out
	}
	return p, nil
}

// admit takes what an attempt needs beside its slot; the attempt gives back what it has got.
func (l *Live) admit(ctx context.Context, p *pass, now time.Time) (out *routing.Exclusion) {
	c := p.connection
	if hot := c.hot.Load(); hot != nil {
		if p.tries, out = c.goFirst(hot, hot.onTrial(p.view, p.model.Model, l.family(p.model), now), now); out != nil {
			return out
		}
	}
	if calm := c.provider.calm.Load(); calm != nil {
		p.ticket, p.ticket.Dispatched = calm.ticket, after(now, calm.heard)
		return nil
	}
	if p.triesHold, out = c.provider.goFirst(now); out != nil {
		return out
	}
	return l.takeTicket(ctx, p, now)
}
