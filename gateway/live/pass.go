package live

import (
	"sync/atomic"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// pass is one attempt under way.
type pass struct {
	live       *Live
	connection *connection
	view       *catalog.ConnectionView // as it was admitted
	era        int64                   // of the connection then
	model      models.ModelRef
	dispatched time.Time
	ticket     resilience.Ticket
	tries      []resilience.LockKey // what it is the trial of
	triesHold  bool                 // it is the trial after the provider's hold
	claimed    bool                 // it may hold the probe in the provider's row
	ended      atomic.Bool
}

// Connection is what the attempt is to be sent with.
func (p *pass) Connection() *catalog.ConnectionView { return p.view }

// Succeeded clears what the attempt has disproved. With nothing to clear it takes no lock but that
// of the target's statistics, for a few additions, and sends nothing. An attempt of an older era, or with credentials that have been replaced, says
// nothing about the connection or its models, only about the provider.
func (p *pass) Succeeded(now time.Time) {
	if !p.end() {
		return
	}
	if p.connection.hot.Load() != nil {
		p.live.heedStep()
		p.live.succeedConnection(p, now)
	}
	p.noteSuccess(now)
	p.live.report(p, resilience.Result{Outcome: resilience.Succeeded}, now)
	p.release()
}

// Failed puts out what the verdict blames, the smallest thing that explains the failure, and
// charges the breaker when the verdict says so. A probe that failed for another reason than
// the provider's says nothing about the provider.
func (p *pass) Failed(v failure.Verdict, now time.Time) {
	if !p.end() {
		return
	}
	p.live.heedStep()
	p.noteFailure(&v, now)
	f := resilience.Failure{
		At: millisecond(now), Dispatched: p.dispatched,
		Reason: v.Reason, Status: v.UpstreamStatus, Terminal: v.Terminal, Fixed: v.Fixed, Hint: v.Hint,
		Jitter: p.live.jitter(), Token: p.view.TokenGeneration,
	}
	switch {
	case v.Address:
		if until := p.live.failConnection(p, f); !until.IsZero() {
			p.live.coolSiblings(p.connection, f, until)
		}
	case v.Scope == models.ScopeProvider:
		p.live.holdProvider(p, f)
	case v.Scope == models.ScopeConnection:
		p.live.failConnection(p, f)
	case v.Scope == models.ScopeModel:
		p.live.failModel(p, v, f)
	}
	outcome := resilience.Ignored
	if v.Trips {
		outcome = resilience.Failed
		p.live.backOff(p, f)
	}
	p.live.report(p, resilience.Result{Outcome: outcome, Reason: v.Reason, Status: v.UpstreamStatus}, now)
	p.release()
}

// Abandoned ends an attempt that says nothing; a probe's place is free again at once.
func (p *pass) Abandoned(now time.Time) {
	if !p.end() {
		return
	}
	p.live.report(p, resilience.Result{Outcome: resilience.Ignored}, now)
	p.release()
}

// sent is when the attempt was dispatched; a clock that was set back since makes it no later
// than now.
func (p *pass) sent(now time.Time) time.Time {
	if latest := p.connection.after(now); p.dispatched.After(latest) {
		return latest
	}
	return p.dispatched
}

// end admits the first ending only: a second one would free a slot that is somebody else's.
func (p *pass) end() bool {
	if p.ended.CompareAndSwap(false, true) {
		return true
	}
	p.live.options.Log.WithField("connection", p.connection.id).Error("an attempt was ended twice")
	return false
}

// release gives back what the attempt held, after its outcome has been applied: whoever takes
// the place next sees it.
func (p *pass) release() {
	if p.tries != nil {
		p.connection.tried(p.tries)
	}
	if p.triesHold {
		p.connection.provider.tried()
	}
	if p.claimed {
		p.live.releaseProbe(p.connection.provider)
	}
	p.connection.freeSlot()
}

// jitter is uniform in [-1, 1].
func (l *Live) jitter() float64 {
	return float64(int64(l.options.Rand()>>11))/(1<<52) - 1
}
