// Package dial is how a process reaches Temporal: options from flags and Temporal's own
// environment, log and metrics adapters, and what a namespace must have before work begins.
package dial

import (
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
)

// Defaults where neither a flag nor the environment says otherwise.
const (
	DefaultAddress   = "127.0.0.1:7233"
	DefaultNamespace = "default"
)

// EnvPrefix marks Temporal's environment variables as meant for this program alone:
// OMNIROUTE_TEMPORAL_TLS goes before TEMPORAL_TLS, and so on for every name of envconfig.
const EnvPrefix = "OMNIROUTE_"

// Config is what a process says about its client.
type Config struct {
	// Address and Namespace overrule the environment and the profile file when set.
	Address   string
	Namespace string
	// Role is part of the identity shown in the Web UI: "gateway", "worker" or "both".
	Role string
	// Registerer receives the SDK's metrics; nil means none.
	Registerer prometheus.Registerer
	// Env stands in for the process environment in tests; nil means the real one.
	Env envconfig.EnvLookup
}

// Options builds the SDK's client options: the profile file and the environment (envconfig),
// overruled by the config.
func Options(cfg Config, log logrus.FieldLogger) (client.Options, error) {
	env := cfg.Env
	if env == nil {
		env = envconfig.EnvLookupOS
	}
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{EnvLookup: ownEnv{env}})
	if err != nil {
		return client.Options{}, fmt.Errorf("temporal client configuration: %w", err)
	}
	if cfg.Address != "" {
		options.HostPort = cfg.Address
	}
	if options.HostPort == "" {
		options.HostPort = DefaultAddress
	}
	if cfg.Namespace != "" {
		options.Namespace = cfg.Namespace
	}
	if options.Namespace == "" {
		options.Namespace = DefaultNamespace
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	options.Identity = fmt.Sprintf("omniroute-%s@%s", cfg.Role, host)
	options.Logger = NewLogger(log)
	if cfg.Registerer != nil {
		options.MetricsHandler = newMetricsHandler(cfg.Registerer)
	}
	return options, nil
}

// Lazy makes a client that connects when it is first used, so that a process starts while
// Temporal is away.
func Lazy(cfg Config, log logrus.FieldLogger) (client.Client, error) {
	options, err := Options(cfg, log)
	if err != nil {
		return nil, err
	}
	c, err := client.NewLazyClient(options)
	if err != nil {
		return nil, fmt.Errorf("temporal client: %w", err)
	}
	return c, nil
}

// ownEnv looks a TEMPORAL_ variable up under our prefix first.
type ownEnv struct{ envconfig.EnvLookup }

func (e ownEnv) LookupEnv(name string) (string, bool) {
	if strings.HasPrefix(name, "TEMPORAL_") {
		if value, ok := e.EnvLookup.LookupEnv(EnvPrefix + name); ok {
			return value, true
		}
	}
	return e.EnvLookup.LookupEnv(name)
}

// Environ adds the prefixed variables under their own names, last, where they overrule.
func (e ownEnv) Environ() []string {
	all := e.EnvLookup.Environ()
	for _, pair := range all {
		if rest, ok := strings.CutPrefix(pair, EnvPrefix+"TEMPORAL_"); ok {
			all = append(all, "TEMPORAL_"+rest)
		}
	}
	return all
}
