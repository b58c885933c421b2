package resilience

import (
	"slices"
	"time"

	"omniroute/models"
)

// Connection is everything durable about one connection's health: its cooldown or terminal
// state, the models that are locked out on it, and what is counted towards a terminal state
// (guide sections 2 and 3). The zero value is a healthy connection. Like each of its parts it
// is a join-semilattice of whole milliseconds; a newer era wins as a whole.
type Connection struct {
	Cooldown Cooldown `json:"cooldown"`
	Lockouts Lockouts `json:"lockouts,omitempty"`
	// Rejections are episodes in which the provider refused request after request; three in a
	// day ban the connection.
	Rejections Strikes `json:"rejections,omitzero"`
	// Expiries are the failures of expired credentials to recover; past the last retry the
	// connection is expired for good.
	Expiries Strikes `json:"expiries,omitzero"`
	// Refused and Renewed are the newest generations of access tokens that are known to have
	// expired, and to have come from a renewal.
	Refused int64 `json:"refused,omitempty"`
	Renewed int64 `json:"renewed,omitempty"`
}

// ConnectionPolicy is what a connection's machine runs with. Only gateways decide by it, and
// the workflow for the retries of expired credentials.
type ConnectionPolicy struct {
	Cooldown CooldownPolicy
	Lockout  LockoutPolicy
	Expired  ExpiredPolicy
	// NoCooldown is the operator's disableCooling: no cooldown keeps the connection away.
	// Terminal states and lockouts do, and so do expired credentials, with which no request can
	// succeed. Rejected requests are counted towards the ban.
	NoCooldown bool
	// Renewable says that there is something to fetch new credentials with. Then expired ones are
	// retried until that has been refused: a gateway that sees them fail cannot know whether
	// anybody could try.
	Renewable bool
}

// ExpiredPolicy bounds the retries of expired credentials (guide section 2, EXPIRED_RETRY_MAX).
type ExpiredPolicy struct {
	Retries int           // before the connection is expired for good
	Base    time.Duration // before the first; doubles for each
}

// Model is the policy of a lockout that an upstream's status causes, and whether the lockout
// is for every replica to know. What the server or the network did to one model says little
// about the next minute or another replica, unless an operator has switched model lockouts on.
func (p ConnectionPolicy) Model(key LockKey, status int) (policy CooldownPolicy, durable bool) {
	if p.Lockout.Enabled && slices.Contains(p.Lockout.Codes, status) {
		return p.Lockout.Cooldown(), true
	}
	return p.Cooldown, key.Scope != models.LockExact
}

// Era is the reset epoch of the connection.
func (c Connection) Era() int64 { return c.Cooldown.Era }

// Fail applies a failure of the whole connection and reports whether anything changed.
//
// Rejected requests and expired credentials cool for a time of their own, and for good when
// they go on. Each counts once per episode, as the level does.
func (c Connection) Fail(f Failure, p ConnectionPolicy) (next Connection, changed bool) {
	f = f.normal()
	if c.Cooldown.deaf(f) {
		return c, false
	}
	next = c
	switch {
	case f.Terminal != "": // counts, whatever the reason
	case f.Reason == models.ReasonRequestRejected:
		next.Rejections, changed = f.strike(c.Rejections, rejectionMemory, rejection)
		if !changed || p.NoCooldown && f.Terminal == "" {
			return next, changed
		}
	case f.Reason == models.ReasonExpired && f.Token < c.Renewed: // what was sent has been replaced since
		return c, false
	case f.Reason == models.ReasonExpired:
		if next.Expiries, changed = f.strike(c.Expiries, 0, p.expiry); !changed {
			return c, false
		}
		if p.Renewable {
			next.Expiries.Count = min(next.Expiries.Count, p.Expired.last())
		}
		next.Refused = max(c.Refused, f.Token)
	case p.NoCooldown:
		return c, false
	}
	if next.Cooldown, changed = c.Cooldown.Fail(f, p.Cooldown); !changed {
		return c, false
	}
	return next, true
}

