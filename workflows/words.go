package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

const (
	shownLockouts = 5  // by name in a sentence; the rest are counted
	shownName     = 60 // bytes of a model's name in a sentence
)

// sentence says where a connection stands, in words.
func (c *connection) sentence(s resilience.Connection, now time.Time) string {
	at := s.Cooldown.Standing(now)
	switch {
	case at.Phase.Terminal():
		return fmt.Sprintf("%s at %s since %s%s, out until a reset or new credentials",
			at.Phase, c.id.Provider, date(s.Cooldown.TerminalAt), c.lastFailure(at.Phase == models.PhaseExpired))
	case at.Phase == models.PhaseCooling && c.expired():
		return fmt.Sprintf("expired credentials, retry %d%s at %s%s", s.Expiries.Count, c.outOf(), clock(at.Until), c.lastFailure(true)) +
			lockedOut(s.Out(now))
	case at.Phase == models.PhaseCooling:
		return fmt.Sprintf("cooling until %s, %s, level %d%s",
			clock(at.Until), causes(at.Status, at.Reason, c.id.Provider), at.Level, rejections(s, at)) + lockedOut(s.Out(now))
	case at.Trial:
		return fmt.Sprintf("ready since %s, on trial after %s%s",
			clock(at.Until), causes(at.Status, at.Reason, c.id.Provider), cmp.Or(c.refreshing(), c.lastFailure(c.expired()))) + lockedOut(s.Out(now))
	default:
		return "ready" + c.refreshing() + lockedOut(s.Out(now))
	}
}

// outOf is known once a refresh has been told.
func (c *connection) outOf() string {
	if c.tokens.Retries == 0 {
		return ""
	}
	return fmt.Sprintf(" of %d", c.tokens.Retries)
}

func (c *connection) lastFailure(matters bool) string {
	if !matters || c.tokens.Failure == "" {
		return ""
	}
	return ", the last refresh failed: " + c.tokens.Failure
}

func (c *connection) refreshing() string {
	if c.running == nil {
		return ""
	}
	return ", refreshing the credentials"
}

func rejections(s resilience.Connection, at resilience.Standing) string {
	if at.Reason != models.ReasonRequestRejected || s.Rejections.Count < 2 {
		return ""
	}
	return fmt.Sprintf(", %d times in a row", s.Rejections.Count)
}

// lockedOut lists lockouts, the one that ends first in front.
func lockedOut(locks []resilience.Lockout) string {
	if len(locks) == 0 {
		return ""
	}
	slices.SortStableFunc(locks, func(a, b resilience.Lockout) int { return a.Until.Compare(b.Until) })
	var words []string
	for _, lock := range locks[:min(len(locks), shownLockouts)] {
		words = append(words, fmt.Sprintf("%s until %s (%s)", lockName(lock.LockKey), clock(lock.Until), cause(lock.Status, lock.Reason)))
	}
	if rest := len(locks) - shownLockouts; rest > 0 {
		words = append(words, fmt.Sprintf("and %d more until %s", rest, clock(locks[len(locks)-1].Until)))
	}
	return fmt.Sprintf("; %s locked: %s", count(len(locks), "model"), strings.Join(words, ", "))
}

func lockName(key resilience.LockKey) string {
	if key.Scope == models.LockFamily {
		return "family " + clip(key.Name, shownName)
	}
	return clip(key.Name, shownName)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clock words an instant for people. No deadline is more than a day away, so the time of day
// is enough.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// date words an instant that may be long ago.
func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// causes words what was seen: "429 rate_limit_exceeded from openai".
func causes(status int, reason models.Reason, from models.ProviderID) string {
	return fmt.Sprintf("%s from %s", cause(status, reason), from)
}

func cause(status int, reason models.Reason) string {
	if status == 0 { // nothing was answered
		return string(reason)
	}
	return fmt.Sprintf("%d %s", status, reason)
}

// clip shortens a text to a number of bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
