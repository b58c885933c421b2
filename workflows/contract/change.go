package contract

import (
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// EntityKind says which machine a Change is about.
type EntityKind string

// Kinds of entities.
const (
	KindConnection EntityKind = "connection"
	KindProvider   EntityKind = "provider"
)

// Change is what a replica now holds to be true of one entity, on its way to the entity's
// workflow.
type Change struct {
	Kind       EntityKind
	Connection models.ConnectionID // of a connection change
	Provider   models.ProviderID
	Health     resilience.Connection // of a connection change
	Breaker    resilience.Provider   // of a provider change
	At         time.Time             // when it was observed
}

// Key identifies the entity; two changes with one key merge.
func (c Change) Key() string {
	if c.Kind == KindProvider {
		return ProviderWorkflowID(c.Provider)
	}
	return ConnectionWorkflowID(c.Connection)
}

// Merge joins two changes of one entity. The provider is the later one's.
func (c Change) Merge(o Change) Change {
	later := c
	if o.At.After(c.At) {
		later = o
	}
	later.Health = resilience.JoinConnection(c.Health, o.Health)
	later.Breaker = resilience.JoinProvider(c.Breaker, o.Breaker)
	return later
}

// News is what a change says beyond another one of its entity that has been delivered, and
// whether that is anything. Lockouts that have been delivered are left out, so that a crowd of
// changes does not repeat a long list; joined with what was delivered it is the whole.
func (c Change) News(delivered Change) (news Change, found bool) {
	if delivered.Kind == "" || c.Provider != delivered.Provider {
		return c, true
	}
	found = !resilience.JoinConnection(delivered.Health, c.Health).Equal(delivered.Health) ||
		!resilience.JoinProvider(delivered.Breaker, c.Breaker).Equal(delivered.Breaker)
	if news := c.Health.News(delivered.Health); news.Pristine() == c.Health.Pristine() { // a pristine state announces an era
		c.Health = news
	}
	return c, found
}

// Severity orders changes by what losing one would cost (design: terminal > cooldown >
// lockout > breaker > recovery).
type Severity int

// Severities, least first.
const (
	SeverityRecovery Severity = iota
	SeverityBreaker
	SeverityLockout
	SeverityCooldown
	SeverityTerminal
)

// String names the severity as metrics do.
func (s Severity) String() string {
	switch s {
	case SeverityTerminal:
		return "terminal"
	case SeverityCooldown:
		return "cooldown"
	case SeverityLockout:
		return "lockout"
	case SeverityBreaker:
		return "breaker"
	default:
		return "recovery"
	}
}

// Severity classifies the change by what it says, seen from the moment it was observed.
func (c Change) Severity() Severity {
	switch {
	case c.Kind == KindProvider && c.Breaker.Dormant(c.At):
		return SeverityRecovery
	case c.Kind == KindProvider:
		return SeverityBreaker
	case c.Health.Cooldown.Terminal != "":
		return SeverityTerminal
	case c.Health.Cooldown.Standing(c.At).Phase == models.PhaseCooling:
		return SeverityCooldown
	case len(c.Health.Out(c.At)) > 0:
		return SeverityLockout
	default:
		return SeverityRecovery
	}
}
