package upstream

import (
	"context"
	"errors"
	"io"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// staleWithin is how soon an attempt notices that its socket was closed while it was idle: a
// round trip, generously. A socket that ends later ended under the request.
const staleWithin = 2 * time.Second

// watch is what an attempt learns of the socket it runs on. When the transport itself takes
// another socket, the last one counts. The transport reports from several goroutines.
type watch struct {
	trace    httptrace.ClientTrace
	foreign  bool         // bound to a trace of the caller's, for ever
	sockets  atomic.Int32 // how many the attempt took, one after the other
	took     atomic.Int64 // when it took a kept socket, in Unix nanoseconds; 0 for a fresh one
	answered atomic.Bool
}

// watches are those that no transport will report to any more.
var watches = sync.Pool{New: func() any { return newWatch() }}

func newWatch() *watch {
	w := &watch{}
	w.trace.GotConn = func(info httptrace.GotConnInfo) {
		w.sockets.Add(1)
		if info.Reused {
			w.took.Store(time.Now().UnixNano())
		} else {
			w.took.Store(0)
		}
	}
	w.trace.GotFirstResponseByte = func() { w.answered.Store(true) }
	return w
}

// watched derives the context that makes the transport report to the watch.
func watched(ctx context.Context) (context.Context, *watch) {
	var w *watch
	if httptrace.ContextClientTrace(ctx) == nil {
		w = watches.Get().(*watch)
	} else {
		w = newWatch()
		w.foreign = true
	}
	return httptrace.WithClientTrace(ctx, &w.trace), w
}

// release gives the watch of an attempt with an answer to a later attempt. An attempt that took
// one socket and has its answer has had every report. One that took several may still hear from
// an earlier one, and one that failed from any: their watches are left to them.
func (w *watch) release() {
	if w.foreign || w.sockets.Load() != 1 || !w.answered.Load() {
		return
	}
	w.sockets.Store(0)
	w.took.Store(0)
	w.answered.Store(false)
	watches.Put(w)
}

// stale reports whether a round trip failed because a kept socket had been closed by the
// server while it was idle, which crosses with a request that is just being sent: the socket
// was used before, not one byte of an answer came, and it ended at once, by a FIN. A reset is
// no such end: it does not tell whether the server had read the request. Nor is a limit of ours
// or the client's leaving.
func (w *watch) stale(ctx context.Context, err error) bool {
	took := w.took.Load()
	if ctx.Err() != nil || took == 0 || w.answered.Load() || time.Since(time.Unix(0, took)) > staleWithin {
		return false
	}
	// A write after the peer's FIN is answered by a broken pipe. For a socket that ended between
	// being chosen and being used, net/http has no typed error.
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) ||
		strings.Contains(err.Error(), "server closed idle connection")
}
