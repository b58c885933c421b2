package assembly

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/config"
	"omniroute/integration/fakeprovider"
	"omniroute/models/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminToken  = "the-operators-own-admin-token"
	clientKey   = "a-client-key-of-thirty-two-characters-or-more"
	upstreamKey = "sk-what-the-provider-wants-to-see-0001"
)

// world is everything around a process: a provider, a migrated database, a catalog.
type world struct {
	t        *testing.T
	provider *fakeprovider.Provider
	settings config.Config
	environ  []string
	log      *lines
}

// newWorld makes a world on SQLite, where Temporal is away.
func newWorld(t *testing.T) *world {
	t.Helper()
	ring, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	dir := t.TempDir()
	provider, err := fakeprovider.Start(fakeprovider.Options{})
	require.NoError(t, err)
	t.Cleanup(provider.Stop)

	w := &world{t: t, provider: provider, log: &lines{}}
	w.settings.DataDir, w.settings.LogLevel, w.settings.LogFormat = dir, "debug", "json"
	w.settings.DatabaseURL = "sqlite:" + filepath.Join(dir, "omniroute.db")
	w.settings.EncryptionKeys = ring
	w.settings.TemporalAddress = "127.0.0.1:1"
	w.settings.Listen, w.settings.WorkerListen = "127.0.0.1:0", "127.0.0.1:0"
	w.settings.AdminToken = adminToken
	w.settings.DrainTimeout = 10 * time.Second
	w.settings.Migrate = true
	w.settings.CatalogFile = filepath.Join(dir, "catalog.yaml")
	w.environ = []string{"UPSTREAM_KEY=" + upstreamKey, "CLIENT_KEY=" + clientKey}
	w.catalog(fmt.Sprintf(`
providers: [{id: fake, class: api_key, dialect: openai, baseURL: %q}]
connections: [{id: fake-1, provider: fake, credential: {apiKey: "${UPSTREAM_KEY}"}}]
models: [{id: m1, provider: fake}]
apiKeys: [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`, provider.URL()))
	return w
}

func (w *world) catalog(text string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.settings.CatalogFile, []byte(text), 0o600))
}

func (w *world) config(role Role) Config {
	log := w.settings.Logger(w.log)
	log.SetLevel(logrus.DebugLevel)
	return Config{Role: role, Settings: w.settings, Environ: w.environ, Version: "v1.2.3", Log: log}
}

// start starts a process that is stopped with the test, at the latest.
func (w *world) start(role Role) *Assembly {
	w.t.Helper()
	a, err := New(w.t.Context(), w.config(role))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { a.Stop(context.WithoutCancel(w.t.Context())) })
	require.NoError(w.t, a.Start(w.t.Context()))
	return a
}

// refused is the error of a process that does not start.
func (w *world) refused(role Role) string {
	w.t.Helper()
	a, err := New(w.t.Context(), w.config(role))
	if err == nil {
		a.Stop(w.t.Context())
	}
	require.Error(w.t, err)
	return err.Error()
}

// call makes a request without keeping connections, and reads all of the answer.
func call(t *testing.T, a *Assembly, method, path, token, body string) (*http.Response, string) {
	t.Helper()
	response := open(t, a, method, path, token, body)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response, string(text)
}

func open(t *testing.T, a *Assembly, method, path, token, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.Addr()+path, strings.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	return response
}

const chatPath = "/v1/chat/completions"

func chat(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hello"}]}`, model, stream)
}

// firstContent reads a stream up to its first piece of text and returns the reader of the rest.
func firstContent(t *testing.T, response *http.Response) *bufio.Reader {
	t.Helper()
	reader := bufio.NewReader(response.Body)
	for {
		line, err := reader.ReadString('\n')
		require.NoError(t, err)
		if strings.Contains(line, `"content":"`) && !strings.Contains(line, `"content":""`) {
			return reader
		}
	}
}

func freePort(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

// lines is a log that a test can read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
