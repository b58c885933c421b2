package live

import (
	"cmp"
	"slices"
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Report is what an operator sees of a replica's truth, in the order of the catalog's ids.
type Report struct {
	Providers   []ProviderReport   `json:"providers"`
	Connections []ConnectionReport `json:"connections"`
	Lockouts    []LockoutReport    `json:"lockouts"` // models that are out on single connections
	Feed        FeedReport         `json:"feed"`
	Unpublished UnpublishedReport  `json:"unpublished"`
}

// UnpublishedReport is what this replica knows and no published row has considered yet: the
// other replicas act on less. It stays for long only when no worker runs the workflows, when
// the worker writes to another database, or when Temporal or the database is away.
type UnpublishedReport struct {
	Entities      int     `json:"entities"`
	OldestSeconds float64 `json:"oldestSeconds"`
}

func (u *UnpublishedReport) add(since, now time.Time) {
	u.Entities++
	u.OldestSeconds = max(u.OldestSeconds, now.Sub(since).Seconds())
}

// ProviderReport is one provider's breaker and cooldowns.
type ProviderReport struct {
	Provider    models.ProviderID       `json:"provider"`
	Breaker     resilience.BreakerState `json:"breaker"`
	Failures    int                     `json:"failures"` // in the window
	Reason      models.Reason           `json:"reason,omitempty"`
	Status      int                     `json:"status,omitempty"`
	Cycle       int                     `json:"cycle,omitempty"`
	Until       time.Time               `json:"until,omitzero"`
	SecondsLeft int                     `json:"secondsLeft,omitempty"` // rounded up
	Hold        *CooldownReport         `json:"hold,omitempty"`        // keeps every request away
	Gate        *CooldownReport         `json:"gate,omitempty"`        // keeps requests to combos away
}

// CooldownReport is a cooldown that runs.
type CooldownReport struct {
	Reason      models.Reason `json:"reason"`
	Status      int           `json:"status,omitempty"`
	Level       int           `json:"level"`
	Until       time.Time     `json:"until"`
	SecondsLeft int           `json:"secondsLeft"` // rounded up
}

// ConnectionReport is one connection's standing.
type ConnectionReport struct {
	Connection    models.ConnectionID `json:"connection"`
	Provider      models.ProviderID   `json:"provider"`
	Phase         models.Phase        `json:"phase"`
	Disabled      bool                `json:"disabled,omitempty"`
	Reason        models.Reason       `json:"reason,omitempty"`
	Status        int                 `json:"status,omitempty"`
	Level         int                 `json:"level,omitempty"`
	Trial         bool                `json:"trial,omitempty"` // the cooldown has passed and nothing succeeded since
	Until         time.Time           `json:"until,omitzero"`
	SecondsLeft   int                 `json:"secondsLeft,omitempty"` // rounded up
	Rejections    int                 `json:"rejections,omitempty"`  // refusals in a row; the third bans
	Expiries      int                 `json:"expiries,omitempty"`    // failed renewals in a row
	Gate          *CooldownReport     `json:"gate,omitempty"`        // keeps requests to combos away, in this replica
	Era           int64               `json:"era"`
	Durable       bool                `json:"durable"` // the published row has seen all this replica knows
	InFlight      int64               `json:"inFlight"`
	MaxConcurrent int                 `json:"maxConcurrent,omitempty"`
}

// LockoutReport is one model, or one family of models, that is out on one connection.
type LockoutReport struct {
	Connection  models.ConnectionID `json:"connection"`
	Provider    models.ProviderID   `json:"provider"`
	Scope       models.LockScope    `json:"scope"`
	Model       string              `json:"model"` // its id at the provider, or the family's name
	Reason      models.Reason       `json:"reason"`
	Status      int                 `json:"status,omitempty"`
	Level       int                 `json:"level"`
	SetAt       time.Time           `json:"setAt"`
	Until       time.Time           `json:"until"`
	SecondsLeft int                 `json:"secondsLeft"` // rounded up
	Durable     bool                `json:"durable"`     // the published row has it; else only this replica knows
}

// FeedReport says whether published states and catalog changes reach this replica.
type FeedReport struct {
	OK    bool      `json:"ok"`
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"` // of the present condition; zero before the first read
}

// Report describes everything at now.
func (l *Live) Report(now time.Time) Report {
	index := l.index.Load()
	r := Report{
		Providers:   make([]ProviderReport, 0, len(index.providers)),
		Connections: make([]ConnectionReport, 0, len(index.connections)),
		Lockouts:    []LockoutReport{},
		Feed:        *l.feed.Load(),
	}
	for _, p := range index.providers {
		r.Providers = append(r.Providers, p.report(now))
		if state, owed := p.unpublished(now); owed {
			r.Unpublished.add(state.Evidence(), now)
		}
	}
	for _, c := range index.connections {
		connection, lockouts := c.report(now)
		r.Connections = append(r.Connections, connection)
		r.Lockouts = append(r.Lockouts, lockouts...)
		if news, owed := c.unpublished(now); owed {
			r.Unpublished.add(news.Evidence(), now)
		}
	}
	slices.SortFunc(r.Providers, func(a, b ProviderReport) int { return cmp.Compare(a.Provider, b.Provider) })
	slices.SortFunc(r.Connections, func(a, b ConnectionReport) int { return cmp.Compare(a.Connection, b.Connection) })
	slices.SortFunc(r.Lockouts, func(a, b LockoutReport) int {
		return cmp.Or(cmp.Compare(a.Connection, b.Connection), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Scope, b.Scope))
	})
	return r
}

