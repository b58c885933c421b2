package resilience

import "time"

// Rekey moves a lockout from a key that names no models any more to those that name them now: a
// family that was renamed, split or given up is the same quota at its provider. The old key is
// cleared, so that every replica and the workflow end up alike in whatever order they hear of it.
func (c Connection) Rekey(from LockKey, to []LockKey, now time.Time) (next Connection, changed bool) {
	lockout := c.Lockouts.of(from)
	if lockout.Settled() || c.Cooldown.Terminal != "" {
		return c, false
	}
	for _, key := range to {
		c.Lockouts = c.Lockouts.with(key, Join(c.Lockouts.of(key), lockout))
	}
	return c.Enable([]LockKey{from}, now)
}
