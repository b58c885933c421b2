package live

import (
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/models"
	"omniroute/models/resilience"
)

// holdProvider keeps every request away from a provider because a rule says that a failure is
// about all of it. Nothing ends for good with one.
func (l *Live) holdProvider(p *pass, f resilience.Failure) {
	pr := p.connection.provider
	pr.mu.Lock()
	f.At, f.Dispatched = millisecond(pr.after(f.At)), p.ticket.Dispatched
	next, changed := pr.state.Fail(f, pr.view.Load().Cooldown)
	if changed {
		pr.state = next
		pr.set(pr.breaker)
	}
	pr.mu.Unlock()
	if changed {
		l.logProvider(pr, next, f.At)
		l.offerProvider(pr, next, f.At)
	}
}

// remember takes an attempt's outcome into the window of failures, and reports whether a
// cooldown of the provider began or ended with it. While the gate keeps requests away nothing is
// counted, so that what still fails does not move its end. Callers hold the mutex and set the
// breaker next.
func (p *provider) remember(r resilience.Result, dispatched time.Time, policy resilience.WindowPolicy, now time.Time) (changed bool) {
	switch r.Outcome {
	case resilience.Succeeded:
		p.window = p.window.Succeed()
		if latest := p.after(now); dispatched.After(latest) { // the clock was set back
			dispatched = latest
		}
		p.state, changed = p.state.Succeed(dispatched)
	case resilience.Failed:
		if !p.state.Gate.Dormant(now) {
			return false
		}
		window, tripped := p.window.Fail(now, policy)
		if tripped {
			p.state, changed = p.state.Trip(resilience.Failure{At: millisecond(p.after(now)), Reason: r.Reason, Status: r.Status}, policy)
		}
		if !tripped || changed { // what shuts nothing is not forgotten
			p.window = window
		}
	}
	return changed
}

// standings are what keeps requests away from a provider beside its breaker.
type standings struct{ hold, gate models.Phase }

// out says which cooldowns of the provider run. Callers hold the mutex.
func (p *provider) out(now time.Time) standings {
	return standings{p.state.Hold.Standing(now).Phase, p.state.Gate.Standing(now).Phase}
}

func (l *Live) logProvider(p *provider, state resilience.Provider, now time.Time) {
	log := l.options.Log.WithField("provider", p.id)
	calm := true
	for kind, s := range map[string]resilience.Standing{"hold": state.Hold.Standing(now), "gate": state.Gate.Standing(now)} {
		if s.Phase == models.PhaseCooling {
			calm = false
			log.WithFields(logrus.Fields{
				"kind": kind, "reason": s.Reason, "status": s.Status, "until": s.Until.Format(time.RFC3339Nano),
			}).Warn("provider cools down")
		}
	}
	if calm {
		log.Info("provider is back from its cooldown")
	}
}
