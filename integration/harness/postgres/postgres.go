// Package postgres starts a real PostgreSQL for tests from the installed binaries, in a
// temporary directory, as a user that is not root. Nothing of it survives the test.
package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// User is the superuser of the test servers. Connections are trusted.
const User = "omniroute"

const (
	startTimeout = 60 * time.Second // initdb and start on a busy machine
	stopTimeout  = 10 * time.Second
	startTries   = 3 // the TCP port is picked before the server takes it
)

// Server is one PostgreSQL server. It listens on a Unix socket and on loopback TCP.
type Server struct {
	binaries   string
	dir        string // holds data/, the socket and the log
	port       int
	credential *syscall.Credential

	mu      sync.Mutex
	process *exec.Cmd
	exited  chan struct{}
}

var shared struct {
	sync.Mutex
	server *Server
}

// Main runs the tests of a package whose tests use Shared, and stops that server afterwards:
//
//	func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }
func Main(m *testing.M) int {
	defer func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.server != nil {
			shared.server.remove()
			shared.server = nil
		}
	}()
	return m.Run()
}

// Shared returns the one server of the test binary, started by its first user. The package's
// TestMain must be Main.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		server, err := start()
		if err != nil {
			tb.Fatal(err)
		}
		shared.server = server
	}
	return shared.server
}

// Start runs a server of its own for a test that pauses or stops it.
func Start(tb testing.TB) *Server {
	tb.Helper()
	server, err := start()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.remove)
	return server
}

// Database creates an empty database for the test and returns its URL, over the socket.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	return s.URL(s.create(tb, ""))
}

// DatabaseTCP is Database with a URL over loopback TCP, for tests that put a proxy in between.
func (s *Server) DatabaseTCP(tb testing.TB) string {
	tb.Helper()
	return s.TCPURL(s.create(tb, ""))
}

// DatabaseLike creates a copy of a database that Database made, and returns its URL. Nothing
// may be connected to the original meanwhile.
func (s *Server) DatabaseLike(tb testing.TB, original string) string {
	tb.Helper()
	config, err := pgx.ParseConfig(original)
	if err != nil {
		tb.Fatal(err)
	}
	return s.URL(s.create(tb, "TEMPLATE "+config.Database))
}

// URL is the address of a database over the Unix socket.
func (s *Server) URL(database string) string {
	query := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}, "user": {User}}
	return "postgres:///" + database + "?" + query.Encode()
}

// TCPURL is the address of a database over loopback TCP.
func (s *Server) TCPURL(database string) string {
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", User, s.Addr(), database)
}

// Addr is the server's TCP address.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Pause freezes the server and everything it runs: connections stay open, nothing answers.
func (s *Server) Pause(tb testing.TB) {
	tb.Helper()
	s.signalAll(tb, syscall.SIGSTOP)
}

// Resume ends a Pause.
func (s *Server) Resume(tb testing.TB) {
	tb.Helper()
	s.signalAll(tb, syscall.SIGCONT)
}

// Kill ends the server at once, without a checkpoint, as a crash would: connections break,
// new ones are refused, what was committed stays.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	if err := s.stop(); err != nil {
		tb.Fatal(err)
	}
}

// Restart starts the server again on the same data, socket and port.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

func start() (*Server, error) {
	binaries, err := findBinaries()
	if err != nil {
		return nil, err
	}
	s := &Server{binaries: binaries}
	if s.credential, err = unprivileged(); err != nil {
		return nil, err
	}
	// A short path: a Unix socket's is at most about 100 characters.
	if s.dir, err = os.MkdirTemp("", "omniroute-pg-"); err != nil {
		return nil, err
	}
	if s.credential != nil {
		if err := os.Chown(s.dir, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			return nil, err
		}
	}
	if err := s.init(); err != nil {
		s.remove()
		return nil, err
	}
	for range startTries {
		if s.port, err = freePort(); err != nil {
			break
		}
		if err = s.run(); err == nil {
			return s, nil
		}
	}
	s.remove()
	return nil, err
}

