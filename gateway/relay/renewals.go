package relay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/models"
	"omniroute/models/catalog"
)

const (
	// renewTimeout bounds the asking for new credentials.
	renewTimeout = 10 * time.Second
	// arriveTimeout bounds the wait until stored credentials are in this replica's catalog.
	arriveTimeout = 3 * time.Second
	// Failures are remembered for a while: requests that come late with the same refusal are not
	// held up by asking again, and a token that ends soon is not asked about with every request.
	waitedPause = 10 * time.Second
	aheadPause  = time.Minute
)

// Renewer asks for credentials newer than the generation that has been seen, across all
// replicas; satisfied by gateway/durable.
type Renewer interface {
	Renew(ctx context.Context, connection models.ConnectionID, seen int64) (generation int64, err error)
}

// RenewalOptions are what Renewals are made of.
type RenewalOptions struct {
	Renewer Renewer
	// Snapshot is the current catalog.
	Snapshot func() *catalog.Snapshot
	// Reread asks for a look at the stored catalog, for which notifications may be too slow.
	Reread     func()
	Log        *logrus.Entry
	Registerer prometheus.Registerer
}

// Renewals get connections new credentials, one renewal for each connection and generation at
// a time, however many requests need it. They own the goroutines that ask; Stop waits for them.
type Renewals struct {
	options RenewalOptions
	count   *prometheus.CounterVec
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	flights map[generation]*flight
	changed chan struct{} // closed at the next change of the catalog
}

// generation names credentials of a connection.
type generation struct {
	connection models.ConnectionID
	seen       int64
}

// flight is one renewal under way, or one that has failed lately.
type flight struct {
	done  chan struct{} // closed at the end
	ended time.Time     // zero while it is under way
	err   error
}

var (
	errLate    = errors.New("the new credentials have not reached this replica in time")
	errStopped = errors.New("the gateway is shutting down")
)

// NewRenewals makes Renewals and registers their metric.
func NewRenewals(o RenewalOptions) *Renewals {
	r := &Renewals{
		options: o,
		flights: make(map[generation]*flight),
		changed: make(chan struct{}),
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_credential_renewals_total", Help: "Renewals of OAuth credentials that this replica asked for, by outcome.",
		}, []string{"outcome"}),
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if o.Registerer != nil {
		o.Registerer.MustRegister(r.count)
	}
	return r
}

// CatalogChanged wakes those who wait for their credentials to arrive. It is called when the
// new catalog is the current one.
func (r *Renewals) CatalogChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Stop ends what is under way and waits for it.
func (r *Renewals) Stop() {
	r.mu.Lock()
	r.stopped = true
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}

// await returns nil once the connection has other credentials than those of the view. Whoever
// waits may leave; the renewal goes on for the others.
func (r *Renewals) await(ctx context.Context, conn *catalog.ConnectionView) error {
	if r.arrived(conn) {
		return nil
	}
	f := r.start(conn, waitedPause)
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ahead renews credentials that end soon; nobody waits for it.
func (r *Renewals) ahead(conn *catalog.ConnectionView) {
	if !r.arrived(conn) {
		r.start(conn, aheadPause)
	}
}

// start joins the renewal of the view's credentials that is under way, or one that failed less
// than pause ago, or begins one.
func (r *Renewals) start(conn *catalog.ConnectionView, pause time.Duration) *flight {
	key := generation{conn.ID, conn.TokenGeneration}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for other, f := range r.flights {
		if !f.ended.IsZero() && now.Sub(f.ended) >= aheadPause {
			delete(r.flights, other)
		}
	}
	f := r.flights[key]
	if f != nil && (f.ended.IsZero() || now.Sub(f.ended) < pause) {
		return f
	}
	f = &flight{done: make(chan struct{})}
	if r.stopped {
		f.err = errStopped
		close(f.done)
		return f
	}
	r.flights[key] = f
	r.running.Go(func() { r.fly(conn, key, f) })
	return f
}

// fly asks, and waits until what was stored is in the catalog here.
func (r *Renewals) fly(conn *catalog.ConnectionView, key generation, f *flight) {
	began := time.Now()
	err := r.ask(conn)
	log := r.options.Log.WithField("connection", conn.ID).WithField("provider", conn.Provider.ID)
	switch {
	case err == nil:
		r.count.WithLabelValues("renewed").Inc()
		log.WithField("took_ms", time.Since(began).Milliseconds()).Info("credentials renewed")
	case errors.Is(err, errLate):
		r.count.WithLabelValues("late").Inc()
		log.Warn("credentials were renewed, and have not arrived in time")
	case r.ctx.Err() == nil:
		r.count.WithLabelValues("failed").Inc()
		log.WithError(err).Warn("credentials were not renewed")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.err, f.ended = err, time.Now()
	if err == nil {
		delete(r.flights, key)
	}
	close(f.done)
}

func (r *Renewals) ask(conn *catalog.ConnectionView) error {
	ctx, cancel := context.WithTimeout(r.ctx, renewTimeout)
	defer cancel()
	if _, err := r.options.Renewer.Renew(ctx, conn.ID, conn.TokenGeneration); err != nil {
		return err
	}
	r.options.Reread()
	late := time.NewTimer(arriveTimeout)
	defer late.Stop()
	for {
		changed := r.next()
		if r.arrived(conn) {
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			return errLate
		case <-r.ctx.Done():
			return errStopped
		}
	}
}

func (r *Renewals) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// arrived reports whether the catalog has other credentials than the view. Of a connection
// that has left the catalog there is nothing to wait for.
func (r *Renewals) arrived(conn *catalog.ConnectionView) bool {
	now := r.options.Snapshot().Connections[conn.ID]
	return now == nil || now.TokenGeneration != conn.TokenGeneration
}
