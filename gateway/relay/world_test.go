package relay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/access"
	"omniroute/gateway/dialect/sse"
	"omniroute/gateway/ingress"
	"omniroute/gateway/relay"
	"omniroute/gateway/upstream"
	"omniroute/models"
	"omniroute/models/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientKey = "omr_test-key-of-the-client"

var limits = catalog.Timeouts{
	Connect: 2 * time.Second, Headers: 10 * time.Second, FirstContent: 20 * time.Second, Idle: 30 * time.Second, Total: 10 * time.Minute,
}

// world is a whole gateway edge between a real HTTP client and a real HTTP server, joined by
// pipes in memory, so that in a synctest bubble every limit is exact and takes no time. Only
// the health of targets is a stand-in, which counts how every attempt ends.
type world struct {
	t        *testing.T
	health   *health
	ledger   *ledger
	registry *prometheus.Registry
	relay    *relay.Relay
	log      *logrus.Logger
	client   *http.Client
	draw     uint64 // what the relay's dice show

	mu       sync.Mutex
	scripts  map[models.ConnectionID]http.HandlerFunc
	seen     []models.ConnectionID // attempts as the upstream saw them
	bodies   []string
	hungUp   chan models.ConnectionID // an upstream handler saw its request's end
	shutdown []func()
}

// newWorld has a provider "p" with model m and connections c1, c2 and c3, a provider "q" with
// model n and connection d1, and a combo "best" of p/m on c1, then q/n.
func newWorld(t *testing.T) *world {
	w := &world{
		t: t, health: newHealth(), ledger: &ledger{}, registry: prometheus.NewRegistry(),
		scripts: map[models.ConnectionID]http.HandlerFunc{}, hungUp: make(chan models.ConnectionID, 100),
	}
	up := newPipes()
	provider := &http.Server{Handler: http.HandlerFunc(w.serveUpstream)}
	go provider.Serve(up) //nolint:errcheck // ends with Close
	transport := &http.Transport{DialContext: up.dial, DisableCompression: true}
	sockets := upstream.New(upstream.Options{RoundTripper: transport})

	log := logrus.New()
	log.SetOutput(io.Discard)
	w.log = log
	w.relay = relay.New(relay.Options{
		Health: w.health, Upstream: sockets, Ledger: w.ledger, Log: logrus.NewEntry(log), Registerer: w.registry,
		Rand: func() uint64 { return w.draw },
	})
	edge := ingress.New(ingress.Options{
		Relay: w.relay, Health: w.health, HashKey: hashKey, Ledger: w.ledger, Refusals: access.NewRefusals(log, w.registry), Log: logrus.NewEntry(log),
	})
	down := newPipes()
	front := &http.Server{Handler: edge}
	go front.Serve(down) //nolint:errcheck // ends with Close
	own := &http.Transport{DialContext: down.dial, DisableCompression: true}
	w.client = &http.Client{Transport: own}
	w.shutdown = []func(){own.CloseIdleConnections, func() { front.Close() }, transport.CloseIdleConnections, func() { provider.Close() }}
	return w
}

// close ends everything that runs, inside the bubble.
func (w *world) close() {
	for _, stop := range w.shutdown {
		stop()
	}
	synctest.Wait()
}

// inBubble runs a test with a world whose time is the bubble's.
func inBubble(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		defer w.close()
		test(t, w)
		w.health.requireSettled(t)
	})
}

func (w *world) script(connection models.ConnectionID, handler http.HandlerFunc) {
	w.scripts[connection] = handler
}

func (w *world) serveUpstream(rw http.ResponseWriter, r *http.Request) {
	connection := models.ConnectionID(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer sk-"))
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.seen = append(w.seen, connection)
	w.bodies = append(w.bodies, string(body))
	handler := w.scripts[connection]
	w.mu.Unlock()
	if handler == nil {
		handler = healthy(5)
	}
	handler(rw, r)
	select {
	case <-r.Context().Done():
		w.hungUp <- connection
	default:
	}
}

func (w *world) attempts() []models.ConnectionID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]models.ConnectionID(nil), w.seen...)
}

// reply is what a client got.
type reply struct {
	status  int
	header  http.Header
	body    string
	events  []string // payloads of a stream
	readErr error
	took    time.Duration
}

func (w *world) send(ctx context.Context, model string, stream bool, extra string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hi"}]%s}`, model, stream, extra)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/v1/chat/completions", strings.NewReader(body))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+clientKey)
	return w.client.Do(req)
}

func (w *world) chat(model string, stream bool) reply { return w.chatWith(model, stream, "") }

