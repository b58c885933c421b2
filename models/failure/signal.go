package failure

import (
	"net/http"
	"time"

	"omniroute/models"
)

// Kind is how an attempt failed.
type Kind string

// Kinds of failures.
const (
	KindHTTP             Kind = "http"               // a status that is not 2xx
	KindInStream         Kind = "in_stream"          // an error event or object inside a 200 answer
	KindDressed          Kind = "dressed"            // a 200 answer that a predicate of the operator's recognises
	KindConnect          Kind = "connect"            // refused, no route, TLS, DNS
	KindReset            Kind = "reset"              // reset, EOF or GOAWAY before the answer was complete
	KindConnectTimeout   Kind = "connect_timeout"    //
	KindHeaderTimeout    Kind = "header_timeout"     //
	KindFirstContentLate Kind = "first_content_late" //
	KindIdleTimeout      Kind = "idle_timeout"       //
	KindTotalTimeout     Kind = "total_timeout"      //
	KindEmpty            Kind = "empty"              // 200 without any content
	KindMalformed        Kind = "malformed"          // 200 that is not what it claims to be
	KindEventTooBig      Kind = "event_too_big"      // an SSE event above the configured cap
	KindClientGone       Kind = "client_gone"
	KindOurs             Kind = "ours" // our own defect: nothing was sent
)

// Signal is what is known about a failed attempt.
type Signal struct {
	Kind    Kind
	Status  int         // HTTP status, or the status an in-stream error declares; 0 when none
	Headers http.Header // of the answer; nil when there was none
	Body    []byte      // the first 64 KiB of an error answer, or the in-stream error object
	Class   models.Class
	// Rules are the provider's own and the operator's; nil means the general table only.
	Rules *Rules
	// Dressed is the predicate that recognised a KindDressed failure.
	Dressed *Predicate
	// PerModelQuota says that the provider counts quotas per model: a 402, 403 or 429 is about
	// the model or its family, not about the account.
	PerModelQuota bool
	// EgressShared says that the provider counts by the address that requests come from: a limit
	// behind a 429 is about all who share it, whatever else is known (guide section 7).
	EgressShared bool
	Model        string // the upstream's id of the model that was asked for
	// Credential is what the attempt was sent with. It is kept out of whatever of the
	// upstream's own words a client is shown.
	Credential Credential
	// Committed says that bytes had reached the client: no other target may be tried.
	Committed bool
}

// Verdict is the classification of a failed attempt.
type Verdict struct {
	Reason   models.Reason
	Blame    models.Blame
	Scope    models.Scope
	Lock     models.LockScope // with ScopeModel: which models are out; empty = exact
	Terminal models.Phase     // banned, expired, credits_exhausted, or empty
	Trips    bool             // counts against the provider's breaker (guide section 1: 408 500 502 503 504 and transport failures)
	Failover bool             // another target may be tried, if nothing was committed
	Fixed    time.Duration    // how long Scope is out when a rule or the verdict says; 0 = backoff formula
	Hint     time.Duration    // what the upstream declared, capped; 0 = none. It goes before Fixed
	// UpstreamStatus is the HTTP status the upstream answered with, what its error inside a 200
	// answer amounts to, or what either was restated to; 0 when no answer came. It is for state,
	// logs and metrics.
	UpstreamStatus int
	// Code and Status are what the client sees if this failure ends the request. They differ
	// from the upstream's where the fault is not the client's: a 401 about our key is a 503.
	Code   models.Code
	Status int
	// Message is the client-safe sentence: the upstream's own parsed error message where the
	// whitelist allows it, never the raw body.
	Message string
	// Names is how the upstream itself names a failure that is the client's to mend.
	Names Names
	// Address says that it is a limit on the address that the attempt came from: with ScopeConnection,
	// all who share it have reached the limit.
	Address bool
	// Rule names the rule of the provider or the operator that decided or restated; empty when
	// none did.
	Rule string
	// RestatedFrom is the status that the upstream sent where a rule says what it means instead;
	// 0 when nothing was restated.
	RestatedFrom int
	// ClientRetryAfter is what the client is told to wait at least, where a restatement says so
	// and the upstream said nothing. It is no cooldown.
	ClientRetryAfter time.Duration
	// TooLong says that the request is more than this model takes; a larger one may take it.
	TooLong bool
}

// Names are the upstream's own words that programs branch on; empty where it has none, or none
// fit to be shown.
type Names struct {
	Code  string
	Param string
	Type  string
}
