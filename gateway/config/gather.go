package config

import (
	"io"
	"sync"
	"time"
)

const (
	gatherFor  = 50 * time.Millisecond // how long a line may wait for others
	gatherSize = 32 << 10              // bytes that are written at once
)

// Gathered writes what comes in quick succession with one system call: a gateway writes a
// line per request, and the call costs more than the line. Nothing waits longer than 50 ms,
// nothing is dropped, and after Close every line is written at once.
type Gathered struct {
	out io.Writer

	mu     sync.Mutex
	buf    []byte
	timer  *time.Timer
	armed  bool
	closed bool
}

// Gather makes a Gathered over out.
func Gather(out io.Writer) *Gathered {
	g := &Gathered{out: out}
	g.timer = time.AfterFunc(time.Hour, g.flush)
	g.timer.Stop()
	return g
}

// Write implements io.Writer. An error of an earlier write is reported to nobody: there is
// no place left to log it.
func (g *Gathered) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return g.out.Write(p)
	}
	g.buf = append(g.buf, p...)
	switch {
	case len(g.buf) >= gatherSize:
		g.write()
	case !g.armed:
		g.armed = true
		g.timer.Reset(gatherFor)
	}
	return len(p), nil
}

// Close writes what is gathered. Lines may still come; they are not gathered any more.
func (g *Gathered) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.timer.Stop()
	g.write()
}

func (g *Gathered) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	g.write()
}

func (g *Gathered) write() {
	if len(g.buf) > 0 {
		_, _ = g.out.Write(g.buf)
		g.buf = g.buf[:0]
	}
}