func (w *world) chatWith(model string, stream bool, extra string) reply {
	started := time.Now()
	resp, err := w.send(context.Background(), model, stream, extra)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	body, readErr := io.ReadAll(resp.Body)
	return reply{
		status: resp.StatusCode, header: resp.Header, body: string(body),
		events: payloads(w.t, string(body)), readErr: readErr, took: time.Since(started),
	}
}

func payloads(t *testing.T, body string) []string {
	reader := sse.NewReader(strings.NewReader(body), 64<<20)
	defer reader.Release()
	var all []string
	for {
		for {
			event, ok := reader.Next()
			if !ok {
				break
			}
			if event.HasData {
				data := string(event.Data)
				require.True(t, data == "[DONE]" || json.Valid(event.Data), "every event is JSON: %s", data)
				all = append(all, data)
			}
		}
		if reader.Fill() != nil {
			return all
		}
	}
}

// text joins what a stream's or an answer's choices say.
func (r reply) text() string {
	var b strings.Builder
	for _, event := range append([]string{r.body}, r.events...) {
		var parsed struct {
			Choices []struct {
				Delta, Message struct{ Content string }
			}
		}
		if json.Unmarshal([]byte(event), &parsed) == nil {
			for _, c := range parsed.Choices {
				b.WriteString(c.Delta.Content + c.Message.Content)
			}
		}
	}
	return b.String()
}

// count is how many events hold the text.
func (r reply) count(part string) int {
	n := 0
	for _, event := range r.events {
		if strings.Contains(event, part) {
			n++
		}
	}
	return n
}

type problem struct {
	Error struct {
		Message, Type, Code string
		Param               *string
	}
	Diagnostics relay.Diagnostics
}

func (r reply) problem(t *testing.T) problem {
	var p problem
	require.NoError(t, json.Unmarshal([]byte(r.body), &p), r.body)
	return p
}

// lastError is the error event that ends a broken stream.
func (r reply) lastError(t *testing.T) problem {
	require.NotEmpty(t, r.events)
	var p problem
	require.NoError(t, json.Unmarshal([]byte(r.events[len(r.events)-1]), &p))
	require.NotEmpty(t, p.Error.Message)
	require.NotEmpty(t, p.Error.Type)
	return p
}

// Upstream scripts.

func token(i int) string { return fmt.Sprintf("t%d世🚀 ", i) }

func tokenText(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(token(i))
	}
	return b.String()
}

const (
	roleEvent   = `{"id":"x","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"unknown":{"kept":1}}`
	finishEvent = `{"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	usageEvent  = `{"id":"x","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":60}}`
)

func tokenEvent(i int) string {
	encoded, _ := json.Marshal(token(i))
	return fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"content":%s},"finish_reason":null}]}`, encoded)
}

func isStream(r *http.Request) bool { return r.Header.Get("Accept") == "text/event-stream" }

func say(w http.ResponseWriter, events ...string) {
	for _, event := range events {
		fmt.Fprintf(w, "data: %s\n\n", event)
	}
	http.NewResponseController(w).Flush() //nolint:errcheck // the gateway may be gone
}

func openStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	say(w)
}

// healthy answers with n tokens.
func healthy(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isStream(r) {
			encoded, _ := json.Marshal(tokenText(n))
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":60},"unknown":1}`, encoded)
			return
		}
		openStream(w)
		say(w, roleEvent)
		for i := range n {
			say(w, tokenEvent(i))
		}
		say(w, finishEvent)
		say(w, usageEvent, "[DONE]")
	}
}

// cut sends a role, n tokens and whatever else, and then breaks off.
func cut(n int, clean bool, more ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		openStream(w)
		say(w, roleEvent)
		for i := range n {
			say(w, tokenEvent(i))
		}
		if len(more) > 0 {
			say(w, more...)
		}
		if !clean {
			panic(http.ErrAbortHandler)
		}
	}
}

func refuse(status int, body string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body) //nolint:errcheck // the gateway may be gone
	}
}

// hang waits for the gateway to give up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// rest lets time pass in a script, as long as the gateway is there.
func rest(r *http.Request, d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Context().Done():
	}
}

// Stand-ins.

func hashKey(clear string) (hash [32]byte) {
	copy(hash[:], clear)
	return hash
}

type ledger struct {
	mu   sync.Mutex
	rows []catalog.RequestRecord
}

func (l *ledger) Offer(r catalog.RequestRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, r)
}

func (l *ledger) last(t *testing.T) catalog.RequestRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NotEmpty(t, l.rows)
	return l.rows[len(l.rows)-1]
}

// pipes is a listener whose connections are pipes in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }
