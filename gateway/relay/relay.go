// Package relay is the life of one request, in order: plan, attempt, answer or stream,
// settle, explain. Whatever happens, every attempt is settled exactly once and every request
// is booked exactly once.
package relay

import (
	"context"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/gateway/dialect/openai"
	"omniroute/gateway/dialect/wire"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// Options are what a Relay is made of.
type Options struct {
	Health     Health
	Upstream   Upstream
	Ledger     Ledger
	Log        *logrus.Entry
	Registerer prometheus.Registerer
	// Renewals get connections new credentials; nil leaves them with what they have.
	Renewals *Renewals
	// Rand spreads the waits before a retry; nil means math/rand/v2.
	Rand func() uint64
}

// Relay serves chat requests from the catalog's targets. It is safe for concurrent use.
type Relay struct {
	health   Health
	upstream Upstream
	ledger   Ledger
	renewals *Renewals
	log      *logrus.Entry
	rand     func() uint64
	metrics  *metrics
	inFlight inFlight
	closing  chan struct{} // closed when a drain begins
	waiting  atomic.Int64  // requests that wait for a target
	seats    int64         // how many may
}

// New makes a Relay and registers its metrics.
func New(o Options) *Relay {
	if o.Rand == nil {
		o.Rand = rand.Uint64
	}
	r := &Relay{
		health:   o.Health,
		upstream: o.Upstream,
		ledger:   o.Ledger,
		renewals: o.Renewals,
		log:      o.Log,
		rand:     o.Rand,
		closing:  make(chan struct{}),
		seats:    maxWaiting,
	}
	r.metrics = newMetrics(o.Registerer, r.waiting.Load)
	return r
}

// Request is one client request, authenticated and peeked. Body is never changed.
type Request struct {
	ID       models.RequestID
	ClientID string // what the client calls the request, if it does; it need not be unique
	Key      *catalog.KeyView
	Chat     *wire.Chat
	Body     []byte
	Started  time.Time
}

// run is a request on its way.
type run struct {
	*Relay
	*Request
	w   http.ResponseWriter
	out *http.ResponseController

	snapshot *catalog.Snapshot
	route    *catalog.Route
	limits   catalog.Limits
	pool     []routing.Candidate   // every target the key may use, with the exclusion it had last
	trials   []trial               // attempts, in order
	begun    int                   // how many of them came before the plan at hand
	renewed  []models.ConnectionID // whose credentials this request has had renewed, or tried to
	spent    spent
	retrying bool
	waits    waits

	committed     bool
	writeDeadline time.Time
	result        result
	breaker       shutdownBreaker
}

// trial is one attempt that failed or served.
type trial struct {
	target  models.Target
	verdict failure.Verdict
	served  bool
	renewed bool // it failed with credentials that have been renewed
}

// Serve answers a request through w. A non-nil error means that nothing was written yet and
// the caller owes the client that answer; the headers that describe it are already set on w.
func (r *Relay) Serve(ctx context.Context, req *Request, w http.ResponseWriter) (refusal *models.Error) {
	run := &run{Relay: r, Request: req, w: w, out: http.NewResponseController(w)}
	r.metrics.inFlight.Inc()
	defer r.metrics.inFlight.Dec()
	defer func() { run.book(refusal) }()
	if !r.inFlight.enter(run) {
		return run.shuttingDown()
	}
	defer r.inFlight.leave(run)
	defer func() {
		if cause := recover(); cause != nil {
			refusal = run.panicked(cause)
		}
	}()

	return run.serve(ctx)
}

// walk tries the targets of a plan in order until one has served, no other could do better, or
// none is left: then it is exhausted and has answered nothing. When all failed, a combo's
// maxRetries walks again over those that may recover at once.
func (r *run) walk(ctx context.Context, plan routing.Plan) (refusal *models.Error, exhausted bool) {
	for round := 0; ; round++ {
		for i := range plan.Order {
			if len(r.trials) >= r.limits.MaxAttempts {
				return nil, true
			}
			if r.isSpent(&plan.Order[i]) {
				continue
			}
			switch r.try(ctx, &plan.Order[i]) {
			case endServed, endBroken:
				return nil, false
			case endFinal:
				return r.finalFailure(), false
			case endClientGone:
				return r.clientGone(), false
			case endShutdown:
				return r.shuttingDown(), false
			case endKeptOut, endFailed:
			}
		}
		if len(r.trials) == r.begun || round >= r.retries() {
			return nil, true
		}
		again, wait := r.planRetry(time.Now())
		if len(again.Order) == 0 {
			return nil, true
		}
		if !r.pause(ctx, wait, nil) {
			return r.interrupted(), false
		}
		plan = again
	}
}

// isSpent reports whether this request has learned that the candidate is out with others, or
// has used up the candidate itself: another leg may name the same target.
func (r *run) isSpent(c *routing.Candidate) bool {
	if r.spent.covers(c.Target, r.family(c.Target.Model)) {
		return true
	}
	if r.retrying {
		return false
	}
	return r.lastTrial(c.Target) != nil
}

// lastTrial is the latest attempt on a target under the plan at hand; nil when there was none.
func (r *run) lastTrial(target models.Target) *trial {
	for i := len(r.trials) - 1; i >= r.begun; i-- {
		if r.trials[i].target == target {
			return &r.trials[i]
		}
	}
	return nil
}

// pause waits and reports whether the client and we lasted. Once closing is closed, we do not.
func (r *run) pause(parent context.Context, wait time.Duration, closing <-chan struct{}) bool {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	r.breaker.guard(cancel)
	defer r.breaker.guard(nil)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	case <-closing:
		r.breaker.trip()
		return false
	}
}

// interrupted says why a request ended between attempts.
func (r *run) interrupted() *models.Error {
	if r.breaker.tripped() {
		return r.shuttingDown()
	}
	return r.clientGone()
}

// panicked turns a defect of ours into an honest answer. http.ErrAbortHandler is net/http's
// own way to hang up and goes on.
func (r *run) panicked(cause any) *models.Error {
	failed := models.Errorf(models.CodeInternal, "The gateway failed on this request; its log says more under %s.", r.ID)
	r.result.status, r.result.reason = failed.Status(), models.ReasonUnknown
	if cause == http.ErrAbortHandler { //nolint:errorlint // panics with the very value
		panic(cause)
	}
	r.log.WithField("request", r.ID).WithField("panic", cause).Error("relay panicked\n" + string(debug.Stack()))
	if !r.committed {
		return failed
	}
	if r.Chat.Stream {
		r.write(openai.ErrorEvent(failed))
		r.flush()
	}
	return nil
}
