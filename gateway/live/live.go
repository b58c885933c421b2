// Package live is this replica's truth in memory: which connections, models and providers
// may be called now. A healthy request costs a map lookup and a few atomic loads; locks,
// messages and the database are on the unhealthy path only (design sections 7 and 8).
package live

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// Options are the dependencies of Live.
type Options struct {
	// Replica names this process among others, as the owner of a shared probe.
	Replica string
	// Offer hands a changed register to the durable side; it must not block.
	Offer func(contract.Change)
	// Probes makes half-open probes exclusive across replicas; nil leaves each replica its own.
	Probes     ProbeClaimer
	Log        logrus.FieldLogger
	Registerer prometheus.Registerer
	// Rand spreads guessed cooldowns; nil means a random source.
	Rand func() uint64
	// Now is this replica's clock; nil means the system's.
	Now func() time.Time
	// Uptime is how long this replica has run, whatever its clock says; nil means the time since
	// New by the system's monotonic clock.
	Uptime func() time.Duration
}

// Live satisfies the relay's Health and the feed's Sink.
type Live struct {
	options  Options
	metrics  *metrics
	snapshot atomic.Pointer[catalog.Snapshot]
	index    atomic.Pointer[index]
	feed     atomic.Pointer[FeedReport]
	offset   atomic.Int64 // how far the shared clock is ahead of ours, in nanoseconds
	memories atomic.Pointer[memories]
	began    atomic.Int64 // when our uptime began, as our clock had it when it was last looked at

	changing  sync.Mutex // one catalog or state change at a time
	synced    bool       // all published states have been read once
	releasing sync.WaitGroup

	tracking sync.Mutex // one first attempt of a model through a connection at a time
	tracked  int        // tracks there are, and some that went with their connection
}

// index finds the state of what the current catalog names. It is replaced as a whole; the
// entries live on from one to the next.
type index struct {
	connections map[models.ConnectionID]*connection
	providers   map[models.ProviderID]*provider
	// egress lists the connections that leave through one address, of the providers that limit
	// by it. The machine's own choice has no name.
	egress map[string][]*connection
}

// New makes a Live with an empty catalog.
func New(options Options) *Live {
	if options.Log == nil {
		options.Log = logrus.StandardLogger()
	}
	if options.Rand == nil {
		options.Rand = rand.Uint64
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Offer == nil {
		options.Offer = func(contract.Change) {}
	}
	if options.Uptime == nil {
		started := time.Now()
		options.Uptime = func() time.Duration { return time.Since(started) }
	}
	l := &Live{options: options}
	l.began.Store(l.origin())
	l.snapshot.Store(&catalog.Snapshot{})
	l.index.Store(&index{})
	l.memories.Store(&memories{})
	l.feed.Store(&FeedReport{})
	l.metrics = newMetrics(options.Registerer, l)
	return l
}

// Stop waits for the release of shared probes, which is bounded. Requests may go on.
func (l *Live) Stop() { l.releasing.Wait() }

// Snapshot is the current catalog; before the first one arrived it is empty.
func (l *Live) Snapshot() *catalog.Snapshot { return l.snapshot.Load() }

// CatalogChanged takes a new catalog. State is kept for what both catalogs name and dropped
// for what has gone, and moved along for families that have got another name; policies apply
// from the next event on.
func (l *Live) CatalogChanged(snapshot *catalog.Snapshot) {
	l.changing.Lock()
	defer l.changing.Unlock()
	old := l.index.Load()
	next := &index{
		connections: make(map[models.ConnectionID]*connection, len(snapshot.Connections)),
		providers:   make(map[models.ProviderID]*provider, len(snapshot.Providers)),
		egress:      map[string][]*connection{},
	}
	for id, view := range snapshot.Providers {
		p := old.providers[id]
		if p == nil {
			p = newProvider(id)
		}
		p.view.Store(view)
		next.providers[id] = p
	}
	for id, view := range snapshot.Connections {
		c := old.connections[id]
		if c == nil || c.provider.id != view.Provider.ID {
			c = &connection{id: id, provider: next.providers[view.Provider.ID]}
		}
		c.view.Store(view)
		next.connections[id] = c
		if view.Provider.EgressShared {
			next.egress[view.Egress] = append(next.egress[view.Egress], c)
		}
	}
	gone := renamedFamilies(l.snapshot.Load(), snapshot)
	l.memories.Store(remembering(*l.memories.Load(), snapshot))
	// The index first: whoever sees the new catalog must find what it names.
	l.index.Store(next)
	l.snapshot.Store(snapshot)
	for _, c := range next.connections {
		if families := gone[c.provider.id]; families != nil && c.hot.Load() != nil {
			l.rename(c, families, millisecond(c.after(l.options.Now())))
		}
	}
	for id, c := range old.connections {
		if next.connections[id] == nil {
			l.dismiss(c)
		}
	}
}

// dismiss tells the workflow of a connection that has left the catalog that its era is over;
// the row of the next one was written with the catalog, and is not read any more.
func (l *Live) dismiss(c *connection) {
	now := millisecond(l.options.Now())
	l.offerConnection(c, resilience.Connection{}.Enter(c.era.Load()+1, now), now)
}

// offerConnection tells the durable side what is now true of a connection and its row does not
// say, by the shared clock.
func (l *Live) offerConnection(c *connection, news resilience.Connection, at time.Time) {
	skew := l.skew()
	l.options.Offer(contract.Change{
		Kind: contract.KindConnection, Connection: c.id, Provider: c.provider.id,
		Health: news.Shift(skew), At: at.Add(skew),
	})
}

// offerProvider tells the durable side what is now true of a provider, by the shared clock. Of
// one that has left the catalog nobody asks.
func (l *Live) offerProvider(p *provider, state resilience.Provider, at time.Time) {
	if l.index.Load().providers[p.id] != p {
		return
	}
	skew := l.skew()
	l.options.Offer(contract.Change{
		Kind: contract.KindProvider, Provider: p.id, Breaker: state.Shift(skew), At: at.Add(skew),
	})
}

// millisecond is the grain of every instant that is shared.
func millisecond(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
