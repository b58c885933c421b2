// Package temporaldev runs a real Temporal server (frontend, history, matching and system
// worker) and its Web UI inside the calling process, on one SQLite file. It is for
// development and tests; production uses a cluster.
package temporaldev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/sirupsen/logrus"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/temporal"
)

// Options say where the server listens and where it keeps its data.
type Options struct {
	Address   string // frontend, HOST:PORT; port 0 takes a free one
	UIAddress string // Web UI, HOST:PORT; empty is off
	// DatabaseFile is the SQLite file; it is created with its schema when absent.
	DatabaseFile string
	Namespace    string        // registered at first start
	Retention    time.Duration // of closed workflows, set at first start
	Log          logrus.FieldLogger
	// Dynamic overrides the tuned dynamic configuration, by full key.
	Dynamic map[string]any
}

// Server is a running Temporal server.
type Server struct {
	address   string
	namespace string
	server    temporal.Server
	ui        *webUI // nil when off
	log       *serverLog
}

// Start checks the ports, prepares the database file and returns once the frontend serves
// the namespace and the UI answers. After an error nothing is left running.
func Start(ctx context.Context, o Options) (*Server, error) {
	frontend, err := resolve(o.Address)
	if err != nil {
		return nil, fmt.Errorf("temporal server: %w", err)
	}
	ports, err := choosePorts(frontend)
	if err != nil {
		return nil, fmt.Errorf("temporal server on %s: %w", o.Address, err)
	}
	database, err := prepareDatabase(o.DatabaseFile, o.Namespace, o.Retention)
	if err != nil {
		return nil, err
	}
	s := &Server{address: ports.frontendAddress(), namespace: o.Namespace, log: newServerLog(o.Log)}
	if s.server, err = newServer(serverConfig(ports, database), tunedDynamicConfig(o.Dynamic), s.log); err != nil {
		return nil, fmt.Errorf("temporal server: %w", err)
	}
	if err := s.server.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("temporal server: %w", err), s.Stop())
	}
	if err := s.awaitNamespace(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("temporal server: %w", err), s.Stop())
	}
	if o.UIAddress == "" {
		return s, nil
	}
	if s.ui, err = startUI(ctx, o.UIAddress, s.address, o.Namespace); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Address is where the frontend listens.
func (s *Server) Address() string { return s.address }

// UIURL is where people open the Web UI; empty when it is off.
func (s *Server) UIURL() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.url
}

// Stop ends the UI and the server; it takes about a second.
func (s *Server) Stop() error {
	s.log.quiet()
	if s.ui != nil {
		s.ui.stop()
	}
	return s.server.Stop()
}

func newServer(conf *config.Config, dynamic dynamicconfig.StaticClient, log *serverLog) (temporal.Server, error) {
	authorizer, err := authorization.GetAuthorizerFromConfig(&conf.Global.Authorization)
	if err != nil {
		return nil, err
	}
	return temporal.NewServer(
		temporal.WithConfig(conf),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithStaticHosts(staticHosts(conf)),
		temporal.WithLogger(log),
		temporal.WithAuthorizer(authorizer),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return authorization.NewNoopClaimMapper() }),
		temporal.WithDynamicConfigClient(dynamic),
	)
}

// awaitNamespace dials until the frontend describes the namespace: from then on the first
// workflow works at once.
func (s *Server) awaitNamespace(ctx context.Context) error {
	c, err := client.NewLazyClient(client.Options{HostPort: s.address, Namespace: s.namespace, Logger: s.log.sdk()})
	if err != nil {
		return err
	}
	defer c.Close()
	request := &workflowservice.DescribeNamespaceRequest{Namespace: s.namespace}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err = c.WorkflowService().DescribeNamespace(attempt, request)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("namespace %q does not answer: %w", s.namespace, errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// resolve turns HOST:PORT into an address with an IP, which is what the server binds to.
func resolve(address string) (*net.TCPAddr, error) {
	tcp, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("address %q: %w", address, err)
	}
	if tcp.IP == nil {
		tcp.IP = net.IPv4zero
	}
	return tcp, nil
}
