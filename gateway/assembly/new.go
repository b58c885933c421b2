package assembly

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"omniroute/gateway/config"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

// databaseBound is how long a start waits for the database.
const databaseBound = 30 * time.Second

// New does everything about a process that can be refused: the key ring, the database and
// its schema, the catalog file, the address. Each refusal is one line. Nothing runs yet.
func New(ctx context.Context, cfg Config) (_ *Assembly, err error) {
	a := &Assembly{
		cfg:     cfg,
		replica: replicaName(),
		failed:  make(chan error, 4),
		stopped: make(chan struct{}),
	}
	a.log = cfg.Log.WithFields(map[string]any{"replica": a.replica, "role": string(cfg.Role)})
	a.cleanups.log = a.log
	defer func() {
		if err != nil {
			a.cleanups.run(context.WithoutCancel(ctx))
		}
	}()
	a.registry = newRegistry(cfg.Version)

	if err := a.openStore(ctx); err != nil {
		return nil, err
	}
	if cfg.Role.gateway() {
		if err := a.applyCatalogFile(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.openListener(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// replicaName tells processes apart, also two on one host and two lives of one process.
func replicaName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	life := make([]byte, 3)
	_, _ = rand.Read(life) // never fails (crypto/rand)
	return host + "-" + hex.EncodeToString(life)
}

func newRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "omniroute_build_info",
		Help: "Always 1; the label says which version runs.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// openStore opens the database and brings its schema up, or refuses an old one: replicas
// that migrate by themselves as they roll would race with those that still run.
func (a *Assembly) openStore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	var err error
	if a.cfg.Role.gateway() || a.cfg.Settings.HasRing(a.cfg.Settings.Process) {
		if a.ring, err = a.cfg.Settings.Ring(a.cfg.Settings.Process); err != nil {
			return err
		}
	}
	a.store, err = store.Open(ctx, a.cfg.Settings.DatabaseURL, a.ring, a.log)
	if err != nil {
		return err
	}
	a.cleanups.add("store", time.Second, func(context.Context) {
		if err := a.store.Close(); err != nil {
			a.log.WithError(err).Warn("closing the database")
		}
	})
	a.setEnvironment()
	if a.cfg.Settings.Migrate {
		return a.store.Migrate(ctx)
	}
	pending, err := a.store.PendingMigrations(ctx)
	if err == nil && pending > 0 {
		err = fmt.Errorf("the database is %d migrations behind this version: run 'omniroute migrate' first, or start with --migrate", pending)
	}
	return err
}

// setEnvironment puts the defaults that variables replace behind the stored settings.
func (a *Assembly) setEnvironment() {
	defaults := config.ReadDefaults(a.cfg.Environ)
	for _, warning := range defaults.Warnings {
		a.log.Warn(warning.String())
	}
	a.environment = catalog.Environment{Resilience: defaults.Resilience, EgressShared: defaults.EgressShared}
	a.store.SetEnvironment(a.environment)
}

// applyCatalogFile makes the catalog what --catalog says. It never prunes: what an operator
// added by hand outlives a restart.
func (a *Assembly) applyCatalogFile(ctx context.Context) error {
	path := a.cfg.Settings.CatalogFile
	if path == "" {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	defer file.Close()
	doc, err := catalog.ParseDocument(file, path, a.getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	diff, err := a.store.Apply(ctx, doc, store.ApplyOptions{Actor: "start:" + path})
	if err != nil {
		return err
	}
	for _, change := range diff.Changes {
		a.log.Info(change.String())
	}
	for _, warning := range diff.Warnings {
		a.log.Warn(warning)
	}
	a.log.WithFields(map[string]any{"file": path, "changes": len(diff.Changes)}).Info("catalog file applied")
	return nil
}

func (a *Assembly) getenv(name string) (string, bool) {
	for _, variable := range a.cfg.Environ {
		if key, value, _ := strings.Cut(variable, "="); key == name {
			return value, true
		}
	}
	return "", false
}

func (a *Assembly) openListener(ctx context.Context) (err error) {
	a.listener = a.cfg.Listener
	if a.listener == nil {
		setting, address := "listen", a.cfg.Settings.Listen
		if !a.cfg.Role.gateway() {
			setting, address = "worker-listen", a.cfg.Settings.WorkerListen
		}
		if address == "off" {
			return nil
		}
		if a.listener, err = listen(ctx, setting, address); err != nil {
			return err
		}
	}
	a.cleanups.add("listener", time.Second, func(context.Context) { a.listener.Close() })
	return nil
}
