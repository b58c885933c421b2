package contract

import (
	"encoding/json"
	"slices"
	"time"

	"omniroute/models/resilience"
)

// Listing is what Temporal's Web UI lists of an entity: the values of its search attributes.
// Whoever starts a workflow and the workflow itself work it out alike, so that the list is right
// from the first moment and the first look changes nothing.
type Listing struct {
	Phase  string
	Reason string    // why it is out; empty when it is not
	Until  time.Time // the next deadline; zero when nothing ends by itself
	Models []string  // models and families that are locked out, as far as they fit
}

// ListConnection lists a connection as it stands at now. The reason is that of the cooldown, or
// of the lockout that ends next when nothing else is out.
func ListConnection(c resilience.Connection, now time.Time) Listing {
	at := c.Cooldown.Standing(now)
	l := Listing{Phase: string(c.Phase(now))}
	if !at.Trial {
		l.Reason = string(at.Reason)
	}
	if at.Phase.Terminal() {
		return l
	}
	l.Until = c.Next(now)
	out := c.Out(now)
	for _, lock := range out {
		if l.Reason == "" && lock.Until.Equal(l.Until) {
			l.Reason = string(lock.Reason)
		}
	}
	l.Models = listed(out)
	return l
}

// Phases of a provider's workflow beside those of its breaker.
const (
	PhaseHeld  = "HELD"  // a rule keeps every request away
	PhaseGated = "GATED" // the window gate keeps requests to combos away
)

// ListProvider lists a provider as it stands at now, by what keeps most away.
func ListProvider(p resilience.Provider, now time.Time) Listing {
	state := p.Opening.State(now)
	l := Listing{Phase: string(state), Until: p.Next(now)}
	switch hold, gate := p.Hold.Standing(now), p.Gate.Standing(now); {
	case state == resilience.BreakerOpen:
		l.Reason = string(p.Opening.Reason)
	case !p.Hold.Dormant(now):
		l.Phase, l.Reason = PhaseHeld, string(hold.Reason)
	case !p.Gate.Dormant(now):
		l.Phase, l.Reason = PhaseGated, string(gate.Reason)
	case state == resilience.BreakerHalfOpen:
		l.Reason = string(p.Opening.Reason)
	}
	return l
}

// A search attribute takes 2 KB, which hundreds of models would exceed, and is written with
// every change of it: the sentence counts them all, the list holds those that fit.
const (
	listedBytes   = 1200
	listedKeyword = 255
)

// listed are the distinct names of lockouts, in the order of their keys so that the list does
// not jump about.
func listed(locks []resilience.Lockout) []string {
	var names []string
	size := 0
	for _, lock := range locks {
		quoted, err := json.Marshal(lock.Name)
		if err != nil || len(lock.Name) > listedKeyword || slices.Contains(names, lock.Name) {
			continue
		}
		if size += len(quoted) + len(","); size > listedBytes {
			break
		}
		names = append(names, lock.Name)
	}
	return names
}