// FailModel applies a failure that one model, or its family, explains, by the policy that
// ConnectionPolicy.Model gives. A duration of the verdict's own is bounded like a guess; what
// the upstream declares is not.
func (c Connection) FailModel(key LockKey, f Failure, p CooldownPolicy) (next Connection, changed bool) {
	f = f.normal()
	if c.Cooldown.deaf(f) {
		return c, false
	}
	f.Terminal = ""
	if p.Max > 0 {
		f.Fixed = min(f.Fixed, p.Max)
	}
	cooldown, changed := c.Lockouts.of(key).Fail(f, p)
	if !changed {
		return c, false
	}
	c.Lockouts = c.Lockouts.with(key, cooldown)
	_, kept := c.Lockouts.at(key)
	return c, kept
}

// Succeed applies a success of a model: it clears the connection's cooldown and what is counted
// towards a terminal state, and clears or eases the lockouts that cover the model, each only
// where it was set before the attempt was dispatched.
func (c Connection) Succeed(model, family string, dispatched time.Time) (next Connection, changed bool) {
	if c.Cooldown.Terminal != "" {
		return c, false
	}
	var did [3]bool
	c.Cooldown, did[0] = c.Cooldown.Succeed(dispatched)
	c.Rejections, did[1] = c.Rejections.Succeed(dispatched)
	c.Expiries, did[2] = c.Expiries.Succeed(dispatched)
	changed = did[0] || did[1] || did[2]
	for _, key := range keysOf(model, family) {
		if cooldown, ok := c.Lockouts.of(key).Succeed(dispatched); ok {
			c.Lockouts, changed = c.Lockouts.with(key, cooldown), true
		}
	}
	return c, changed
}

// Renew notes that fresh credentials of a generation came for the same account: what expired
// ones have caused is over, an expiry for good included, which takes a new era. What the account
// itself has caused stays.
func (c Connection) Renew(now time.Time, generation int64) (next Connection, changed bool) {
	if c.Cooldown.Terminal == models.PhaseExpired {
		next = c.Reset(now)
		next.Lockouts, next.Rejections, next.Renewed = c.Lockouts, c.Rejections, max(c.Renewed, generation)
		return next, true
	}
	if generation > c.Renewed {
		c.Renewed, changed = generation, true
	}
	if c.Expiries.Count > 0 {
		c.Expiries, changed = c.Expiries.Clear(now), true
	}
	if c.Cooldown.running() && c.Cooldown.Reason == models.ReasonExpired {
		var cleared bool
		c.Cooldown, cleared = c.Cooldown.Clear(now)
		changed = changed || cleared
	}
	return c, changed
}

// Outdated reports that nothing but tokens which have been replaced since is known to have
// expired: somebody who had not heard of the renewal has counted them. Renewing once more ends
// what came of it.
func (c Connection) Outdated() bool {
	return c.Cooldown.Terminal == "" && c.Expiries.Count > 0 && c.Refused < c.Renewed
}

// ClearCooldown is an operator's clear: the cooldown of this era and what is counted towards a
// terminal state are over. A terminal state stays as it is, and so do lockouts. What was seen
// before now changes nothing any more, also where it is still under way.
func (c Connection) ClearCooldown(now time.Time) (next Connection, changed bool) {
	if c.Cooldown.Terminal != "" {
		return c, false
	}
	c.Cooldown, _ = c.Cooldown.Clear(now)
	c.Rejections, c.Expiries = c.Rejections.Clear(now), c.Expiries.Clear(now)
	return c, true
}

// Enable is an operator's clear of lockouts, remembered in the same way. KeysOf has the keys
// of a model.
func (c Connection) Enable(keys []LockKey, now time.Time) (next Connection, changed bool) {
	for _, key := range keys {
		if cooldown, cleared := c.Lockouts.of(key).Clear(now); cleared {
			c.Lockouts, changed = c.Lockouts.with(key, cooldown), true
		}
	}
	return c, changed
}

