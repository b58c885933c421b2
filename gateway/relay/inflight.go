package relay

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errShutdown is the cause of a context that a drain ended.
var errShutdown = errors.New("the gateway is shutting down")

// goodbye is how long a drain waits for requests it has ended to say so to their clients.
const goodbye = 2 * time.Second

// inFlight is the register of running requests, for shutdown.
type inFlight struct {
	mu       sync.Mutex
	running  map[*run]struct{}
	draining bool
	idle     chan struct{} // closed when draining and nothing runs
}

// enter registers a request and reports whether it may start.
func (f *inFlight) enter(r *run) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	if f.running == nil {
		f.running = make(map[*run]struct{})
	}
	f.running[r] = struct{}{}
	return true
}

func (f *inFlight) leave(r *run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, r)
	if f.draining && len(f.running) == 0 {
		close(f.idle)
	}
}

// shutdownBreaker lets a drain end whatever a request is doing, at the price of a lock
// instead of a context for every request.
type shutdownBreaker struct {
	mu     sync.Mutex
	broken bool
	cancel context.CancelCauseFunc
}

// guard says what a trip has to cancel from now on; a trip that has happened cancels at once.
func (b *shutdownBreaker) guard(cancel context.CancelCauseFunc) {
	b.mu.Lock()
	b.cancel = cancel
	broken := b.broken
	b.mu.Unlock()
	if broken && cancel != nil {
		cancel(errShutdown)
	}
}

func (b *shutdownBreaker) trip() {
	b.mu.Lock()
	b.broken = true
	cancel := b.cancel
	b.mu.Unlock()
	if cancel != nil {
		cancel(errShutdown)
	}
}

func (b *shutdownBreaker) tripped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.broken
}

// Drain refuses new requests and those that only wait for a target, lets those that run go on
// until ctx ends, and then ends the rest: a stream gets an error event, and its attempt blames
// nobody. It returns when no request runs, at the latest a moment after ctx. Only the first
// call does anything.
func (r *Relay) Drain(ctx context.Context) {
	f := &r.inFlight
	f.mu.Lock()
	if f.draining {
		f.mu.Unlock()
		return
	}
	f.draining = true
	f.idle = make(chan struct{})
	close(r.closing)
	if len(f.running) == 0 {
		close(f.idle)
	}
	f.mu.Unlock()

	select {
	case <-f.idle:
		return
	case <-ctx.Done():
	}
	f.mu.Lock()
	for r := range f.running {
		r.breaker.trip()
	}
	f.mu.Unlock()
	timer := time.NewTimer(goodbye)
	defer timer.Stop()
	select {
	case <-f.idle:
	case <-timer.C:
	}
}
