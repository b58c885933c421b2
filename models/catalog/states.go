package catalog

import (
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// ConnectionState is a connection's published state: one row per connection, written by the
// Connection workflow only when its stamp is newer.
type ConnectionState struct {
	Connection models.ConnectionID
	Provider   models.ProviderID
	models.Stamp
	State resilience.Connection
	// AppliedThrough is the time of the latest observation the verdict has considered.
	AppliedThrough time.Time
	// Remaining is until - now by the database's clock, at the moment the row was read;
	// zero or negative once it has passed. It shows a deadline that was written by a clock
	// that was wrong.
	Remaining time.Duration
}

// ProviderState is a provider's published breaker and cooldowns: the row of
// domain_circuit_breakers (guide section 1).
type ProviderState struct {
	Provider models.ProviderID
	models.Stamp
	State          resilience.Provider
	AppliedThrough time.Time
	Remaining      time.Duration
}

// States is one read of the published states.
type States struct {
	Connections []ConnectionState
	Providers   []ProviderState
	// Complete says that this is all of them, not only what changed lately.
	Complete bool
	// Asked is when they were asked for, by the reader's clock. Now is the database's while they
	// were read, and Skew how far it is ahead of the reader's, as far as the reader can tell.
	Asked time.Time
	Now   time.Time
	Skew  time.Duration
}

// RequestRecord is one finished request for the ledger.
type RequestRecord struct {
	ID           models.RequestID // ours, unique
	ClientID     string           // the client's own id of the request; empty when it has none, and not unique
	Key          models.APIKeyID
	Asked        string // the model name the client sent
	Served       string // "provider/model" that answered, empty when none did
	Connection   models.ConnectionID
	Attempts     int
	Status       int
	Reason       models.Reason // empty on success
	Stream       bool
	InputTokens  int64
	OutputTokens int64
	StartedAt    time.Time
	FirstToken   time.Duration // from start to the first byte of content; 0 when none came
	Total        time.Duration
}