func (p *provider) report(now time.Time) ProviderReport {
	p.mu.Lock()
	breaker, state := p.breaker, p.state
	p.mu.Unlock()
	r := ProviderReport{
		Provider: p.id, Breaker: breaker.State(now), Failures: breaker.Failures(now),
		Hold: cooldown(state.Hold, now), Gate: cooldown(state.Gate, now),
	}
	if r.Breaker == resilience.BreakerOpen || r.Breaker == resilience.BreakerHalfOpen {
		o := breaker.Opening()
		r.Reason, r.Status, r.Cycle, r.Until = o.Reason, o.Status, o.Cycle, o.Until
		r.Failures = o.Failures
		r.SecondsLeft = secondsLeft(o.Until, now)
	}
	return r
}

// cooldown is nil unless the cooldown runs.
func cooldown(c resilience.Cooldown, now time.Time) *CooldownReport {
	s := c.Standing(now)
	if s.Phase != models.PhaseCooling {
		return nil
	}
	return &CooldownReport{Reason: s.Reason, Status: s.Status, Level: s.Level, Until: s.Until, SecondsLeft: secondsLeft(s.Until, now)}
}

func (c *connection) report(now time.Time) (ConnectionReport, []LockoutReport) {
	c.mu.Lock()
	view, backoff := c.current(), c.backoff
	published := c.durable.Out(now)
	durable := resilience.SeenConnection(c.durable, c.provisional, now)
	c.mu.Unlock()
	catalogView := c.view.Load()
	s := catalogView.Policy.Standing(view.Cooldown, now)
	if catalogView.Policy.NoCooldown {
		backoff = resilience.Cooldown{}
	}
	r := ConnectionReport{
		Connection: c.id, Provider: c.provider.id, Phase: s.Phase, Disabled: catalogView.Disabled,
		Reason: s.Reason, Status: s.Status, Level: s.Level, Trial: s.Trial,
		Rejections: view.Rejections.Count, Expiries: view.Expiries.Count, Gate: cooldown(backoff, now),
		Era: view.Era(), Durable: durable,
		InFlight: c.slots.Load(), MaxConcurrent: catalogView.MaxConcurrent,
	}
	if s.Phase == models.PhaseCooling {
		r.Until, r.SecondsLeft = s.Until, secondsLeft(s.Until, now)
	}
	return r, c.lockouts(view.Out(now), published, now)
}

// lockouts reports the lockouts that run. Those that the row keeps out for as long are durable.
func (c *connection) lockouts(running, published []resilience.Lockout, now time.Time) []LockoutReport {
	reports := make([]LockoutReport, 0, len(running))
	for _, lock := range running {
		durable := slices.ContainsFunc(published, func(p resilience.Lockout) bool {
			return p.LockKey == lock.LockKey && !p.Until.Before(lock.Until)
		})
		reports = append(reports, LockoutReport{
			Connection: c.id, Provider: c.provider.id, Scope: lock.Scope, Model: lock.Name,
			Reason: lock.Reason, Status: lock.Status, Level: lock.Level, SetAt: lock.SetAt,
			Until: lock.Until, SecondsLeft: secondsLeft(lock.Until, now), Durable: durable,
		})
	}
	return reports
}

func secondsLeft(until, now time.Time) int {
	left := until.Sub(now)
	if left <= 0 {
		return 0
	}
	return int((left + time.Second - 1) / time.Second)
}
