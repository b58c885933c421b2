package live

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

const (
	// claimTimeout bounds what a probe waits for the database; after it each replica decides
	// for itself.
	claimTimeout = 250 * time.Millisecond
	// releaseTimeout bounds the release of a probe, which nobody waits for.
	releaseTimeout = 2 * time.Second
	// leastHold keeps a replica that lost a probe from asking again at once.
	leastHold = 100 * time.Millisecond
	// unsureHold is how long a replica whose question was not answered in time waits before it
	// asks once more: a database that is only slow may have given the probe to another.
	unsureHold = time.Second
)

// provider is one provider's breaker and the cooldowns of the provider as a whole.
type provider struct {
	id      models.ProviderID
	view    atomic.Pointer[catalog.ProviderView]
	calm    atomic.Pointer[calm] // nil means: ask under the mutex
	repeats repeats              // guarded by the replica's changing

	mu      sync.Mutex
	breaker resilience.Breaker
	state   resilience.Provider // what all replicas know or must come to know; its opening is the breaker's
	window  resilience.Window   // the failures that may shut the gate
	probing *pass               // the latest probe under way here
	trial   *trial              // the first attempt after the hold, while it is under way
	unsure  bool                // the last question for the shared probe was not answered in time
	seen    rowSeen
	durable resilience.Provider // as the row has it
}

// calm is what every attempt gets while the breaker is closed, nothing is counted and no cooldown
// is left to clear.
type calm struct {
	ticket resilience.Ticket
	heard  int64 // the provider's latest evidence, as after takes it
}

func newProvider(id models.ProviderID) *provider {
	p := &provider{id: id}
	p.set(resilience.Breaker{})
	return p
}

// set replaces the breaker and the calm ticket, which also depends on the cooldowns and the
// window. Callers hold the mutex.
func (p *provider) set(b resilience.Breaker) {
	p.breaker, p.state.Opening = b, b.Opening()
	if !b.Quiet() || !p.state.Settled() || !p.window.Empty() {
		p.calm.Store(nil)
		return
	}
	_, ticket, _, _ := b.Admit(resilience.BreakerPolicy{}, time.Time{}) // of a closed breaker: no policy, no clock
	p.calm.Store(&calm{ticket, p.state.Evidence().UnixMilli()})
}

// after is a time behind everything this replica has heard of the provider. Callers hold the
// mutex.
func (p *provider) after(now time.Time) time.Time {
	return after(now, p.state.Evidence().UnixMilli())
}

// check asks the breaker and the cooldowns without taking anything.
func (p *provider) check(combo bool, now time.Time) (*routing.Exclusion, routing.Rank) {
	view := p.view.Load()
	p.mu.Lock()
	breaker, hold, gate, trial := p.breaker, p.state.Hold.Standing(now), p.state.Gate.Standing(now), p.trial
	p.mu.Unlock()
	var out *routing.Exclusion
	if _, _, ok, retryAt := breaker.Admit(view.Breaker, now); !ok {
		out = outProvider(breaker.Opening(), retryAt)
	}
	if hold.Phase != models.PhaseReady {
		out = longer(out, routing.Timed(models.ReasonProviderCooldown, hold.Reason, hold.Until))
	}
	if combo && view.Gate.Enabled && gate.Phase != models.PhaseReady {
		out = longer(out, routing.Timed(models.ReasonProviderCooldown, gate.Reason, gate.Until))
	}
	tried := hold.Trial && trial != nil
	if tried && trial.alone(now) {
		out = longer(out, routing.Timed(models.ReasonProviderCooldown, hold.Reason, trial.ends()))
	}
	switch {
	case out != nil:
		return out, routing.RankFull
	case tried:
		return nil, routing.RankTrial
	case breaker.State(now) == resilience.BreakerDegraded:
		return nil, routing.RankDegraded
	default:
		return nil, routing.RankFull
	}
}

func outProvider(o resilience.Opening, retryAt time.Time) *routing.Exclusion {
	return routing.Timed(models.ReasonCircuitOpen, o.Reason, retryAt)
}

// takeTicket asks the breaker for an attempt. A probe must also be won against the other
// replicas; while that is asked, the place is taken here, so this replica asks once.
func (l *Live) takeTicket(ctx context.Context, p *pass, now time.Time) *routing.Exclusion {
	pr := p.connection.provider
	policy := pr.view.Load().Breaker
	pr.mu.Lock()
	next, ticket, ok, retryAt := pr.breaker.Admit(policy, now)
	opening := next.Opening()
	if ok {
		pr.set(next)
		ticket.Dispatched = pr.after(now)
		if ticket.Probe {
			pr.probing = p
		}
	}
	pr.mu.Unlock()
	if !ok {
		return outProvider(opening, retryAt)
	}
	p.ticket = ticket
	if !ticket.Probe || l.options.Probes == nil {
		return nil
	}
	return l.claimProbe(ctx, p, opening, policy)
}

