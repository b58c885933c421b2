package contract

import (
	"time"

	"omniroute/models"
)

// Entity names what a workflow stands for: a connection of a provider, or the provider
// itself when Connection is empty.
type Entity struct {
	Provider   models.ProviderID   `json:"provider"`
	Connection models.ConnectionID `json:"connection,omitempty"`
}

// Observed is the payload of FailureObserved and RecoveryObserved. It says what the sender
// holds to be true now, never "one more failure", so it may be lost, repeated and reordered.
type Observed[S any] struct {
	Entity
	State S `json:"state"`
}

// CredentialsChanged says that an entity has entered a new era. What was true in an older
// one no longer is.
type CredentialsChanged struct {
	Entity
	Era       int64     `json:"era"`
	ChangedAt time.Time `json:"changedAt"`
}

// Row is an entity's published state as it stands in the database, without what only the
// database knows (the remaining time, who holds the probe).
type Row[S any] struct {
	models.Stamp
	State          S         `json:"state"`
	AppliedThrough time.Time `json:"appliedThrough,omitzero"`
}

// EntityState answers the State query.
type EntityState[S any] struct {
	Phase    string `json:"phase"`
	Sentence string `json:"sentence"`
	State    S      `json:"state"`
	Row      Row[S] `json:"published"`
}
