package routing

import (
	"time"

	"omniroute/models"
)

// Query is everything the order of one request depends on. The same query gives the same plan:
// the time and the random numbers are arguments, and what is remembered of earlier requests is in
// Memory.
type Query struct {
	Strategy   string
	Tuning     *Tuning // never nil for a combo
	Candidates []Candidate
	Request    Request
	// Memory is what the combo's strategy remembers; nil for a plain model. Order changes it, so
	// whoever owns it holds its lock.
	Memory *Memory
	Now    time.Time
	Rand   func() uint64 // uniform over all 64 bits
}

// Request is what strategies may know of a request: sizes and keys, never its text.
type Request struct {
	InputTokens  int    // estimated
	OutputTokens int    // what it asks for at most; 0 = it does not say
	CacheKey     string // names the part of a prompt that others may share; empty = none
	Session      string // names the conversation, scoped by API key; empty = unknown
	Task         Task
	Auto         AutoRequest
}

// Facts are what is known of a candidate beside its place in the catalog. What is not known is
// zero unless a field says otherwise.
type Facts struct {
	InFlight      int // attempts under way through its connection
	MaxConcurrent int // of its connection; 0 = unbounded

	// Of this model through this connection, decaying.
	Samples     float64       // how much evidence there is, in attempts
	SuccessRate float64       // 0..1; meaningless without samples
	Latency     time.Duration // mean time to the first content
	LatencyP95  time.Duration
	Deviation   time.Duration // standard deviation of the time to the first content
	Quality     float64       // 0..1, share of answers that were usable; negative = unknown

	Price         Price
	ContextWindow int // tokens; 0 = unknown
	Capabilities  []string
	Tier          Tier
	Class         models.Class
	Opening       bool // its provider's breaker is half open

	Quota     []QuotaWindow // of its connection, or of the model on it; empty = unknown
	Exhausted bool          // a window of the quota that counts is used up
}

// Price is in currency units per million tokens. One that is not known is not cheap.
type Price struct {
	Input, Output float64
	Known         bool
}

// QuotaWindow is how much of a quota is left, as the provider says or an operator has entered.
type QuotaWindow struct {
	Name      string        // session, weekly or monthly, or a dimension such as tokens
	Length    time.Duration // of a whole window; 0 = unknown
	Remaining float64       // 0..1
	Reset     time.Time     // when it is full again; zero = unknown
}
