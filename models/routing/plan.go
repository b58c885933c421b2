// Package routing orders targets. It knows nothing of health beyond the exclusions it is
// given; strategies only order.
package routing

import (
	"time"

	"omniroute/models"
)

// Candidate is a target that could serve a request, with what the gates say about it.
type Candidate struct {
	Target   models.Target
	Name     string  // the connection's display name
	Leg      int     // index of the combo's target, 0 for a plain model
	Key      string  // the target's execution key: the ids of its steps along the path of nested combos
	Priority int     // the connection's priority inside its leg; lower goes first
	Weight   float64 // of the target
	// Facts are what strategies go by beside the catalog's order; nil = nothing is known.
	Facts *Facts
	// Exclusion is set when a gate keeps the candidate out now.
	Exclusion *Exclusion
	Rank      Rank
}

// Rank says how far behind a candidate goes that is not out.
type Rank int

// Ranks, best first.
const (
	// RankFull is an ordinary candidate.
	RankFull Rank = iota
	// RankDegraded goes behind its siblings of the same leg: its provider is DEGRADED.
	RankDegraded
	// RankTrial goes behind every leg: it is just back from a cooldown and another request is
	// trying it. A crowd that followed would all fail with the trial.
	RankTrial
)

// Exclusion is why a target is out, and until when.
type Exclusion struct {
	Reason  models.Reason `json:"reason"`
	Because models.Reason `json:"because,omitempty"` // the underlying reason of a timer, such as rate_limit_exceeded
	Detail  string        `json:"detail,omitempty"`  // the same for people, with the family where all of it is out
	Until   time.Time     `json:"until,omitzero"`    // zero when it does not end by itself
}

// Timed is an exclusion that ends by itself.
func Timed(reason, because models.Reason, until time.Time) *Exclusion {
	return &Exclusion{Reason: reason, Because: because, Detail: string(because), Until: until}
}

// Outlasts reports whether the exclusion keeps the target out for longer than another one, which
// may be nil. One without an end outlasts all others.
func (e *Exclusion) Outlasts(o *Exclusion) bool {
	switch {
	case o == nil:
		return true
	case o.Until.IsZero():
		return false
	default:
		return e.Until.IsZero() || e.Until.After(o.Until)
	}
}

// Plan is the ordered walk of one request.
type Plan struct {
	Order    []Candidate // to be tried, first to last
	Excluded []Candidate // with their exclusions, in catalog order
}
