package fakeprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Outcome is how an attempt ended for the upstream.
type Outcome string

// Outcomes. A running attempt has none.
const (
	OutcomeAnswered   Outcome = "answered"
	OutcomeCut        Outcome = "cut"
	OutcomeClientGone Outcome = "client_gone"
)

// Attempt is one call that reached the provider.
type Attempt struct {
	Seq      int64       `json:"seq"`
	At       time.Time   `json:"at"`
	Key      string      `json:"-"` // in clear, for tests in this process only
	KeyHash  string      `json:"key"`
	Model    string      `json:"model"`
	Stream   bool        `json:"stream"`
	Proto    string      `json:"proto"`
	Header   http.Header `json:"headers"` // GET /__log hides credentials
	Body     []byte      `json:"body"`
	BodySize int         `json:"bodySize"`
	Status   int         `json:"status"` // sent; 0 when no header went out
	Tokens   int         `json:"tokens"` // of content sent so far
	Hanging  bool        `json:"hanging,omitempty"`
	Outcome  Outcome     `json:"outcome,omitempty"`
	EndedAt  time.Time   `json:"endedAt,omitzero"`
	ClosedAt time.Time   `json:"clientClosedAt,omitzero"` // when the caller hung up before the end
}

// KeyHash is how a key appears in the log: the first 12 hex digits of its SHA-256.
func KeyHash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:6])
}

// Attempts returns copies of what the log holds, oldest first.
func (p *Provider) Attempts() []Attempt { return p.log.all() }

// Calls returns the attempts with one key for one model; Any matches all.
func (p *Provider) Calls(key, model string) []Attempt {
	return slices.DeleteFunc(p.log.all(), func(a Attempt) bool {
		return Rule{Key: key, Model: model}.rank(a.Key, a.Model) == 0
	})
}

// Await returns once holds is true of the log, looking again at every change.
func (p *Provider) Await(ctx context.Context, holds func([]Attempt) bool) error {
	for {
		changed := p.log.changes()
		if holds(p.log.all()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Forget empties the log.
func (p *Provider) Forget() { p.log.clear() }

func presentedKey(h http.Header) string {
	if key, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok {
		return key
	}
	return h.Get("X-Api-Key")
}

// attemptLog is a bounded list; the oldest entries go first and are counted.
type attemptLog struct {
	mu      sync.Mutex
	limit   int
	seq     int64
	entries []*Attempt
	dropped int64
	changed chan struct{} // closed at the next change; nil when nobody waits
}

func (l *attemptLog) begin(a Attempt) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	a.Seq = l.seq
	if len(l.entries) >= l.limit {
		l.entries = slices.Delete(l.entries, 0, 1)
		l.dropped++
	}
	l.entries = append(l.entries, &a)
	l.announce()
	return a.Seq
}

func (l *attemptLog) end(seq int64, status, tokens int, how Outcome) {
	l.update(seq, func(a *Attempt) {
		a.Status, a.Tokens, a.Outcome, a.Hanging, a.EndedAt = status, tokens, how, false, time.Now()
	})
}

func (l *attemptLog) clientClosed(seq int64) {
	l.update(seq, func(a *Attempt) { a.ClosedAt = time.Now() })
}

func (l *attemptLog) hanging(seq int64) {
	l.update(seq, func(a *Attempt) { a.Hanging = true })
}

func (l *attemptLog) progress(seq int64, tokens int) {
	l.update(seq, func(a *Attempt) { a.Tokens, a.Hanging = tokens, false })
}

func (l *attemptLog) update(seq int64, change func(*Attempt)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, found := slices.BinarySearchFunc(l.entries, seq, func(a *Attempt, seq int64) int { return int(a.Seq - seq) })
	if found {
		change(l.entries[i])
		l.announce()
	}
}

func (l *attemptLog) all() []Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Attempt, 0, len(l.entries))
	for _, a := range l.entries {
		out = append(out, *a)
	}
	return out
}

func (l *attemptLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.dropped = nil, 0
	l.announce()
}

func (l *attemptLog) changes() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

// announce wakes whoever awaits a change; callers hold the lock.
func (l *attemptLog) announce() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
