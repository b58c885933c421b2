// Package assembly joins the parts of a process: it makes them, gives each what it needs,
// starts them in order and stops them in the opposite order. Nothing else in the project
// knows both the gateway's side and the durable one.
package assembly

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/gateway/config"
	"omniroute/models/catalog"
	"omniroute/models/secrets"
	"omniroute/models/store"
	"omniroute/worker"
)

// Role says which sides a process has.
type Role string

// Roles.
const (
	RoleGateway Role = "gateway"
	RoleWorker  Role = "worker"
	RoleBoth    Role = "both"
)

func (r Role) gateway() bool { return r != RoleWorker }
func (r Role) worker() bool  { return r != RoleGateway }

// Config is what a process is assembled from.
type Config struct {
	Role     Role
	Settings config.Config
	// Environ is where Temporal's own variables and a catalog file's ${ENV} come from.
	Environ []string
	Version string
	Log     *logrus.Logger
	// Listener replaces Settings.Listen (a worker's: WorkerListen) when it is not nil.
	Listener net.Listener
}

// Assembly is one process: made by New, started once, stopped once.
type Assembly struct {
	cfg      Config
	log      *logrus.Entry
	replica  string
	registry *prometheus.Registry
	ring     *secrets.KeyRing
	store    *store.Store
	listener net.Listener
	// environment stands behind the stored settings.
	environment catalog.Environment

	// drain refuses new requests, waits for the running ones and ends those that are left
	// when its context ends. Nil in a worker.
	drain  func(context.Context)
	worker *worker.Worker // nil in a gateway

	cleanups cleanups
	ready    atomic.Bool // a snapshot was loaded; stays true when the database goes away
	draining atomic.Bool
	failed   chan error
	stop     sync.Once
	stopped  chan struct{}
}

var (
	errStarting = errors.New("starting")
	errDraining = errors.New("shutting down")
)

// Ready says why the process cannot serve now, or nil.
func (a *Assembly) Ready() error {
	switch {
	case a.draining.Load():
		return errDraining
	case !a.ready.Load():
		return errStarting
	default:
		return nil
	}
}

// Addr is the address that is listened on, empty for a worker that serves nothing.
func (a *Assembly) Addr() string {
	if a.listener == nil {
		return ""
	}
	return a.listener.Addr().String()
}

// Failed yields the error of a part that ended by itself; the process should then stop.
func (a *Assembly) Failed() <-chan error { return a.failed }

// Stop ends what New and Start began, the latest first. Running requests may go on for the
// drain timeout; everything else takes a few seconds at most, and an idle process less than
// one. It may be called again, and after a failed Start.
func (a *Assembly) Stop(ctx context.Context) {
	a.stop.Do(func() {
		defer close(a.stopped)
		start := time.Now()
		a.draining.Store(true)
		a.cleanups.run(ctx)
		a.log.WithField("took", time.Since(start).Round(time.Millisecond).String()).Info("stopped")
	})
	<-a.stopped
}
