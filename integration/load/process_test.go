package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/assembly"
	"omniroute/gateway/config"
	"omniroute/integration/harness/postgres"
	"omniroute/models/secrets"
)

const (
	roleVariable     = "OMNIROUTE_LOAD_ROLE" // set in the processes this package starts of itself
	upstreamVariable = "OMNIROUTE_LOAD_UPSTREAM"
	dirVariable      = "OMNIROUTE_LOAD_DIR"
	databaseVariable = "OMNIROUTE_LOAD_DATABASE"
	profileVariable  = "OMNIROUTE_LOAD_PROFILE" // a directory for a CPU profile of each process
	clientKey        = "omr_the-key-of-the-load-generator-00000000"
)

func TestMain(m *testing.M) {
	serve, known := map[string]func(net.Listener) error{
		"upstream": serveUpstream, "proxy": serveProxy, "gateway": serveGateway,
	}[os.Getenv(roleVariable)]
	if !known {
		os.Exit(postgres.Main(m))
	}
	if err := runRole(serve); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// usage is what a process has spent so far.
type usage struct {
	CPU     time.Duration
	Mallocs uint64
	Anon    int64 // bytes of memory of its own in RAM now
	Peak    int64 // bytes in RAM at most since the last question
	Routine int
}

// runRole serves until standard input ends, and answers every line of it with a usage.
func runRole(serve func(net.Listener) error) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if dir := os.Getenv(profileVariable); dir != "" {
		file, err := os.Create(filepath.Join(dir, os.Getenv(roleVariable)+".cpu"))
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
		defer writeAllocations(filepath.Join(dir, os.Getenv(roleVariable)+".allocs"))
	}
	failed := make(chan error, 1)
	go func() { failed <- serve(listener) }()
	_, _ = fmt.Fprintln(os.Stdout, listener.Addr())
	watch := watchMemory()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		select {
		case err := <-failed:
			return err
		default:
		}
		if lines.Text() == "collect" {
			debug.FreeOSMemory()
		}
		var spent syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
			return err
		}
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		now, peak := watch()
		if err := json.NewEncoder(os.Stdout).Encode(usage{
			CPU:     time.Duration(spent.Utime.Nano() + spent.Stime.Nano()),
			Mallocs: memory.Mallocs, Anon: now, Peak: peak, Routine: runtime.NumGoroutine(),
		}); err != nil {
			return err
		}
	}
	return nil
}

// writeAllocations writes what was allocated since the start.
func writeAllocations(path string) {
	file, err := os.Create(path)
	if err != nil {
		return
	}
	defer file.Close()
	pprof.Lookup("allocs").WriteTo(file, 0) //nolint:errcheck // a profile that is missing is noticed
}

// watchMemory samples the memory in RAM and returns a reader of the latest sample and the
// highest since the last reading.
func watchMemory() func() (now, peak int64) {
	var (
		mu      sync.Mutex
		highest int64
	)
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			mu.Lock()
			highest = max(highest, anonymous())
			mu.Unlock()
		}
	}()
	return func() (int64, int64) {
		mu.Lock()
		defer mu.Unlock()
		now := anonymous()
		peak := max(highest, now)
		highest = 0
		return now, peak
	}
}

// anonymous is the process's memory in RAM that is not backed by a file.
func anonymous() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kilobytes); n == 1 {
			return kilobytes << 10
		}
	}
	return 0
}

// The roles.

const (
	chunks     = 100
	slowChunks = 20
	slowPause  = 50 * time.Millisecond
)

