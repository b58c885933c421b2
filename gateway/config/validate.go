package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"omniroute/models/secrets"
)

var (
	logLevels  = []string{"error", "warn", "info", "debug"}
	logFormats = []string{"json", "text"}
)

// check refuses what no process could start with.
func (p Process) check() error {
	if !slices.Contains(logLevels, p.LogLevel) {
		return fmt.Errorf("log-level %q: one of %s", p.LogLevel, strings.Join(logLevels, ", "))
	}
	if !slices.Contains(logFormats, p.LogFormat) {
		return fmt.Errorf("log-format %q: one of %s", p.LogFormat, strings.Join(logFormats, ", "))
	}
	if p.DataDir == "" {
		return errors.New("data-dir: a directory is needed")
	}
	return nil
}

// check refuses a URL that names no database. The URL is not repeated: it may hold a
// password.
func (d Database) check() error {
	if d.DatabaseURL == "" {
		return nil
	}
	if path, ok := strings.CutPrefix(d.DatabaseURL, "sqlite:"); ok {
		if path == "" {
			return errors.New("database-url: sqlite: needs a path, such as sqlite:.data/omniroute.db")
		}
		return nil
	}
	u, err := url.Parse(d.DatabaseURL)
	if err != nil {
		return errors.New("database-url: not a URL; special characters of a password need percent-encoding")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return fmt.Errorf("database-url: scheme %q is not known, only postgres://... and sqlite:PATH are", u.Scheme)
	}
	return nil
}

// Require refuses to go on without a database: a process that serves others must not
// invent an empty one beside it.
func (d Database) Require() error {
	if d.DatabaseURL == "" {
		return UsageError{Err: errors.New("database-url: set OMNIROUTE_DATABASE_URL (or --database-url) to postgres://... or sqlite:PATH")}
	}
	return nil
}

// URL is the database of a command run beside a process: the one configured, else the
// embedded one of the data directory.
func (d Database) URL(p Process) string {
	if d.DatabaseURL != "" {
		return d.DatabaseURL
	}
	return "sqlite:" + filepath.Join(p.DataDir, "omniroute.db")
}

// KeyRingFile is where omniroute-dev keeps the ring it generated.
func (p Process) KeyRingFile() string { return filepath.Join(p.DataDir, "encryption.keys") }

// HasRing reports whether there is a key ring to open.
func (k Keys) HasRing(p Process) bool {
	_, err := os.Stat(p.KeyRingFile())
	return k.EncryptionKeys != "" || err == nil
}

// Ring opens the key ring: the setting, else the data directory's file. Errors never hold
// key material.
func (k Keys) Ring(p Process) (*secrets.KeyRing, error) {
	spec, origin := k.EncryptionKeys, "encryption-keys"
	if spec == "" {
		origin = p.KeyRingFile()
		text, err := os.ReadFile(origin)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("encryption-keys: set OMNIROUTE_ENCRYPTION_KEYS to a key ring ID:BASE64 of 32 bytes, such as k1:$(openssl rand -base64 32); there is none in %s either", origin)
		}
		if err != nil {
			return nil, fmt.Errorf("encryption-keys: %w", err)
		}
		spec = strings.TrimSpace(string(text))
	}
	ring, err := secrets.ParseKeyRing(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin, err)
	}
	return ring, nil
}

// check refuses addresses and URLs that cannot work.
func (g Gateway) check() error {
	if err := validAddress("listen", g.Listen); err != nil {
		return err
	}
	if g.TemporalUIURL != "" {
		u, err := url.Parse(g.TemporalUIURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
			return errors.New("temporal-ui-url: an http:// or https:// URL is needed, such as http://127.0.0.1:8233")
		}
	}
	if g.LedgerRetention < 0 {
		return errors.New("ledger-retention: a negative duration makes no sense; 0 keeps records for good")
	}
	if g.DrainTimeout < 0 {
		return errors.New("drain-timeout: a negative duration makes no sense")
	}
	return nil
}

// check refuses an address that cannot work.
func (w Worker) check() error {
	if w.WorkerListen == "off" {
		return nil
	}
	return validAddress("worker-listen", w.WorkerListen)
}

// check refuses an address without a port. A scheme is Temporal's way to name a resolver.
func (t Temporal) check() error {
	if t.TemporalAddress == "" || strings.Contains(t.TemporalAddress, "://") {
		return nil
	}
	return validAddress("temporal-address", t.TemporalAddress)
}

// check refuses addresses that cannot work.
func (d Dev) check() error {
	if d.TemporalUI != "" {
		if err := validAddress("temporal-ui", d.TemporalUI); err != nil {
			return err
		}
	}
	if d.DemoListen == "" {
		return nil
	}
	return validAddress("demo-listen", d.DemoListen)
}

// check refuses an address that cannot work.
func (e Embedded) check() error { return validAddress("temporal-address", e.TemporalAddress) }

func validAddress(setting, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s %q: HOST:PORT is needed, such as 127.0.0.1:20128", setting, address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%s %q: the port is a number from 0 to 65535", setting, address)
	}
	return nil
}

// Env is the environment Temporal's own configuration is read from: the process's, with the
// settings laid over it. It has the methods that Temporal's envconfig asks for.
func (t Temporal) Env(environ []string) TemporalEnv {
	own := map[string]string{
		"TEMPORAL_ADDRESS":                 t.TemporalAddress,
		"TEMPORAL_NAMESPACE":               t.TemporalNamespace,
		"TEMPORAL_PROFILE":                 t.TemporalProfile,
		"TEMPORAL_CONFIG_FILE":             t.TemporalConfigFile,
		"TEMPORAL_API_KEY":                 t.TemporalAPIKey,
		"TEMPORAL_TLS_CLIENT_CERT_PATH":    t.TemporalTLSCert,
		"TEMPORAL_TLS_CLIENT_KEY_PATH":     t.TemporalTLSKey,
		"TEMPORAL_TLS_SERVER_CA_CERT_PATH": t.TemporalTLSServerCA,
		"TEMPORAL_TLS_SERVER_NAME":         t.TemporalTLSServer,
	}
	if t.TemporalTLS {
		own["TEMPORAL_TLS"] = "true"
	}
	env := TemporalEnv{}
	for _, variable := range environ {
		if name, value, _ := strings.Cut(variable, "="); value != "" {
			env[name] = value
		}
	}
	for name, value := range own {
		if value != "" {
			env[envPrefix+name] = value
		}
	}
	return env
}

// TemporalEnv is an environment without empty variables.
type TemporalEnv map[string]string

// LookupEnv returns a variable.
func (e TemporalEnv) LookupEnv(name string) (string, bool) {
	value, ok := e[name]
	return value, ok
}

// Environ lists the variables as "NAME=value".
func (e TemporalEnv) Environ() []string {
	environ := make([]string, 0, len(e))
	for name, value := range e {
		environ = append(environ, name+"="+value)
	}
	return environ
}