// Reset is an operator's reset: a new era begins, healthy, with every model enabled.
func (c Connection) Reset(now time.Time) Connection { return c.Enter(c.Era()+1, now) }

// Enter moves to an era that began at the given time, as new credentials begin one. An era that
// is not newer changes nothing.
func (c Connection) Enter(era int64, at time.Time) Connection {
	if era <= c.Era() {
		return c
	}
	return Connection{Cooldown: c.Cooldown.Enter(era, at)}
}

// Locked is the lockout that keeps a model out at now and ends last, or else the one on whose
// trial it is; nil when there is neither.
func (c Connection) Locked(model, family string, now time.Time) (*Lockout, Standing) {
	var out *Lockout
	var standing Standing
	for _, key := range keysOf(model, family) {
		i, found := c.Lockouts.at(key)
		if !found {
			continue
		}
		s := c.Lockouts[i].Standing(now)
		if (s.Phase == models.PhaseCooling || s.Trial) && (out == nil || s.Until.After(standing.Until)) {
			out, standing = &c.Lockouts[i], s
		}
	}
	return out, standing
}

// Trials are the keys of the lockouts that cover a model and have passed without a success
// since: one request goes first on each.
func (c Connection) Trials(model, family string, now time.Time) []LockKey {
	var keys []LockKey
	for _, key := range keysOf(model, family) {
		if c.Lockouts.of(key).Standing(now).Trial {
			keys = append(keys, key)
		}
	}
	return keys
}

// Next is the earliest time ahead at which something ends by itself; zero when nothing does.
func (c Connection) Next(now time.Time) time.Time {
	next := c.Cooldown.sooner(time.Time{}, now)
	for i := range c.Lockouts {
		next = c.Lockouts[i].sooner(next, now)
	}
	return next
}

// Out lists the lockouts that are running at now, by key.
func (c Connection) Out(now time.Time) []Lockout {
	var out []Lockout
	for i := range c.Lockouts {
		if !c.Lockouts[i].Dormant(now) {
			out = append(out, c.Lockouts[i])
		}
	}
	return out
}

// Dormant reports whether no deadline lies ahead.
func (c Connection) Dormant(now time.Time) bool {
	return c.Cooldown.Dormant(now) && c.Next(now).IsZero()
}

// Pristine reports that nothing is known of this era but that it began: neither a failure nor
// what has cleared one.
func (c Connection) Pristine() bool {
	return c.Cooldown.Pristine() && !c.Cooldown.ClearedAt.After(c.Cooldown.Began) && len(c.Lockouts) == 0 &&
		c.Rejections.At.IsZero() && c.Expiries.At.IsZero()
}

// Settled reports that there is nothing to time, to try, to count or to clear.
func (c Connection) Settled() bool {
	if !c.Cooldown.Settled() || c.Rejections.Count > 0 || c.Expiries.Count > 0 {
		return false
	}
	for i := range c.Lockouts {
		if !c.Lockouts[i].Settled() {
			return false
		}
	}
	return true
}

// Evidence is the time of the latest observation in the state.
func (c Connection) Evidence() time.Time {
	at := later(later(c.Cooldown.Evidence(), c.Rejections.At), c.Expiries.At)
	for i := range c.Lockouts {
		at = later(at, c.Lockouts[i].Evidence())
	}
	return at
}

// Prune forgets the lockouts that are of no use to anybody any more.
func (c Connection) Prune(now time.Time) Connection {
	c.Lockouts = c.Lockouts.pruned(now)
	return c
}

// Equal compares states.
func (c Connection) Equal(o Connection) bool {
	return c.Cooldown.Equal(o.Cooldown) && c.Rejections.Equal(o.Rejections) && c.Expiries.Equal(o.Expiries) &&
		c.Refused == o.Refused && c.Renewed == o.Renewed && c.Lockouts.equal(o.Lockouts)
}
