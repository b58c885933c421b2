package assembly

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/sirupsen/logrus"

	"omniroute/gateway/access"
	"omniroute/gateway/admin"
	"omniroute/gateway/durable"
	"omniroute/gateway/ingress"
	"omniroute/gateway/ledger"
	"omniroute/gateway/live"
	"omniroute/gateway/outbox"
	"omniroute/gateway/relay"
	"omniroute/gateway/upstream"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/feed"
	"omniroute/workflows/dial"
)

const (
	// feedBound is how long a start waits for the first snapshot.
	feedBound = 30 * time.Second
	// flushBound is how long a stop tries to hand over what the outbox and the ledger hold.
	// What is lost is little: another replica, or the next failure, says the same again.
	flushBound = 2500 * time.Millisecond
	// closeBound is how long ended requests may take to write their last bytes.
	closeBound = time.Second
)

// Start starts every part in order and returns when the process serves. ctx bounds the start
// only. After an error, Stop cleans up.
func (a *Assembly) Start(ctx context.Context) error {
	cluster, err := a.dialTemporal()
	if err != nil {
		return err
	}
	if a.cfg.Role.worker() {
		a.startWorker(cluster)
	}
	if a.cfg.Role.gateway() {
		handler, err := a.startGateway(ctx, cluster)
		if err != nil {
			return err
		}
		a.startServer(handler)
	} else {
		a.startServer(a.workerHandler())
	}
	if a.cfg.Role == RoleGateway { // a process that has more to do has another heap
		tuneMemory()
	}
	a.log.WithField("listen", a.Addr()).WithField("version", a.cfg.Version).Info("started")
	return nil
}

// temporalClient is the client and where it leads.
type temporalClient struct {
	dial.Client
	namespace string
}

// dialTemporal makes the client. It connects when it is first used: neither side of the
// process needs Temporal to start.
func (a *Assembly) dialTemporal() (temporalClient, error) {
	settings := dial.Config{
		Role:       string(a.cfg.Role),
		Registerer: a.registry,
		Env:        a.cfg.Settings.Env(a.cfg.Environ),
	}
	log := a.log.WithField("part", "temporal")
	options, err := dial.Options(settings, log)
	if err != nil {
		return temporalClient{}, err
	}
	c, err := dial.Lazy(settings, log)
	if err != nil {
		return temporalClient{}, err
	}
	a.cleanups.add("temporal client", time.Second, func(context.Context) { c.Close() })
	a.log.WithField("temporal", options.HostPort).WithField("namespace", options.Namespace).Info("state goes to Temporal")
	return temporalClient{c, options.Namespace}, nil
}

// startGateway is one straight line on purpose: it is the order in which the parts need each
// other, and its opposite is the order in which they stop.
func (a *Assembly) startGateway(ctx context.Context, cluster temporalClient) (http.Handler, error) {
	part := func(name string) *logrus.Entry { return a.log.WithField("part", name) }

	var truth *live.Live
	workflows := durable.New(durable.Options{
		Client: cluster,
		ProviderOf: func(id models.ConnectionID) (models.ProviderID, bool) {
			connection, ok := truth.Snapshot().Connections[id]
			if !ok {
				return "", false
			}
			return connection.Provider.ID, true
		},
		Log: part("durable"),
	})
	out := outbox.New(outbox.Options{Send: workflows.Send, Log: part("outbox"), Registerer: a.registry})
	truth = live.New(live.Options{
		Replica: a.replica, Offer: out.Offer, Probes: a.store, Log: part("live"), Registerer: a.registry,
	})

	upstreams := upstream.New(upstream.Options{Version: a.cfg.Version})
	var changes *feed.Feed
	renewals := relay.NewRenewals(relay.RenewalOptions{
		Renewer: workflows, Snapshot: truth.Snapshot, Reread: func() { changes.Look() }, Log: part("renewals"), Registerer: a.registry,
	})
	changes = feed.New(a.store, followers{truth, upstreams, renewals}, feed.Options{}, part("feed"), a.registry)
	a.cleanups.add("feed", time.Second, func(context.Context) { changes.Stop() })
	feedCtx, cancel := context.WithTimeout(ctx, feedBound)
	defer cancel()
	if err := changes.Start(feedCtx); err != nil {
		return nil, err
	}

	out.Start()
	book := ledger.New(ledger.Options{
		Rows: a.store, Retention: a.cfg.Settings.LedgerRetention, Log: part("ledger"), Registerer: a.registry,
	})
	book.Start()
	a.cleanups.add("outbox and ledger", flushBound, func(ctx context.Context) {
		var both sync.WaitGroup
		both.Go(func() { out.Stop(ctx) })
		both.Go(func() { book.Stop(ctx) })
		both.Wait()
	})
	a.cleanups.add("live", time.Second, func(context.Context) { truth.Stop() })

	a.cleanups.add("upstream connections", time.Second, func(context.Context) { upstreams.Close() })
	a.cleanups.add("renewals", time.Second, func(context.Context) { renewals.Stop() })
	requests := relay.New(relay.Options{
		Health: truth, Upstream: upstreams, Ledger: book, Renewals: renewals, Log: part("relay"), Registerer: a.registry,
	})
	a.drain = requests.Drain

	refusals := access.NewRefusals(part("access"), a.registry)
	management := admin.New(admin.Options{
		Store: a.store, Live: truth, Durable: workflows, Environment: a.environment,
		Temporal: func(ctx context.Context) error { return dial.Answers(ctx, cluster) },
		Outbox:   out.Stats, Ledger: book.Pending,
		HashKey: a.ring.HashKey, AdminToken: a.cfg.Settings.AdminToken,
		TemporalUI: a.cfg.Settings.TemporalUIURL, Namespace: cluster.namespace,
		Version: a.cfg.Version, Replica: a.replica, Refusals: refusals, Log: part("admin"),
	})
	if token := a.cfg.Settings.AdminToken; token != "" && len(token) < 16 {
		a.log.Warn("the admin token is shorter than 16 characters: it can be guessed")
	}
	a.ready.Store(true)
	return ingress.New(ingress.Options{
		Relay: requests, Health: truth, Admin: management.Handler(), Metrics: a.metricsHandler(),
		Status: management.StatusPage(a.Ready), Ready: a.Ready,
		HashKey: a.ring.HashKey, Ledger: book, Refusals: refusals, Log: part("ingress"),
	}), nil
}

// followers hand on what the feed brings: everything is for live, and a new catalog is also for
// those who keep something of the old one. These come first, so that they know the views that
// live is about to give out. Whoever waits for what is new is told when it is there.
type followers struct {
	*live.Live
	upstreams *upstream.Client
	renewals  *relay.Renewals
}

func (f followers) CatalogChanged(snapshot *catalog.Snapshot) {
	f.upstreams.Keep(snapshot)
	f.Live.CatalogChanged(snapshot)
	f.renewals.CatalogChanged()
}

func (a *Assembly) metricsHandler() http.Handler {
	return promhttp.InstrumentMetricHandler(a.registry, promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{Registry: a.registry}))
}

// startServer begins to answer. When it stops, requests in flight may go on for the drain
// timeout while nothing new is let in.
func (a *Assembly) startServer(handler http.Handler) {
	if a.listener == nil {
		return
	}
	server := newServer(handler, a.log.WithField("part", "http"))
	var serving sync.WaitGroup
	serving.Go(func() { serve(server, a.listener, a.failed) })
	drainTimeout := a.cfg.Settings.DrainTimeout
	a.cleanups.add("http", drainTimeout+closeBound, func(ctx context.Context) {
		var draining sync.WaitGroup
		draining.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, drainTimeout)
			defer cancel()
			if a.drain != nil {
				a.drain(ctx)
			}
		})
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close() // what is left is cut off
		}
		draining.Wait()
		serving.Wait()
	})
}
