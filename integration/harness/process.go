package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Process is a program of ours that runs for the life of a test.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output output
	done   chan struct{}
	err    error // of Wait; valid once done is closed
}

// Spawn starts a program. It is killed at the end of the test; a data race it reported fails
// the test, and a failed test shows its last lines.
func Spawn(t testing.TB, name string, env []string, program string, args ...string) *Process {
	t.Helper()
	p := &Process{name: name, cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=halt_on_error=0"}, env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	// The kernel ends it if the test binary dies first.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.cmd.Start(), name)
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if strings.Contains(p.Output(), "WARNING: DATA RACE") {
			t.Errorf("%s has a data race:\n%s", p.name, p.Output())
		} else if t.Failed() {
			t.Logf("last output of %s:\n%s", p.name, p.output.tail(20000))
		}
	})
	return p
}

// Run runs a program to its end and returns its output and exit code.
func Run(t testing.TB, env []string, program string, args ...string) (string, int) {
	t.Helper()
	p := Spawn(t, program, env, program, args...)
	code := p.Wait(t, 60*time.Second)
	return p.Output(), code
}

// Output is what the program has written so far, on either stream.
func (p *Process) Output() string { return p.output.String() }

// Running reports whether the program has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal to a running program.
func (p *Process) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(signal), p.name)
}

// Kill ends the program as kill -9 does and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// Wait returns the exit code once the program has ended by itself.
func (p *Process) Wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		require.Failf(t, "still running", "%s after %s:\n%s", p.name, limit, p.output.tail(4000))
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, p.err, p.name)
	return 0
}

// Says waits until the program has written text.
func (p *Process) Says(t testing.TB, limit time.Duration, text string) {
	t.Helper()
	Await(t, limit, fmt.Sprintf("%s says %q", p.name, text), func() error {
		if strings.Contains(p.Output(), text) {
			return nil
		}
		if !p.Running() {
			require.Failf(t, "ended early", "%s: %v\n%s", p.name, p.err, p.output.tail(4000))
		}
		return fmt.Errorf("output so far:\n%s", p.output.tail(2000))
	})
}

// output keeps what a program writes, up to a bound that no test should reach.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const outputLimit = 32 << 20

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.b.Len() < outputLimit {
		o.b.Write(p)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}
