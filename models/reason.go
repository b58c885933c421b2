package models

// Reason says why something is out, failed or was skipped. The set is closed: a reason
// is a metric label, so its cardinality is bounded.
type Reason string

// Reasons of a failure verdict (guide sections 1-3) and of an exclusion.
const (
	ReasonRateLimited      Reason = "rate_limit_exceeded"
	ReasonQuotaExhausted   Reason = "quota_exhausted"
	ReasonModelCapacity    Reason = "model_capacity"
	ReasonServerError      Reason = "server_error"
	ReasonTransport        Reason = "transport_error"
	ReasonTimeout          Reason = "timeout"
	ReasonCutStream        Reason = "cut_stream"
	ReasonEmptyResponse    Reason = "empty_response"
	ReasonMalformed        Reason = "malformed_response"
	ReasonAuth             Reason = "auth_error"
	ReasonNotFound         Reason = "not_found"
	ReasonInvalidRequest   Reason = "invalid_request"
	ReasonClientGone       Reason = "client_disconnected"
	ReasonUnknown          Reason = "unknown"
	ReasonBanned           Reason = "banned"
	ReasonExpired          Reason = "expired"
	ReasonRequestRejected  Reason = "request_rejected"
	ReasonCreditsExhausted Reason = "credits_exhausted"
	ReasonCircuitOpen      Reason = "circuit_open"
	ReasonConnCooldown     Reason = "connection_cooldown"
	ReasonModelCooldown    Reason = "model_lockout"
	ReasonProviderCooldown Reason = "provider_cooldown"
	ReasonConcurrency      Reason = "concurrency_cap"
	ReasonDisabled         Reason = "disabled"
	ReasonNotAllowed       Reason = "not_allowed"
	ReasonUnavailable      Reason = "unavailable"
)

// Timer reports whether an exclusion with this reason ends by itself.
func (r Reason) Timer() bool {
	switch r {
	case ReasonCircuitOpen, ReasonConnCooldown, ReasonModelCooldown, ReasonProviderCooldown:
		return true
	default:
		return false
	}
}

// Phase is where a connection stands.
type Phase string

// Phases of a connection. The last three are terminal: only a reset or new credentials
// leave them (guide section 2).
const (
	PhaseReady            Phase = "ready"
	PhaseCooling          Phase = "cooling"
	PhaseLocked           Phase = "locked" // ready, but for some of its models
	PhaseBanned           Phase = "banned"
	PhaseExpired          Phase = "expired"
	PhaseCreditsExhausted Phase = "credits_exhausted"
)

// Terminal reports whether the phase does not end by itself.
func (p Phase) Terminal() bool {
	return p == PhaseBanned || p == PhaseExpired || p == PhaseCreditsExhausted
}

// Class is a provider's kind of account; thresholds and bases differ by it (guide section 1).
type Class string

// Classes of providers.
const (
	ClassOAuth  Class = "oauth"
	ClassAPIKey Class = "api_key"
	ClassLocal  Class = "local"
)

// Blame says who explains an outcome.
type Blame string

// Blames of a failure.
const (
	BlameClient   Blame = "client"
	BlameUs       Blame = "us"
	BlameUpstream Blame = "upstream"
	BlameNetwork  Blame = "network"
)

// Scope is the smallest thing a verdict puts out.
type Scope string

// Scopes of a verdict, from nothing to the whole provider, which only a rule may put out. The
// provider's breaker is charged separately, by Verdict.Trips.
const (
	ScopeNone       Scope = "none"
	ScopeModel      Scope = "model"
	ScopeConnection Scope = "connection"
	ScopeProvider   Scope = "provider"
)

// LockScope says which models of a connection a lockout keeps out (guide section 3).
type LockScope string

// Scopes of a lockout. Exact and model both keep out one model: exact by what the server or the
// network did, model by what the model is, so that neither escalates the other.
const (
	LockExact  LockScope = "exact"
	LockModel  LockScope = "model"
	LockFamily LockScope = "family"
)
