package ingress

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"time"

	"omniroute/gateway/relay"
	"omniroute/models"
)

const (
	idPrefix         = "req_"
	longestRequestID = 128 // of an id that a client brings along
)

// exchange is one request at the edge and the way back: what it is called, and whether
// anything was sent.
type exchange struct {
	http.ResponseWriter
	// id is ours and unique; it names the request in the ledger and in the log.
	id models.RequestID
	// clientID is what the client calls it, which other requests may be called too.
	clientID string
	started  time.Time
	wrote    bool
}

// exchangeOf is the exchange of a handler's writer: guard is around every route.
func exchangeOf(w http.ResponseWriter) *exchange { return w.(*exchange) }

// guard gives every request an id and turns a panic into an answer that tells nothing of
// our inside.
func (e *edge) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, id: newRequestID(), started: time.Now()}
		called := string(x.id)
		if brought := r.Header[relay.HeaderRequestID]; len(brought) == 1 && harmless(brought[0]) {
			x.clientID, called = brought[0], brought[0]
		}
		w.Header()[relay.HeaderRequestID] = []string{called}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if cause == http.ErrAbortHandler { //nolint:errorlint // panics with the very value
				panic(cause)
			}
			e.Log.WithField("request", x.id).WithField("panic", cause).Error("handler panicked\n" + string(debug.Stack()))
			if x.wrote {
				panic(http.ErrAbortHandler) // half an answer must not look like a whole one
			}
			writeProblem(w, models.Errorf(models.CodeInternal, "The gateway failed on this request; its log says more under %s.", x.id))
		}()
		next.ServeHTTP(x, r)
	})
}

// newRequestID makes an id, which must be unique, not secret.
func newRequestID() models.RequestID {
	var random [16]byte
	binary.NativeEndian.PutUint64(random[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(random[8:], rand.Uint64())
	id := [len(idPrefix) + 2*len(random)]byte{}
	hex.Encode(id[copy(id[:], idPrefix):], random[:])
	return models.RequestID(id[:])
}

// harmless reports whether a client's own id may stand in a log and a header.
func harmless(id string) bool {
	if id == "" || len(id) > longestRequestID {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}

func (x *exchange) WriteHeader(status int) {
	x.wrote = true
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	x.wrote = true
	return x.ResponseWriter.Write(p)
}

// FlushError and Flush let a handler flush whichever way it is used to.
func (x *exchange) FlushError() error {
	x.wrote = true
	return http.NewResponseController(x.ResponseWriter).Flush()
}

func (x *exchange) Flush() { _ = x.FlushError() }

// Unwrap gives http.ResponseController the rest.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }
