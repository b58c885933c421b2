// Package feed keeps a replica's view of the database fresh: the catalog snapshot and the
// published states. A notification is a hint that saves waiting; polling is the truth, so a
// lost notification costs seconds and never correctness.
package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/models/catalog"
)

// Source is the database as the feed reads it, satisfied by *store.Store.
type Source interface {
	LoadSnapshot(ctx context.Context) (*catalog.Snapshot, error)
	States(ctx context.Context, since time.Duration) (*catalog.States, error)
	CatalogRevision(ctx context.Context) (int64, error)
	// ListenURL is the Postgres URL on which changes are notified; empty means local.
	ListenURL() string
	// Watch returns hints of what this process itself changed.
	Watch() (changes <-chan string, stop func())
}

// Sink takes what is new. Calls come from one goroutine at a time, in order.
type Sink interface {
	CatalogChanged(*catalog.Snapshot)
	StatesChanged(*catalog.States)
	// FeedHealth tells the outcome of the latest read: nil, or why the database is away.
	FeedHealth(err error)
}

// Options are the feed's intervals; zero means the default.
type Options struct {
	Poll     time.Duration // between polls, jittered by a fifth; 5 s
	Resync   time.Duration // between complete reads of the states; 60 s
	Overlap  time.Duration // how far back a poll reads; 30 s
	Debounce time.Duration // how long hints gather into one read; 30 ms
	Local    time.Duration // without notifications: between looks for other processes' changes; 250 ms
}

func (o Options) withDefaults() Options {
	return Options{
		Poll:     cmp.Or(o.Poll, 5*time.Second),
		Resync:   cmp.Or(o.Resync, time.Minute),
		Overlap:  cmp.Or(o.Overlap, 30*time.Second),
		Debounce: cmp.Or(o.Debounce, 30*time.Millisecond),
		Local:    cmp.Or(o.Local, 250*time.Millisecond),
	}
}

// readTimeout bounds one read, so that a database that hangs is noticed as one that is away.
const readTimeout = 5 * time.Second

// Feed delivers snapshots and states to its sink from Start to Stop.
type Feed struct {
	source  Source
	sink    Sink
	options Options
	log     logrus.FieldLogger
	metrics *metrics
	hints   hints

	mu      sync.Mutex
	cancel  context.CancelFunc
	stopped bool
	running sync.WaitGroup

	// What the reading goroutine knows; nobody else touches it.
	revision   int64
	statesRead time.Time     // when the states were last read
	skew       time.Duration // how far the database's clock was last seen ahead of ours
	away       error         // why the latest read failed
}

// New makes a feed from a source to a sink.
func New(source Source, sink Sink, o Options, log logrus.FieldLogger, reg prometheus.Registerer) *Feed {
	return &Feed{
		source: source, sink: sink, options: o.withDefaults(), log: log,
		metrics: newMetrics(reg), hints: newHints(),
	}
}

// Start delivers the first snapshot and the first complete states and then goes on by itself.
// Without them there is nothing to serve by, so their error is returned.
func (f *Feed) Start(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancel != nil || f.stopped {
		return errors.New("a feed is started once")
	}
	changes, stop := f.source.Watch() // before the read, so that no change falls between the two
	f.revision = -1                   // unlike any real one
	if err := f.read(ctx, wantAll); err != nil {
		stop()
		return fmt.Errorf("the first read of the catalog: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f.cancel = cancel
	f.running.Go(func() { f.follow(running) })
	f.running.Go(func() {
		defer stop()
		f.watch(running, changes)
	})
	if address := f.source.ListenURL(); address != "" {
		f.running.Go(func() { f.listen(running, address) })
	}
	return nil
}

// Stop ends the feed and waits for its goroutines. It is idempotent; a read in progress is
// cancelled.
func (f *Feed) Stop() {
	f.mu.Lock()
	f.stopped = true
	cancel := f.cancel
	f.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	f.running.Wait()
}

// Look asks for a look at the catalog, as a notification that it has changed would. It does not
// wait.
func (f *Feed) Look() { f.hints.give(catalog.ChangedCatalog) }

// follow is the one goroutine that reads and delivers.
func (f *Feed) follow(ctx context.Context) {
	poll := time.NewTimer(jittered(f.options.Poll))
	defer poll.Stop()
	resync := time.NewTimer(jittered(f.options.Resync))
	defer resync.Stop()
	local := f.localTicks()
	defer local.Stop()

	// The first hint arms the timer and later ones do not move it: a storm of hints delays the
	// read by the debounce, not for ever.
	var gathered want
	var hinted time.Time
	debounce := time.NewTimer(0)
	<-debounce.C
	defer debounce.Stop()
	gather := func(w want) {
		if gathered == 0 {
			hinted = time.Now()
			debounce.Reset(f.options.Debounce)
		}
		gathered |= w
	}

	for {
		select {
		case <-ctx.Done():
			return
		case <-f.hints.catalog:
			gather(wantCatalog)
		case <-f.hints.states:
			gather(wantStates)
		case <-f.hints.reconnected:
			gather(wantAll)
		case <-debounce.C:
			if f.read(ctx, gathered) == nil {
				f.metrics.lag.Observe(time.Since(hinted).Seconds())
			}
			gathered = 0
		case <-local.C:
			f.read(ctx, wantCatalog|wantLatest) //nolint:errcheck // told to the sink
		case <-poll.C:
			f.read(ctx, wantCatalog|wantStates) //nolint:errcheck // told to the sink
			poll.Reset(jittered(f.options.Poll))
		case <-resync.C:
			f.read(ctx, wantAll) //nolint:errcheck // told to the sink
			resync.Reset(jittered(f.options.Resync))
		}
	}
}

// watch turns what this process itself changed into hints.
func (f *Feed) watch(ctx context.Context, changes <-chan string) {
	for {
		select {
		case <-ctx.Done():
			return
		case what, open := <-changes:
			if !open {
				return
			}
			f.hints.give(what)
		}
	}
}

// localTicks look for what other processes changed where nothing notifies. With
// notifications they never come.
func (f *Feed) localTicks() *time.Ticker {
	ticks := time.NewTicker(f.options.Local)
	if f.source.ListenURL() != "" {
		ticks.Stop()
	}
	return ticks
}

// jittered keeps replicas that started together from polling together.
func jittered(d time.Duration) time.Duration {
	return d - d/5 + rand.N(2*d/5+1)
}
