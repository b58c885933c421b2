package contract

import (
	"time"

	"omniroute/models/resilience"
)

// Asked is what every request says of itself. All of it is optional, so that a request can be
// sent by hand from Temporal's Web UI as {}.
type Asked struct {
	// RequestID makes the request idempotent across runs of the workflow; without one the
	// update's own id stands in.
	RequestID string `json:"requestId,omitempty"`
	// RequestedAt lets the workflow refuse what was given up long ago, such as a request that no
	// worker was there to take. Without it the request never grows old.
	RequestedAt time.Time `json:"requestedAt,omitzero"`
}

// About gives a request's own words about itself.
func (a Asked) About() Asked { return a }

// Request is any of the requests below.
type Request interface{ About() Asked }

// ResetRequest asks an entity to begin a new, healthy era.
type ResetRequest struct{ Asked }

// EnableModelRequest asks a connection to end lockouts: those of the keys, and for a name as
// the workflow's sentence shows it those of the model or the family of that name.
type EnableModelRequest struct {
	Asked
	Keys   []resilience.LockKey `json:"keys,omitempty"`
	Models []string             `json:"models,omitempty"`
}

// ClearCooldownRequest asks a connection to end its cooldown and to forget what is counted
// towards a terminal state. Lockouts stay, and a terminal state is none of a cooldown's.
type ClearCooldownRequest struct{ Asked }

// RefreshRequest asks a connection for newer credentials than the generation that the asker
// has seen fail. Without one they are fetched whatever is known.
type RefreshRequest struct {
	Asked
	Seen *int64 `json:"seen,omitempty"`
}

// Answer is what became of a request. Published is false when the row did not say so within a
// few seconds; the workflow goes on trying.
type Answer struct {
	Era       int64 `json:"era"`
	Published bool  `json:"published"`
}

// RefreshAnswer is what became of a RefreshRequest.
type RefreshAnswer struct {
	Answer
	Refreshed
}

// Types of the application errors with which a request is refused.
const (
	ErrorInvalidRequest = "invalid_request"
	ErrorTooLate        = "too_late" // given up long ago, or by a clock that is far off
	ErrorTerminal       = "terminal" // it ends by a reset or by new credentials only
	ErrorNoDatabase     = "database_away"
)
