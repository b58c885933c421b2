package contract

import (
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Activity is a typed handle on an activity: its registered name, what it takes and what it
// gives. A test of the worker holds every handle against the function registered for it.
type Activity[In, Out any] struct{ Name string }

// The state activities. Loading answers with the zero row when there is none. Publishing answers
// with the row as it stands afterwards: what was sent, in which case the state is left out, or
// another one that was already there and is newer.
var (
	LoadConnection    = Activity[Entity, Row[resilience.Connection]]{"LoadConnection"}
	PublishConnection = Activity[Publish[resilience.Connection], Stood[resilience.Connection]]{"PublishConnection"}
	LoadProvider      = Activity[Entity, Row[resilience.Provider]]{"LoadProvider"}
	PublishProvider   = Activity[Publish[resilience.Provider], Stood[resilience.Provider]]{"PublishProvider"}
)

// RefreshCredentials fetches a new access token with the connection's refresh token, stores it
// and answers with what came of it. It runs on the io queue, once: what failed is counted, and
// tried again later, by the workflow.
var RefreshCredentials = Activity[Refresh, Refreshed]{"RefreshCredentials"}

// Refresh asks for credentials that are newer than the generation the asker has seen.
type Refresh struct {
	Entity
	Seen int64 `json:"seen"`
}

// Refreshed is what a refresh came to.
type Refreshed struct {
	Outcome    RefreshOutcome `json:"outcome"`
	Generation int64          `json:"generation"` // of the tokens that hold now
	ExpiresAt  time.Time      `json:"expiresAt,omitzero"`
	Reason     string         `json:"reason,omitempty"` // why it failed: an OAuth error code or a sentence, never a token
	// Retry is the operator's policy at this moment (settings.resilience.expiredRetry). It is part
	// of the answer because a workflow reads no settings: an answer is recorded, so a replay
	// decides the same, and each decision is made by the settings of its day.
	Retry ExpiredRetry `json:"retry,omitzero"`
}

// ExpiredRetry says how often, and after how long, expired credentials are tried again.
type ExpiredRetry struct {
	Retries     int   `json:"retries"`
	BaseDelayMs int64 `json:"baseDelayMs"` // before the first; doubles for each
}

// NewExpiredRetry words a policy for the way.
func NewExpiredRetry(p resilience.ExpiredPolicy) ExpiredRetry {
	return ExpiredRetry{p.Retries, p.Base.Milliseconds()}
}

// Policy is the policy as the state machine takes it. One that was not said is the guide's
// (section 2), in figures: a default that followed a later release would decide a replay anew.
func (r ExpiredRetry) Policy() resilience.ExpiredPolicy {
	if r == (ExpiredRetry{}) {
		return resilience.ExpiredPolicy{Retries: 3, Base: 5 * time.Minute}
	}
	return resilience.ExpiredPolicy{Retries: r.Retries, Base: time.Duration(r.BaseDelayMs) * time.Millisecond}
}

// RefreshOutcome is how a refresh ended.
type RefreshOutcome string

// Outcomes of a refresh. Impossible: the connection has no refresh token, or its provider no
// token endpoint. Untried: no worker took it, or the database or the endpoint is away, so that
// nothing was learned about the credentials.
const (
	RefreshRenewed    RefreshOutcome = "renewed"
	RefreshFailed     RefreshOutcome = "failed"
	RefreshImpossible RefreshOutcome = "impossible"
	RefreshUntried    RefreshOutcome = "untried"
)

// Publish is the row an entity's workflow wants to stand.
type Publish[S any] struct {
	Entity
	Row Row[S] `json:"row"`
}

// Stood is a row told to somebody who has just named its state. State is left out where it is
// that one, which is nearly always: with many lockouts a state is long, and a history short.
type Stood[S any] struct {
	models.Stamp
	State          *S        `json:"state,omitempty"`
	AppliedThrough time.Time `json:"appliedThrough,omitzero"`
}

// Row is the whole row, given the state that was named.
func (s Stood[S]) Row(named S) Row[S] {
	if s.State != nil {
		named = *s.State
	}
	return Row[S]{Stamp: s.Stamp, State: named, AppliedThrough: s.AppliedThrough}
}