func (s *Server) init() error {
	initdb := s.command("initdb", "-D", s.data(), "-U", User, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if output, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, output)
	}
	return nil
}

// run starts the server process and waits until it takes connections.
func (s *Server) run() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	process := s.command("postgres", "-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "shared_buffers=32MB",
		// A machine that loses power is not what the tests are about, and guarding against it is
		// most of the time they would take. A killed server still keeps what was committed.
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "jit=off")
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		process.Wait() //nolint:errcheck // how it ended is in its log
		close(exited)
	}()
	s.mu.Lock()
	s.process, s.exited = process, exited
	s.mu.Unlock()
	if err := s.ready(exited); err != nil {
		s.stop() //nolint:errcheck // the error of starting is the one to tell
		output, _ := os.ReadFile(log.Name())
		return fmt.Errorf("postgres did not start: %w\n%s", err, output)
	}
	return nil
}

func (s *Server) ready(exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		connection, err := pgx.Connect(ctx, s.TCPURL("postgres"))
		if err == nil {
			return connection.Close(ctx)
		}
		select {
		case <-exited:
			return fmt.Errorf("it exited: %w", err)
		case <-ctx.Done():
			return err
		case <-again.C:
		}
	}
}

// stop is Postgres' immediate shutdown: it ends its children, releases its shared memory and
// writes nothing. SIGKILL would leave the memory to be waited for.
func (s *Server) stop() error {
	s.mu.Lock()
	process, exited := s.process, s.exited
	s.process = nil
	s.mu.Unlock()
	if process == nil {
		return nil
	}
	process.Process.Signal(syscall.SIGQUIT) //nolint:errcheck // it may have exited already
	process.Process.Signal(syscall.SIGCONT) //nolint:errcheck // a paused server takes the signal only then
	timeout := time.NewTimer(stopTimeout)
	defer timeout.Stop()
	select {
	case <-exited:
		return nil
	case <-timeout.C:
		process.Process.Kill() //nolint:errcheck // it may have exited by now
		<-exited
		return fmt.Errorf("postgres did not stop within %s", stopTimeout)
	}
}

func (s *Server) remove() {
	for _, pid := range s.children() {
		syscall.Kill(pid, syscall.SIGCONT) //nolint:errcheck // it may be gone
	}
	s.stop()            //nolint:errcheck // it was killed then
	os.RemoveAll(s.dir) //nolint:errcheck // a leftover in the temporary directory harms nobody
}

// create leaves the database to go with the server: dropping one waits for a checkpoint.
func (s *Server) create(tb testing.TB, options string) string {
	tb.Helper()
	name := "test_" + randomHex()
	s.admin(tb, "CREATE DATABASE "+name+" "+options)
	return name
}

func (s *Server) admin(tb testing.TB, statement string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	connection, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		tb.Fatal(err)
	}
	defer connection.Close(ctx) //nolint:errcheck // the statement's outcome is what counts
	if _, err := connection.Exec(ctx, statement); err != nil {
		tb.Fatal(err)
	}
}

// signalAll reaches every backend: each is the leader of its own process group.
func (s *Server) signalAll(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process == nil {
		tb.Fatal("the server is not running")
	}
	// The postmaster first, so that it starts no new child meanwhile.
	if err := process.Process.Signal(signal); err != nil {
		tb.Fatal(err)
	}
	for _, pid := range s.children() {
		syscall.Kill(pid, signal) //nolint:errcheck // a backend may have ended just now
	}
}

func (s *Server) children() []int {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process == nil {
		return nil
	}
	listing, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(listing)) {
		var pid, parent int
		if n, _ := fmt.Sscan(line, &pid, &parent); n == 2 && parent == process.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	command := exec.Command(filepath.Join(s.binaries, name), args...)
	command.SysProcAttr = processAttributes(s.credential)
	command.Dir = s.dir
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + s.dir}
	return command
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close() //nolint:errcheck // it was open a moment ago
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func randomHex() string {
	raw := make([]byte, 6)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never returns an error
	return hex.EncodeToString(raw)
}