var (
	answer = []byte(`{"id":"chatcmpl-load","object":"chat.completion","created":1760000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` +
		strings.Repeat("All work and no play. ", 36) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":60,"total_tokens":71}}`)
	event  = []byte(`data: {"id":"chatcmpl-load","object":"chat.completion.chunk","created":1760000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")
	ending = []byte(`data: {"id":"chatcmpl-load","object":"chat.completion.chunk","created":1760000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"id":"chatcmpl-load","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":60,"total_tokens":71}}` + "\n\ndata: [DONE]\n\n")
)

// serveUpstream answers with 1 KB, or with a stream as fast or as slowly as its path says.
func serveUpstream(listener net.Listener) error {
	stream := func(n int, pause time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 4<<10)
			length, _ := r.Body.Read(body)
			if !strings.Contains(string(body[:length]), `"stream":true`) {
				w.Header().Set("Content-Type", "application/json")
				w.Write(answer) //nolint:errcheck // the client counts what arrives
				return
			}
			w.Header().Set("Content-Type", "text/event-stream")
			out := http.NewResponseController(w)
			for range n {
				w.Write(event) //nolint:errcheck // the client counts what arrives
				out.Flush()    //nolint:errcheck // the client counts what arrives
				if pause > 0 {
					time.Sleep(pause)
				}
			}
			w.Write(ending) //nolint:errcheck // the client counts what arrives
		}
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/fast/v1/chat/completions", stream(chunks, 0))
	routes.HandleFunc("/slow/v1/chat/completions", stream(slowChunks, slowPause))
	return http.Serve(listener, routes)
}

// bytesPool is httputil's buffer pool.
type bytesPool struct{ pool sync.Pool }

func (p *bytesPool) Get() []byte  { return *p.pool.Get().(*[]byte) }
func (p *bytesPool) Put(b []byte) { p.pool.Put(&b) }

// serveProxy is the baseline: a reverse proxy as good as net/http makes it. Without full
// duplex about one in a hundred instant streams breaks.
func serveProxy(listener net.Listener) error {
	target, err := url.Parse("http://" + os.Getenv(upstreamVariable))
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{MaxIdleConns: 4096, MaxIdleConnsPerHost: 4096, IdleConnTimeout: time.Minute, DisableCompression: true},
		FlushInterval: -1,
		BufferPool:    &bytesPool{sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}},
	}
	return http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex() //nolint:errcheck // HTTP/1.1 always can
		proxy.ServeHTTP(w, r)
	}))
}

// serveGateway is the production assembly on Postgres. Temporal is away: a healthy gateway
// does not need it.
func serveGateway(listener net.Listener) error {
	dir := os.Getenv(dirVariable)
	ring, err := secrets.GenerateKeyRing()
	if err != nil {
		return err
	}
	up := os.Getenv(upstreamVariable)
	catalog := fmt.Sprintf(`
providers:
  - {id: fast, class: api_key, dialect: openai, baseURL: "http://%[1]s/fast/v1"}
  - {id: slow, class: api_key, dialect: openai, baseURL: "http://%[1]s/slow/v1"}
connections:
  - {id: fast-1, provider: fast, credential: {apiKey: sk-load-1}, priority: 1}
  - {id: fast-2, provider: fast, credential: {apiKey: sk-load-2}, priority: 2}
  - {id: slow-1, provider: slow, credential: {apiKey: sk-load-3}, priority: 1}
models:
  - {id: m, provider: fast}
  - {id: s, provider: slow}
apiKeys:
  - {name: load, key: %[2]q, scopes: [inference]}
`, up, clientKey)
	file := filepath.Join(dir, "catalog.yaml")
	if err := os.WriteFile(file, []byte(catalog), 0o600); err != nil {
		return err
	}
	var settings config.Config
	settings.DataDir, settings.DatabaseURL = dir, os.Getenv(databaseVariable)
	settings.EncryptionKeys, settings.CatalogFile, settings.Migrate = ring, file, true
	settings.TemporalAddress = "127.0.0.1:1" // nobody listens there
	settings.LedgerRetention, settings.DrainTimeout = 24*time.Hour, time.Second
	settings.LogLevel, settings.LogFormat = "info", "json"
	gateway, err := assembly.New(context.Background(), assembly.Config{
		Role: assembly.RoleGateway, Settings: settings, Version: "load", Log: settings.Logger(config.Gather(os.Stderr)), Listener: listener,
	})
	if err != nil {
		return err
	}
	if err := gateway.Start(context.Background()); err != nil {
		return err
	}
	return <-gateway.Failed()
}

// process is one of the above, started.
type process struct {
	tb      testing.TB
	name    string
	address string
	in      *os.File
	out     *bufio.Scanner
}

func start(tb testing.TB, name string, environ ...string) *process {
	exe, err := os.Executable()
	require.NoError(tb, err)
	cmd := exec.Command(exe)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+name, dirVariable+"="+tb.TempDir()), environ...)
	logged, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	require.NoError(tb, err)
	cmd.Stderr = logged // to a file, as a log usually is
	reader, in, err := os.Pipe()
	require.NoError(tb, err)
	cmd.Stdin = reader
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	p := &process{tb: tb, name: name, in: in, out: bufio.NewScanner(out)}
	tb.Cleanup(func() {
		in.Close()
		reader.Close()
		cmd.Wait() //nolint:errcheck // it ends with its input
		logged.Close()
	})
	require.True(tb, p.out.Scan(), "%s did not start: see %s", name, logged.Name())
	p.address = p.out.Text()
	p.usage("collect") // and notice a failed start
	return p
}

func (p *process) usage(question string) usage {
	_, err := fmt.Fprintln(p.in, question)
	require.NoError(p.tb, err)
	require.True(p.tb, p.out.Scan(), "%s is gone", p.name)
	var u usage
	require.NoError(p.tb, json.Unmarshal(p.out.Bytes(), &u))
	return u
}
