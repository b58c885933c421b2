package harness

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness/postgres"
)

// Options say what a world is made of.
type Options struct {
	// Catalog is a catalog file; PROVIDER_URL in it becomes the scripted provider's base URL
	// and ${CLIENT_KEY} the key that clients present.
	Catalog  string
	Gateways int  // default 1
	TLS      bool // the scripted provider speaks HTTPS and HTTP/2
	// Plain leaves the race detector out, for tests that measure: it makes everything several
	// times slower.
	Plain bool
	// OwnPostgres gives the world a server that it may pause and stop.
	OwnPostgres bool
	Env         []string
}

// World is a system as in production: gateways and a worker on one Postgres and one Temporal
// cluster, in front of a scripted provider.
type World struct {
	Provider    *fakeprovider.Provider
	Postgres    *postgres.Server
	DatabaseURL string
	Temporal    *Temporal
	Worker      *Process
	Gateways    []*Gateway

	ClientKey      string
	AdminToken     string
	EncryptionKeys string
	binary         string // of omniroute
	env            []string
}

// Start builds a world and returns once every gateway is ready and the worker works.
func Start(t testing.TB, o Options) *World {
	t.Helper()
	w := &World{ClientKey: secret(t, "omr_client_"), AdminToken: secret(t, "admin_")}
	if o.Plain {
		w.binary = PlainBinary(t)
	} else {
		w.binary = Binary(t)
	}
	ring := make([]byte, 32)
	_, err := rand.Read(ring)
	require.NoError(t, err)
	w.EncryptionKeys = "test:" + base64.StdEncoding.EncodeToString(ring)

	w.Provider, err = fakeprovider.Start(fakeprovider.Options{TLS: o.TLS})
	require.NoError(t, err)
	t.Cleanup(w.Provider.Stop)
	if o.OwnPostgres {
		w.Postgres = postgres.Start(t)
	} else {
		w.Postgres = postgres.Shared(t)
	}
	w.DatabaseURL = w.Postgres.Database(t)
	w.Temporal = StartTemporal(t)

	w.env = append([]string{
		"OMNIROUTE_DATABASE_URL=" + w.DatabaseURL,
		"OMNIROUTE_ENCRYPTION_KEYS=" + w.EncryptionKeys,
		"OMNIROUTE_TEMPORAL_ADDRESS=" + w.Temporal.Address,
		"OMNIROUTE_DATA_DIR=" + t.TempDir(),
		"CLIENT_KEY=" + w.ClientKey,
	}, o.Env...)
	if pem := w.Provider.CertPEM(); pem != nil {
		file := filepath.Join(t.TempDir(), "provider.pem")
		require.NoError(t, os.WriteFile(file, pem, 0o600))
		w.env = append(w.env, "SSL_CERT_FILE="+file)
	}
	w.CLI(t, "migrate")
	w.Apply(t, o.Catalog)
	w.Worker = w.StartWorker(t)
	for range max(o.Gateways, 1) {
		w.Gateways = append(w.Gateways, w.StartGateway(t))
	}
	return w
}

// Gateway is the first one.
func (w *World) Gateway() *Gateway { return w.Gateways[0] }

// CLI runs a command of omniroute that must succeed, and returns its output.
func (w *World) CLI(t testing.TB, args ...string) string {
	t.Helper()
	out, code := Run(t, w.env, w.binary, args...)
	require.Zero(t, code, "omniroute %s:\n%s", strings.Join(args, " "), out)
	return out
}

// Apply applies a catalog file.
func (w *World) Apply(t testing.TB, catalog string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	text := strings.ReplaceAll(catalog, "PROVIDER_URL", w.Provider.URL())
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	w.CLI(t, "apply", "-f", file)
}

// StartWorker starts one more worker and returns once it works.
func (w *World) StartWorker(t testing.TB) *Process {
	t.Helper()
	address := FreeAddress(t)
	p := Spawn(t, "worker", w.env, w.binary, "worker", "--worker-listen", address)
	awaitReady(t, p, "http://"+address)
	return p
}

// StartGateway starts one more gateway and returns once it is ready.
func (w *World) StartGateway(t testing.TB) *Gateway {
	t.Helper()
	g := &Gateway{world: w, address: FreeAddress(t)}
	g.client = newClient(t)
	g.Start(t)
	return g
}

// secret is a random credential that a search can find again.
func secret(t testing.TB, prefix string) string {
	t.Helper()
	b := make([]byte, 20)
	_, err := rand.Read(b)
	require.NoError(t, err)
	return prefix + hex.EncodeToString(b)
}

func awaitReady(t testing.TB, p *Process, url string) {
	t.Helper()
	client := newClient(t)
	Await(t, 60*time.Second, p.name+" ready", func() error {
		require.True(t, p.Running(), "%s ended at start:\n%s", p.name, p.Output())
		resp, err := client.Get(url + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz says %d", resp.StatusCode)
		}
		return nil
	})
}
