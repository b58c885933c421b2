package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/deployments/dev/demo"
	"omniroute/deployments/dev/temporaldev"
	"omniroute/gateway/assembly"
	"omniroute/gateway/config"
	"omniroute/integration/fakeprovider"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

// serveCmd runs everything in this process: Temporal, its Web UI, the scripted provider, the
// worker and the gateway.
type serveCmd struct {
	config.Process
	config.Database
	config.Keys
	config.Embedded
	config.Gateway
	config.Dev
}

// suitAPerson changes the defaults that suit a server: whoever looks at a terminal wants lines
// to read and a Ctrl-C that ends soon. What was set stays.
func (c *serveCmd) suitAPerson(settings []config.Setting) {
	for _, setting := range settings {
		if setting.Source != config.SourceDefault {
			continue
		}
		switch setting.Name {
		case "drain-timeout":
			c.DrainTimeout = devDrainTimeout
		case "log-format":
			c.LogFormat = "text"
		}
	}
}

// startLimit bounds everything that happens before the banner.
const startLimit = 60 * time.Second

// system is what has been started so far; stop ends it, the latest first.
type system struct {
	cmd      *serveCmd
	environ  []string
	log      *logrus.Logger
	data     *dataDir
	listener net.Listener // the gateway's, taken at the very start
	store    *store.Store
	temporal *temporaldev.Server
	provider *fakeprovider.Provider // nil with --no-demo
	// knownProvider is the URL that the demo's catalog has for the scripted provider.
	knownProvider string
	both          *assembly.Assembly // gateway and worker
	access        access
	cleanups      []func() error
}

// run starts the system, prints the banner and serves until ctx ends.
func (c *serveCmd) run(ctx context.Context, p process) error {
	began := time.Now()
	s := &system{cmd: c, environ: p.environ, log: c.Logger(p.stderr)}
	if err := s.start(ctx); err != nil {
		s.stop()
		return err
	}
	s.banner(p.stdout, time.Since(began))
	var err error
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(p.stdout, "\nstopping (once more Ctrl-C ends at once)")
	case err = <-s.both.Failed():
	}
	s.stop()
	return err
}

func (s *system) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not up after %s", startLimit))
	defer cancel()
	if err := s.openDataDir(); err != nil {
		return err
	}
	if err := s.claimPorts(); err != nil {
		return err
	}
	if err := s.openCatalog(ctx); err != nil {
		return err
	}
	if err := s.startProvider(); err != nil {
		return err
	}
	if err := s.startTemporal(ctx); err != nil {
		return err
	}
	if err := s.seed(ctx); err != nil {
		return err
	}
	return s.startGatewayAndWorker(ctx)
}

// stop ends what was started. Each part bounds itself; together they stay under 5 s.
func (s *system) stop() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		if err := s.cleanups[i](); err != nil {
			s.log.WithError(err).Warn("stopping")
		}
	}
	s.cleanups = nil
}

func (s *system) onStop(f func() error) { s.cleanups = append(s.cleanups, f) }

func (s *system) openDataDir() (err error) {
	if s.data, err = openDataDir(s.cmd.DataDir); err != nil {
		return err
	}
	s.onStop(s.data.close)
	s.cmd.DataDir = s.data.path
	if s.cmd.EncryptionKeys == "" {
		if err := s.data.keepKeyRing(s.cmd.KeyRingFile()); err != nil {
			return fmt.Errorf("key ring: %w", err)
		}
	}
	if s.access, err = s.data.loadAccess(); err != nil {
		return fmt.Errorf("%s: %w", s.data.file(accessFile), err)
	}
	return nil
}

// claimPorts finds every taken port before anything has started. The gateway's listener is
// kept; the others are opened by those who own them.
func (s *system) claimPorts() (err error) {
	if err := checkPorts(s.ports()); err != nil {
		return err
	}
	if s.listener, err = net.Listen("tcp", s.cmd.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w", s.cmd.Listen, err)
	}
	s.onStop(func() error {
		if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})
	return nil
}

func (s *system) ports() []port {
	ports := []port{
		{"the gateway", "listen", s.cmd.Listen},
		{"Temporal", "temporal-address", s.cmd.TemporalAddress},
		{"Temporal's Web UI", "temporal-ui", s.cmd.TemporalUI},
	}
	if !s.cmd.NoDemo && s.cmd.DemoListen != "" {
		ports = append(ports, port{"the demo's scripted provider", "demo-listen", s.cmd.DemoListen})
	}
	return ports
}