// claimProbe makes the probe ours across replicas. A client that leaves meanwhile does not
// cut the question short: its answer must be known to be given back.
func (l *Live) claimProbe(ctx context.Context, p *pass, opening resilience.Opening, policy resilience.BreakerPolicy) *routing.Exclusion {
	pr := p.connection.provider
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	won, heldFor, err := l.options.Probes.ClaimProbe(ctx, pr.id, l.options.Replica, opening.Shift(l.skew()), policy.ProbeTimeout)
	log := l.options.Log.WithField("provider", pr.id)
	again := pr.answered(err == nil || ctx.Err() == nil)
	switch {
	case again:
		l.metrics.probes.WithLabelValues(probeUnsure).Inc()
		heldFor = unsureHold
	case err != nil:
		l.metrics.probes.WithLabelValues(probeLocal).Inc()
		log.WithError(err).Debug("probing without the other replicas' consent")
		p.claimed = true // the claim may have been made before the answer was lost
		return nil
	case won:
		l.metrics.probes.WithLabelValues(probeWon).Inc()
		log.Info("probing a provider whose breaker was open")
		p.claimed = true
		return nil
	default:
		l.metrics.probes.WithLabelValues(probeLost).Inc()
	}
	now := l.options.Now()
	until := now.Add(max(heldFor, leastHold))
	pr.mu.Lock()
	defer pr.mu.Unlock()
	if pr.probing == p {
		pr.probing = nil
	}
	if pr.breaker.State(now) != resilience.BreakerHalfOpen {
		// The other replica's verdict came in while we asked.
		next, ticket, ok, retryAt := pr.breaker.Admit(policy, now)
		if !ok {
			return outProvider(pr.breaker.Opening(), retryAt)
		}
		pr.set(next)
		p.ticket, p.ticket.Dispatched = ticket, pr.after(now)
		return nil
	}
	pr.set(pr.breaker.YieldProbe(until))
	return outProvider(pr.breaker.Opening(), until)
}

// answered notes whether the question for the shared probe was answered in time, and reports
// whether to ask once more: one silence may be a slow database, two are one that is away.
func (p *provider) answered(inTime bool) (again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again = !inTime && !p.unsure
	p.unsure = again
	return again
}

// releaseProbe gives the row's probe back before its lease ends. Nobody waits for it.
func (l *Live) releaseProbe(pr *provider) {
	l.releasing.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
		defer cancel()
		if err := l.options.Probes.ReleaseProbe(ctx, pr.id, l.options.Replica); err != nil {
			l.options.Log.WithError(err).WithField("provider", pr.id).Debug("a probe's place is freed by its lease")
		}
	})
}

// report hands an attempt's outcome to the breaker and the window. A success or an ignored
// outcome at a calm provider takes no lock.
func (l *Live) report(p *pass, r resilience.Result, now time.Time) {
	pr := p.connection.provider
	if !p.ticket.Probe && r.Outcome != resilience.Failed && pr.calm.Load() != nil {
		return
	}
	view := pr.view.Load()
	r.Connection = p.connection.id
	if r.Outcome == resilience.Failed {
		r.UsableConnections = l.usable(view, now)
	}
	pr.mu.Lock()
	before := pr.breaker.State(now)
	next, changed := pr.breaker.Report(p.ticket, r, view.Breaker, now)
	gated := pr.remember(r, p.ticket.Dispatched, view.Gate, now)
	pr.set(next)
	state, after := pr.state, next.State(now)
	latest := pr.probing == p
	if latest {
		pr.probing = nil
	}
	pr.mu.Unlock()
	// A failed probe keeps its place in the row until the lease ends: another replica that has
	// not heard of the verdict yet would probe again. One that is late has no place to give back.
	p.claimed = p.claimed && latest && r.Outcome != resilience.Failed
	if before != after {
		l.logBreaker(pr, before, after, next.Opening())
	}
	if gated {
		l.logProvider(pr, state, now)
	}
	if changed || gated {
		l.offerProvider(pr, state, millisecond(now))
	}
}

// usable counts the connections whose failures could be expected while the breaker decides: one
// that is out for longer than the breaker would stay open brings none, so that waiting for it
// to confirm the provider's failure would be waiting for nobody.
func (l *Live) usable(view *catalog.ProviderView, now time.Time) int {
	connections := l.index.Load().connections
	n := 0
	for _, conn := range view.Connections {
		if conn.Disabled {
			continue
		}
		if c := connections[conn.ID]; c != nil {
			if hot := c.hot.Load(); hot != nil && outBeyond(conn.Policy.Standing(hot.Cooldown, now), now.Add(view.Breaker.ResetTimeout)) {
				continue
			}
		}
		n++
	}
	return n
}

func outBeyond(s resilience.Standing, end time.Time) bool {
	return s.Phase.Terminal() || s.Phase == models.PhaseCooling && s.Until.After(end)
}

func (l *Live) logBreaker(p *provider, from, to resilience.BreakerState, o resilience.Opening) {
	log := l.options.Log.WithField("provider", p.id).WithField("from", from).WithField("to", to)
	if to == resilience.BreakerOpen {
		l.metrics.openings.WithLabelValues(string(p.id)).Inc()
		log.WithField("reason", o.Reason).WithField("status", o.Status).WithField("cycle", o.Cycle).
			WithField("until", o.Until.Format(time.RFC3339Nano)).Warn("breaker opened")
		return
	}
	log.Info("breaker changed")
}
