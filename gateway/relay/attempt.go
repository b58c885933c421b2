package relay

import (
	"context"
	"errors"
	"net/http"
	"time"

	"omniroute/gateway/dialect/openai"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// ending is how an attempt left the request. These are all the exits there are.
type ending int

const (
	endServed     ending = iota // the client has its answer
	endBroken                   // bytes had reached the client, which was told that the rest is missing
	endKeptOut                  // admission refused; nothing was sent
	endFailed                   // another target may do better
	endFinal                    // no other target would do better
	endClientGone               // the client left; nobody is blamed
	endShutdown                 // we are shutting down; nobody is blamed
)

// attempt is one upstream try.
type attempt struct {
	*run
	candidate *routing.Candidate
	conn      *catalog.ConnectionView
	settled   settlement
	sent      time.Time
	dog       *watchdog
	ctx       context.Context // ends with the client, a limit, a shutdown, or the attempt
	parent    context.Context // ends with the client
}

// attempt asks for admission, sends the request, and lets the answer through. It settles the
// pass exactly once on every way out, a panic included.
func (r *run) attempt(parent context.Context, c *routing.Candidate) ending {
	if r.over(parent) {
		return r.overBecause()
	}
	conn := r.snapshot.Connections[c.Target.Connection]
	started := time.Now()
	pass, out := r.health.Admit(parent, conn, c.Target.Model, r.isCombo(), started)
	if pass == nil {
		r.keptOut(c.Target, out)
		return endKeptOut
	}
	conn = pass.Connection()
	a := &attempt{run: r, candidate: c, conn: conn, parent: parent}
	a.settled = settlement{pass: pass, metrics: r.metrics, provider: c.Target.Model.Provider}
	defer a.settled.abandonUnsettled()

	limits := conn.Provider.Timeouts
	a.ctx, a.dog = watch(parent, failure.KindHeaderTimeout, limits.Headers, limits.Total)
	defer a.dog.stop()
	r.breaker.guard(a.dog.cancel)
	defer r.breaker.guard(nil)

	a.sent = time.Now()
	resp, signal := a.send()
	a.heard(resp, signal)
	if signal != nil {
		signal.Kind = a.orLimit(signal.Kind)
		return a.fail(signal)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing is left to learn from it
	if r.Chat.Stream {
		return a.stream(resp)
	}
	return a.answer(resp)
}

// heard hands on what the headers of an answer say of limits, whatever the answer is.
func (a *attempt) heard(resp *http.Response, signal *failure.Signal) {
	h := http.Header(nil)
	switch {
	case resp != nil:
		h = resp.Header
	case signal != nil:
		h = signal.Headers
	}
	if len(h) > 0 {
		a.settled.pass.Heard(h, time.Now())
	}
}

// used hands on what an answer took.
func (a *attempt) used(usage openai.Usage) {
	a.result.usage = usage
	if usage.Known {
		a.settled.pass.Used(usage.Input+usage.Output, time.Now())
	}
}

// keptOut notes an exclusion that admission found after the plan was made.
func (r *run) keptOut(target models.Target, out *routing.Exclusion) {
	if out == nil {
		out = &routing.Exclusion{Reason: models.ReasonUnavailable}
	}
	for i := range r.pool {
		if r.pool[i].Target == target {
			r.pool[i].Exclusion = out
		}
	}
}

// orLimit names a connection that broke by the limit of ours that broke it, if one did. An
// answer that had arrived by then stays what it is: its status, its headers and its hint say
// more than our limit.
func (a *attempt) orLimit(kind failure.Kind) failure.Kind {
	switch kind {
	case failure.KindConnect, failure.KindConnectTimeout, failure.KindReset, failure.KindClientGone:
		var limit limitReached
		if errors.As(context.Cause(a.ctx), &limit) {
			return failure.Kind(limit)
		}
	}
	return kind
}

// fail ends an attempt by what is known of its failure. The client's leaving and a shutdown
// show up as a broken connection, so they are asked first.
func (a *attempt) fail(signal *failure.Signal) ending {
	if a.over(a.parent) {
		return a.abandon()
	}
	now := time.Now()
	target := a.candidate.Target
	signal.Class = a.conn.Provider.Class
	signal.Rules = a.conn.Provider.Rules
	signal.PerModelQuota = a.conn.PerModelQuota
	signal.EgressShared = a.conn.Provider.EgressShared && !a.conn.Policy.NoCooldown
	signal.Model = target.Model.Model
	signal.Credential = failure.Credential(a.conn.APIKey.Reveal())
	signal.Committed = a.committed
	verdict := failure.Classify(*signal, now)
	renewed, excused := a.renew(&verdict)
	if renewed {
		return endRenewed
	}
	if a.over(a.parent) { // while it waited for new credentials
		return a.abandon()
	}
	if excused {
		a.settled.abandoned(now)
	} else {
		a.settled.failed(verdict, now)
	}
	a.trials = append(a.trials, trial{target: target, verdict: verdict})
	a.spent.learn(target, a.family(target.Model), &verdict)
	switch {
	case a.committed:
		a.result.status, a.result.reason = verdict.Code.Status(), verdict.Reason
		return a.breakOff(errorOf(&verdict))
	case verdict.Failover:
		return endFailed
	default:
		return endFinal
	}
}

// abandon ends an attempt that was going well or not yet going when the client left or we
// shut down.
func (a *attempt) abandon() ending {
	a.settled.abandoned(time.Now())
	a.trials = append(a.trials, trial{target: a.candidate.Target})
	end := a.overBecause()
	if !a.committed {
		return end
	}
	if end == endShutdown {
		closing := models.Errorf(models.CodeShuttingDown, "The gateway is shutting down; the answer is not complete.")
		a.result.status, a.result.reason = closing.Status(), models.ReasonUnavailable
		return a.breakOff(closing)
	}
	a.result.status, a.result.reason = models.CodeClientClosed.Status(), models.ReasonClientGone
	return endBroken
}

// over reports whether the client left or a shutdown ends the request.
func (r *run) over(client context.Context) bool {
	return client.Err() != nil || r.breaker.tripped()
}

func (r *run) overBecause() ending {
	if r.breaker.tripped() {
		return endShutdown
	}
	return endClientGone
}

// succeed settles an attempt whose answer was complete.
func (a *attempt) succeed() {
	now := time.Now()
	a.settled.succeeded(now)
	a.trials = append(a.trials, trial{target: a.candidate.Target, served: true})
}

// commit sends the head of the answer: from here on nothing is tried elsewhere.
func (a *attempt) commit(contentType string) {
	a.committed = true
	now := time.Now()
	a.result.firstContent = now.Sub(a.Started)
	a.settled.pass.FirstContent(now.Sub(a.sent), now)
	a.result.served = a.candidate.Target
	a.metrics.model(a.candidate.Target.Model).firstContent.Observe(a.result.firstContent.Seconds())
	header := a.w.Header()
	header["Content-Type"] = []string{contentType}
	a.describe(header, a.candidate)
	a.w.WriteHeader(http.StatusOK)
}

// write hands bytes to the client and reports whether it still takes them. A client that
// stops reading is given as long as a silent upstream is.
func (r *run) write(p []byte) bool {
	now := time.Now()
	patience := catalog.DefaultIdleTimeout
	if r.result.served.Connection != "" {
		patience = r.snapshot.Connections[r.result.served.Connection].Provider.Timeouts.Idle
	}
	if r.writeDeadline.Sub(now) < patience/2 {
		r.writeDeadline = now.Add(patience)
		// Not every writer has deadlines; one without cannot block on a socket either.
		_ = r.out.SetWriteDeadline(r.writeDeadline)
	}
	_, err := r.w.Write(p)
	return err == nil
}

// flush sends what was written and reports whether the client still takes it.
func (r *run) flush() bool {
	err := r.out.Flush()
	return err == nil || errors.Is(err, http.ErrNotSupported)
}
