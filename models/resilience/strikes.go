package resilience

import (
	"cmp"
	"time"

	"omniroute/models"
)

// Strikes counts episodes of one kind in a row, such as requests that an account's provider
// rejects one by one. Like Cooldown it is a join-semilattice of whole milliseconds: of two
// counts the later stands.
type Strikes struct {
	Count int       `json:"count,omitempty"`
	Since time.Time `json:"since,omitzero"` // of the first strike that counts
	At    time.Time `json:"at,omitzero"`    // of the latest strike, or of what cleared them
}

// Bounds of the rejection streak (guide section 2: three refusals in a row).
const (
	rejectionMemory = 24 * time.Hour
	rejectionLimit  = 3
	firstRejection  = 5 * time.Minute
	secondRejection = 15 * time.Minute
)

// rejection is what so many rejections within the memory mean.
func rejection(count int) (wait time.Duration, end models.Phase) {
	switch {
	case count >= rejectionLimit:
		return 0, models.PhaseBanned
	case count == 1:
		return firstRejection, ""
	default:
		return secondRejection, ""
	}
}

// expiry is what so many failures of expired credentials in a row mean. Where they can be
// renewed the last wait is repeated.
func (p ConnectionPolicy) expiry(count int) (wait time.Duration, end models.Phase) {
	switch {
	case p.Renewable:
		return p.Expired.wait(min(count, p.Expired.last())), ""
	case count > p.Expired.Retries:
		return 0, models.PhaseExpired
	default:
		return p.Expired.wait(count), ""
	}
}

// wait is the time before a retry, counted from 1.
func (p ExpiredPolicy) wait(retry int) time.Duration {
	wait := max(p.Base, leastCooldown)
	for range retry - 1 {
		wait = min(2*wait, MaxHint)
	}
	return wait
}

// last is the last retry; where it must be repeated there is one.
func (p ExpiredPolicy) last() int { return max(p.Retries, 1) }

// Strike counts an episode. With a memory, strikes that lie further back are forgotten.
func (s Strikes) Strike(at time.Time, memory time.Duration) Strikes {
	at = later(instant(at), s.At.Add(time.Millisecond))
	switch {
	case s.Count == 0, memory > 0 && at.Sub(s.At) > memory:
		return Strikes{Count: 1, Since: at, At: at}
	case memory > 0 && at.Sub(s.Since) > memory: // the latest of those before is within it
		return Strikes{Count: 2, Since: s.At, At: at}
	default:
		return Strikes{Count: s.Count + 1, Since: s.Since, At: at}
	}
}

// Succeed forgets the strikes seen before an attempt that succeeded was dispatched.
func (s Strikes) Succeed(dispatched time.Time) (next Strikes, changed bool) {
	dispatched = instant(dispatched)
	if s.Count == 0 || !dispatched.After(s.At) {
		return s, false
	}
	return Strikes{At: dispatched}, true
}

// Clear forgets the strikes by decision, and remembers it as Cooldown.Clear does.
func (s Strikes) Clear(now time.Time) Strikes {
	return Strikes{At: later(instant(now), s.At.Add(time.Millisecond))}
}

// strike counts the failure as an episode of its kind and gives it what so many mean. It is
// not counted where its attempt was sent before the latest strike was seen or while that one
// kept the connection away, or is older than what cleared the count.
func (f *Failure) strike(s Strikes, memory time.Duration, means func(count int) (time.Duration, models.Phase)) (counted Strikes, ok bool) {
	wait, _ := means(s.Count)
	if f.Dispatched.Before(s.At) || s.Count > 0 && f.Dispatched.Before(s.At.Add(wait)) {
		return s, false
	}
	counted = s.Strike(f.At, memory)
	f.Hint = 0
	f.Fixed, f.Terminal = means(counted.Count)
	return counted, true
}

// Equal compares counts; instants are compared as instants.
func (s Strikes) Equal(o Strikes) bool {
	return s.Count == o.Count && s.Since.Equal(o.Since) && s.At.Equal(o.At)
}

func joinStrikes(a, b Strikes) Strikes {
	if cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Count, b.Count), a.Since.Compare(b.Since)) < 0 {
		return b
	}
	return a
}