func (s *system) openCatalog(ctx context.Context) error {
	ring, err := s.cmd.Ring(s.cmd.Process)
	if err != nil {
		return err
	}
	if s.store, err = store.Open(ctx, s.cmd.URL(s.cmd.Process), ring, s.log); err != nil {
		return err
	}
	s.onStop(s.closeStore)
	if err := s.store.Migrate(ctx); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	return nil
}

// closeStore ends this package's own use of the database; the gateway opens its own.
func (s *system) closeStore() error {
	if s.store == nil {
		return nil
	}
	err := s.store.Close()
	s.store = nil
	return err
}

func (s *system) startTemporal(ctx context.Context) (err error) {
	s.temporal, err = temporaldev.Start(ctx, temporaldev.Options{
		Address: s.cmd.TemporalAddress, UIAddress: s.cmd.TemporalUI,
		DatabaseFile: s.data.file("temporal.db"),
		Namespace:    s.cmd.TemporalNamespace, Retention: retention, Log: s.log,
	})
	if err != nil {
		return err
	}
	s.onStop(s.temporal.Stop)
	return nil
}

// seed fills a catalog that nobody has ever changed. Whatever an operator did since, deleting
// the demo included, is left alone. The key is written down before it exists, so that a
// process killed in between finds it.
func (s *system) seed(ctx context.Context) error {
	fresh := s.access.apiKey == ""
	if fresh {
		s.access.apiKey = secrets.NewAPIKey()
	}
	if s.cmd.AdminToken != "" {
		s.access.adminToken = s.cmd.AdminToken
	} else if s.access.adminToken == "" {
		s.access.adminToken = secrets.NewAPIKey()
	}
	s.cmd.AdminToken = s.access.adminToken
	s.access.url = "http://" + reachable(s.listener.Addr().String())
	s.access.temporalUI = s.temporal.UIURL()
	if err := s.data.saveAccess(s.access); err != nil {
		return fmt.Errorf("%s: %w", s.data.file(accessFile), err)
	}
	revision, err := s.store.CatalogRevision(ctx)
	if err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	if revision != 0 {
		if fresh {
			s.log.Warnf("%s had no API key and the catalog is not new: make one with 'omniroute keys create'", s.data.file(accessFile))
		}
		if err := s.followProvider(ctx); err != nil {
			return err
		}
		return s.closeStore()
	}
	doc, err := demo.KeyOnly(s.access.apiKey)
	if !s.cmd.NoDemo {
		doc, err = demo.Document(s.provider.URL(), s.access.apiKey)
	}
	if err != nil {
		return err
	}
	if _, err := s.store.Apply(ctx, doc, store.ApplyOptions{Actor: "omniroute-dev"}); err != nil {
		return fmt.Errorf("demo catalog: %w", err)
	}
	if err := s.rememberProvider(); err != nil {
		return err
	}
	return s.closeStore()
}

// stopLimit bounds the gateway's and the worker's part of a stop: with the second that
// Temporal takes, Ctrl-C ends in under 5 s.
const (
	stopLimit       = 3 * time.Second
	devDrainTimeout = 1500 * time.Millisecond
)

func (s *system) startGatewayAndWorker(ctx context.Context) (err error) {
	settings := config.Config{
		Process: s.cmd.Process, Database: s.cmd.Database, Keys: s.cmd.Keys,
		Temporal: config.Temporal{TemporalAddress: s.temporal.Address(), TemporalNamespace: s.cmd.TemporalNamespace},
		Gateway:  s.cmd.Gateway,
	}
	settings.DatabaseURL = s.cmd.URL(s.cmd.Process)
	if settings.TemporalUIURL == "" {
		settings.TemporalUIURL = s.temporal.UIURL()
	}
	s.both, err = assembly.New(ctx, assembly.Config{
		Role: assembly.RoleBoth, Settings: settings, Environ: withoutTemporal(s.environ),
		Version: version, Log: s.log, Listener: s.listener,
	})
	if err != nil {
		return err
	}
	s.onStop(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		s.both.Stop(ctx)
		return nil
	})
	return s.both.Start(ctx)
}

// withoutTemporal drops what would send the embedded server's clients to another cluster:
// Temporal's variables, and the profile in a person's home.
func withoutTemporal(environ []string) []string {
	kept := slices.DeleteFunc(slices.Clone(environ), func(variable string) bool {
		return strings.HasPrefix(variable, "TEMPORAL_") || strings.HasPrefix(variable, "OMNIROUTE_TEMPORAL_")
	})
	return append(kept, "TEMPORAL_CONFIG_FILE="+os.DevNull)
}

// reachable turns an address that listens everywhere into one that a browser can open.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// relative shortens a path for a person who stands in the current folder.
func relative(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(short) {
		return short
	}
	return path
}
