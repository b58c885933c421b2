// Package config is the configuration of omniroute's processes: every setting once, with
// its flag, its environment variable, its key in a configuration file and its default.
package config

import (
	"time"
)

// Config is every setting of the gateway and the worker. A command embeds the groups it
// needs, so that its --help lists exactly what has an effect on it.
type Config struct {
	Process
	Database
	Keys
	Temporal
	Gateway
	Migration
	Worker
}

// Process holds what every command takes.
type Process struct {
	ConfigFile string `name:"config" env:"OMNIROUTE_CONFIG" placeholder:"FILE" group:"Process" help:"YAML file of settings, keyed by flag name."`
	DataDir    string `name:"data-dir" env:"OMNIROUTE_DATA_DIR" default:".data" placeholder:"DIR" group:"Process" help:"Where an embedded database and a generated key ring live."`
	LogLevel   string `name:"log-level" env:"OMNIROUTE_LOG_LEVEL" default:"info" placeholder:"LEVEL" group:"Process" help:"One of error, warn, info, debug."`
	LogFormat  string `name:"log-format" env:"OMNIROUTE_LOG_FORMAT" default:"json" placeholder:"FORMAT" group:"Process" help:"json or text."`
}

// Database says where the catalog lives.
type Database struct {
	DatabaseURL string `name:"database-url" env:"OMNIROUTE_DATABASE_URL" placeholder:"URL" group:"Catalog" sensitive:"url" help:"postgres://USER:PASSWORD@HOST/NAME or sqlite:PATH."`
}

// Keys says what seals credentials at rest.
type Keys struct {
	EncryptionKeys string `name:"encryption-keys" env:"OMNIROUTE_ENCRYPTION_KEYS" placeholder:"RING" group:"Catalog" sensitive:"all" help:"Key ring ID:BASE64[,ID:BASE64...]; the first key seals, every key opens, the last is never removed: API key hashes derive from it. Unset: DATA-DIR/encryption.keys when it exists."`
}

// Temporal says how the cluster is reached. What is unset here comes from Temporal's own
// environment configuration (TEMPORAL_* variables, a profile of its configuration file).
type Temporal struct {
	TemporalAddress     string `name:"temporal-address" env:"OMNIROUTE_TEMPORAL_ADDRESS" placeholder:"HOST:PORT" group:"Temporal" help:"Frontend of the Temporal cluster. Unset: TEMPORAL_ADDRESS, then a profile, then 127.0.0.1:7233."`
	TemporalNamespace   string `name:"temporal-namespace" env:"OMNIROUTE_TEMPORAL_NAMESPACE" placeholder:"NAME" group:"Temporal" help:"Namespace of the workflows. Unset: TEMPORAL_NAMESPACE, then a profile, then default."`
	TemporalProfile     string `name:"temporal-profile" env:"OMNIROUTE_TEMPORAL_PROFILE" placeholder:"NAME" group:"Temporal" help:"Profile in Temporal's configuration file."`
	TemporalConfigFile  string `name:"temporal-config-file" env:"OMNIROUTE_TEMPORAL_CONFIG_FILE" placeholder:"FILE" group:"Temporal" help:"Temporal's configuration file (TOML)."`
	TemporalAPIKey      string `name:"temporal-api-key" env:"OMNIROUTE_TEMPORAL_API_KEY" placeholder:"KEY" group:"Temporal" sensitive:"all" help:"API key of the cluster."`
	TemporalTLS         bool   `name:"temporal-tls" env:"OMNIROUTE_TEMPORAL_TLS" group:"Temporal" help:"Speak TLS to the cluster."`
	TemporalTLSCert     string `name:"temporal-tls-client-cert-path" env:"OMNIROUTE_TEMPORAL_TLS_CLIENT_CERT_PATH" placeholder:"FILE" group:"Temporal" help:"Client certificate for mutual TLS."`
	TemporalTLSKey      string `name:"temporal-tls-client-key-path" env:"OMNIROUTE_TEMPORAL_TLS_CLIENT_KEY_PATH" placeholder:"FILE" group:"Temporal" help:"Client key for mutual TLS."`
	TemporalTLSServerCA string `name:"temporal-tls-server-ca-cert-path" env:"OMNIROUTE_TEMPORAL_TLS_SERVER_CA_CERT_PATH" placeholder:"FILE" group:"Temporal" help:"Certificate authority of the cluster."`
	TemporalTLSServer   string `name:"temporal-tls-server-name" env:"OMNIROUTE_TEMPORAL_TLS_SERVER_NAME" placeholder:"NAME" group:"Temporal" help:"Name to expect in the cluster's certificate."`
}

// Gateway holds what only the gateway takes.
type Gateway struct {
	Listen          string        `name:"listen" env:"OMNIROUTE_LISTEN" default:"127.0.0.1:20128" placeholder:"HOST:PORT" group:"Gateway" help:"Where the API, the status page and the metrics are served."`
	AdminToken      string        `name:"admin-token" env:"OMNIROUTE_ADMIN_TOKEN" placeholder:"TOKEN" group:"Gateway" sensitive:"all" help:"Bearer token of the management API. Unset: only API keys with scope manage."`
	CatalogFile     string        `name:"catalog" env:"OMNIROUTE_CATALOG" placeholder:"FILE" group:"Gateway" help:"Catalog file to apply at start, as 'omniroute apply' would."`
	TemporalUIURL   string        `name:"temporal-ui-url" env:"OMNIROUTE_TEMPORAL_UI_URL" placeholder:"URL" group:"Gateway" help:"Where people reach Temporal's Web UI; status pages link to it."`
	LedgerRetention time.Duration `name:"ledger-retention" env:"OMNIROUTE_LEDGER_RETENTION" default:"720h" placeholder:"DURATION" group:"Gateway" help:"How long request records are kept; 0 keeps them."`
	DrainTimeout    time.Duration `name:"drain-timeout" env:"OMNIROUTE_DRAIN_TIMEOUT" default:"20s" placeholder:"DURATION" group:"Gateway" help:"How long running requests may go on after SIGTERM before they are ended with an error."`
}

// Migration says who brings the database to this version's schema.
type Migration struct {
	Migrate bool `name:"migrate" env:"OMNIROUTE_MIGRATE" group:"Gateway" help:"Migrate the database at start instead of refusing one that is behind."`
}

// Worker holds what only the worker takes.
type Worker struct {
	WorkerListen string `name:"worker-listen" env:"OMNIROUTE_WORKER_LISTEN" default:"127.0.0.1:20129" placeholder:"HOST:PORT" group:"Worker" help:"Where the worker serves /healthz, /readyz and /metrics; 'off' serves nothing."`
}

// Dev holds what only omniroute-dev takes.
type Dev struct {
	TemporalUI string `name:"temporal-ui" env:"OMNIROUTE_TEMPORAL_UI" default:"127.0.0.1:8233" placeholder:"HOST:PORT" group:"Development" empty:"means off" help:"Where Temporal's Web UI listens; empty is off."`
	NoDemo     bool   `name:"no-demo" env:"OMNIROUTE_NO_DEMO" group:"Development" help:"Neither seed the demo catalog nor start its scripted provider."`
	DemoListen string `name:"demo-listen" env:"OMNIROUTE_DEMO_LISTEN" placeholder:"HOST:PORT" group:"Development" help:"Where the demo's scripted provider listens. Unset: a free port, the same as last time if it can be had."`
}

// Embedded holds where omniroute-dev's own Temporal server listens. It goes by the names that
// reach a cluster elsewhere, so that both sides are told the address in the same way.
type Embedded struct {
	TemporalAddress   string `name:"temporal-address" env:"OMNIROUTE_TEMPORAL_ADDRESS" default:"127.0.0.1:7233" placeholder:"HOST:PORT" group:"Development" help:"Where the Temporal server listens."`
	TemporalNamespace string `name:"temporal-namespace" env:"OMNIROUTE_TEMPORAL_NAMESPACE" default:"default" placeholder:"NAME" group:"Development" help:"Namespace of the workflows."`
}

// elsewhere lists variables with the prefix that are no settings of ours: those of clients,
// scripts and tests, which may be set beside any process, and the rest of Temporal's own.
var elsewhere = []string{
	"OMNIROUTE_URL", "OMNIROUTE_API_KEY", "OMNIROUTE_REQUIRE",
	"OMNIROUTE_TEMPORAL_CLIENT_AUTHORITY",
	"OMNIROUTE_TEMPORAL_TLS_CLIENT_CERT_DATA",
	"OMNIROUTE_TEMPORAL_TLS_CLIENT_KEY_DATA",
	"OMNIROUTE_TEMPORAL_TLS_SERVER_CA_CERT_DATA",
	"OMNIROUTE_TEMPORAL_TLS_DISABLE_HOST_VERIFICATION",
	"OMNIROUTE_TEMPORAL_CODEC_ENDPOINT",
	"OMNIROUTE_TEMPORAL_CODEC_AUTH",
}

// temporalHeaderPrefix begins a variable per gRPC header that Temporal's client sends.
const temporalHeaderPrefix = "OMNIROUTE_TEMPORAL_GRPC_META_"

// everything is the model of all settings there are: an environment or a file may hold
// settings of a sibling process, but nothing that no process knows.
type everything struct {
	Config
	Dev
}
