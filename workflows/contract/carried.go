package contract

import (
	"time"

	"omniroute/models"
)

// Start is the argument of an entity workflow. Carried is set by continue-as-new only.
type Start[S any] struct {
	Entity
	Carried *Carried[S] `json:"carried,omitempty"`
}

// Carried is what a run hands to the next one.
type Carried[S any] struct {
	State S `json:"state"`
	// Published is the stamp of the row as the workflow last saw it, at SeenAt, and PublishedPhase
	// what the row said of the phase then. SeenAt is zero until it has seen the row at all.
	Published      models.Stamp `json:"published"`
	PublishedPhase string       `json:"publishedPhase,omitempty"`
	// PublishedAll says that the row holds the carried state. Else the next run publishes, and
	// learns from that what the row holds: two long states are not carried.
	PublishedAll bool      `json:"publishedAll,omitempty"`
	SeenAt       time.Time `json:"seenAt,omitzero"`
	// Answered are the latest answered requests, oldest first.
	Answered []Answered `json:"answered,omitempty"`
	Tokens   Tokens     `json:"tokens,omitzero"` // of a connection
}

// Answered remembers one request for as long as a repetition is likely.
type Answered struct {
	Update    string     `json:"update"`
	RequestID string     `json:"requestId"`
	Era       int64      `json:"era"`
	Refreshed *Refreshed `json:"refreshed,omitempty"`
}

// Tokens is what a connection's workflow knows of its credentials; never the credentials.
type Tokens struct {
	Era        int64     `json:"era,omitempty"` // in which all of this was learned
	Generation int64     `json:"generation,omitempty"`
	ExpiresAt  time.Time `json:"expiresAt,omitzero"`
	// Tried is the deadline of the cooldown after which a refresh was tried, so that each episode
	// of expired credentials has one.
	Tried time.Time `json:"tried,omitzero"`
	// Retries is how often a refresh may fail, as the latest one was told; zero when none was.
	Retries int `json:"retries,omitempty"`
	// Failure is why the latest refresh failed; empty when it did not.
	Failure string `json:"failure,omitempty"`
}
