package access

import (
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/models"
)

// How many refusals of callers that nobody knows are logged: whoever guesses keys or paths must
// not be able to fill a disk.
const (
	strangersAtOnce = 10
	strangersEvery  = time.Second
)

// longestPath bounds what a log line repeats of a client's own text, in bytes.
const longestPath = 200

// Refusal is a request that was turned away before it came to anything.
type Refusal struct {
	Request       string // our id
	ClientRequest string // the id that the client brought along, if it did
	Who           string // the key or operator; empty when nobody is known
	Err           *models.Error
}

// Refusals tells an operator of requests that were turned away: a counter by code, and one log
// line each, without bodies and keys. It is safe for concurrent use.
type Refusals struct {
	log     logrus.FieldLogger
	counter *prometheus.CounterVec

	mu         sync.Mutex
	tokens     int       // lines that strangers may still cause
	refilled   time.Time // when tokens were last added
	suppressed int       // lines left out since the last one
}

// NewRefusals registers the counter; a nil registerer leaves it unregistered.
func NewRefusals(log logrus.FieldLogger, registerer prometheus.Registerer) *Refusals {
	r := &Refusals{log: log, tokens: strangersAtOnce, counter: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "omniroute_requests_refused_total", Help: "Requests refused before routing, by the code of the error.",
	}, []string{"code"})}
	if registerer != nil {
		registerer.MustRegister(r.counter)
	}
	return r
}

// Note counts and logs a refusal. Of callers that nobody knows, ten are logged at once and then
// one a second; the next line says how many were left out.
func (r *Refusals) Note(req *http.Request, refusal Refusal) {
	r.counter.WithLabelValues(string(refusal.Err.Code)).Inc()
	fields := logrus.Fields{
		"request": refusal.Request, "method": req.Method, "path": req.URL.Path[:min(len(req.URL.Path), longestPath)],
		"status": refusal.Err.Status(), "code": refusal.Err.Code,
	}
	if refusal.ClientRequest != "" {
		fields["client_request"] = refusal.ClientRequest
	}
	if host, _, err := net.SplitHostPort(req.RemoteAddr); err == nil {
		fields["remote"] = host
	}
	if refusal.Who != "" {
		fields["key"] = refusal.Who
	} else {
		may, suppressed := r.strangersLine(time.Now())
		if !may {
			return
		}
		if suppressed > 0 {
			fields["suppressed"] = suppressed
		}
	}
	r.log.WithFields(fields).Info("request refused")
}

// strangersLine takes a token and reports whether there was one, and how many lines were left
// out before.
func (r *Refusals) strangersLine(now time.Time) (may bool, suppressed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if earned := int(now.Sub(r.refilled) / strangersEvery); earned > 0 {
		r.tokens, r.refilled = min(strangersAtOnce, r.tokens+earned), now
	}
	if r.tokens == 0 {
		r.suppressed++
		return false, 0
	}
	r.tokens--
	suppressed, r.suppressed = r.suppressed, 0
	return true, suppressed
}
