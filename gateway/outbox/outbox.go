// Package outbox hands state changes to the durable side: bounded, coalescing and never in
// a request's way. A change that waits is merged with the next one of its entity, so what is
// sent is always the latest truth (design section 6).
package outbox

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/workflows/contract"
)

const (
	maxKeys      = 4096
	senders      = 4
	sendTimeout  = 2 * time.Second
	backoffFirst = 200 * time.Millisecond
	backoffMax   = 10 * time.Second
	pace         = 250 * time.Millisecond // at most one message per entity in this time
	drainLimit   = 5 * time.Second
)

// Change is what a replica now holds to be true of one entity.
type Change = contract.Change

// Options are the outbox's dependencies.
type Options struct {
	// Send delivers one change. It is given at most 2 s, and may be called again for a change
	// that did arrive.
	Send       func(context.Context, Change) error
	Log        logrus.FieldLogger
	Registerer prometheus.Registerer
	// Rand returns a value in [0, 1) that spreads the back-off; nil means a random one.
	Rand func() float64
}

// Stats is what health and metrics show of the outbox.
type Stats struct {
	Pending   int           // entities with something to send
	OldestAge time.Duration // of the change that has waited longest
	// Degraded says that changes do not arrive: a send failed and was not made good, or a
	// change has waited longer than one send may take.
	Degraded bool
}

// Outbox is made by New, started once and stopped once.
type Outbox struct {
	options Options
	metrics *metrics

	mu       sync.Mutex
	entries  map[string]*entry
	queue    queue // entries that no sender holds, soonest due first
	held     int   // entries that a sender holds
	failing  int   // entries whose latest send failed
	draining bool  // nothing more is accepted; a failed entry is given up

	wake    chan struct{} // one token: look at the queue again
	drained chan struct{} // closed when draining finds nothing left
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	start   sync.Once
	stop    sync.Once
}

// New makes an outbox that accepts changes at once and sends them after Start.
func New(options Options) *Outbox {
	if options.Rand == nil {
		options.Rand = rand.Float64
	}
	if options.Log == nil {
		options.Log = logrus.StandardLogger()
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Outbox{
		options: options,
		entries: map[string]*entry{},
		wake:    make(chan struct{}, 1),
		drained: make(chan struct{}),
		ctx:     ctx,
		cancel:  cancel,
	}
	o.metrics = newMetrics(options.Registerer, o)
	return o
}

// Start begins to send. It may be called again without effect.
func (o *Outbox) Start() {
	o.start.Do(func() {
		for range senders {
			o.running.Go(o.send)
		}
	})
}

// Offer takes a change. It does no I/O, never waits for a send and never fails; what does not
// fit is dropped by severity and counted.
func (o *Outbox) Offer(c Change) {
	now := time.Now()
	o.mu.Lock()
	accepted := o.accept(c, now)
	o.mu.Unlock()
	if accepted {
		o.signal()
	}
}

// Stop accepts nothing more, gives every waiting change one more try and returns when they
// are through, after 5 s, or when ctx ends, whichever comes first. What is left is counted
// as dropped.
func (o *Outbox) Stop(ctx context.Context) {
	o.stop.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, drainLimit)
		defer cancel()
		o.start.Do(func() { close(o.drained) }) // never started: nobody would drain
		o.beginDrain(time.Now())
		select {
		case <-o.drained:
		case <-ctx.Done():
		}
		o.cancel()
		o.running.Wait()
		o.abandonRest()
	})
}

// Stats looks at every waiting change; it is for health and metrics, not for a request.
func (o *Outbox) Stats() Stats {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	var s Stats
	for _, e := range o.entries {
		if !e.pending && !e.held {
			continue
		}
		s.Pending++
		s.OldestAge = max(s.OldestAge, now.Sub(e.oldest()))
	}
	s.Degraded = o.failing > 0 || s.OldestAge > sendTimeout
	return s
}

// accept puts c into its entity's entry and reports whether there is something new to send.
func (o *Outbox) accept(c Change, now time.Time) bool {
	if o.draining {
		o.metrics.drop(c.Severity(), causeStopped)
		return false
	}
	key := c.Key()
	e := o.entries[key]
	if e == nil {
		if len(o.entries) >= maxKeys && !o.makeRoom(c.Severity()) {
			o.metrics.drop(c.Severity(), causeFull)
			return false
		}
		e = &entry{key: key, due: now}
		o.entries[key] = e
		o.queue.add(e)
	}
	news, found := c.News(e.delivered)
	if !found { // nothing is said twice to an entity that has just heard it
		o.metrics.merged.Inc()
		return false
	}
	if e.pending {
		o.metrics.merged.Inc()
		news = e.change.Merge(news)
	} else {
		e.since = now
	}
	e.set(news)
	return true
}

// makeRoom gives up the least severe entry, the oldest among equals, unless all are more
// severe than what wants in. An entry with nothing left to send goes before any other.
func (o *Outbox) makeRoom(wanted contract.Severity) bool {
	victim := o.queue.leastSevere()
	if victim == nil || victim.pending && victim.severity > wanted {
		return false
	}
	o.queue.remove(victim)
	delete(o.entries, victim.key)
	if victim.failures > 0 {
		o.failing--
	}
	if victim.pending {
		o.metrics.drop(victim.severity, causeFull)
	}
	return true
}

func (o *Outbox) beginDrain(now time.Time) {
	o.mu.Lock()
	o.draining = true
	for _, e := range o.entries {
		if e.pending && !e.held {
			e.due = now
		}
	}
	o.queue.reorder()
	o.mu.Unlock()
	o.signal()
}

func (o *Outbox) abandonRest() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, e := range o.entries {
		if e.pending {
			o.metrics.drop(e.severity, causeStopped)
		}
		delete(o.entries, key)
	}
	o.queue = nil
}

// signal leaves a token for one sender; a sender that finds more to do passes it on.
func (o *Outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
