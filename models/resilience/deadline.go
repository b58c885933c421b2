package resilience

import (
	"cmp"
	"time"
)

// latest is the deadline of the latest failure.
func (c Cooldown) latest() Deadline {
	if c.Other.compareSeen(c.Deadline) > 0 {
		return c.Other
	}
	return c.Deadline
}

// longest is the longest deadline since the clear of Since, one that a later clear has voided
// included.
func (c Cooldown) longest() Deadline {
	if c.Other.Until.IsZero() || c.Other.compareSeen(c.Deadline) > 0 {
		return c.Deadline
	}
	return c.Other
}

// clear voids the deadlines of failures that were seen before at.
func (c Cooldown) clear(at time.Time) Cooldown {
	c.ClearedAt = at
	return c.remember(c.latest(), c.longest())
}

// remember puts in front which of the two holds: the longer, unless a clear has voided it.
func (c Cooldown) remember(latest, longest Deadline) Cooldown {
	switch {
	case latest.equal(longest):
		c.Deadline, c.Other = latest, Deadline{}
	case longest.compare(latest) > 0 && !longest.FailedAt.Before(c.ClearedAt):
		c.Deadline, c.Other = longest, latest
	default:
		c.Deadline, c.Other = latest, longest
	}
	return c
}

// compare orders deadlines by their end.
func (d Deadline) compare(o Deadline) int {
	return cmp.Or(
		d.Until.Compare(o.Until),
		cmp.Compare(bit(d.Hinted), bit(o.Hinted)),
		cmp.Compare(d.Status, o.Status),
		cmp.Compare(d.Reason, o.Reason),
	)
}

// compareSeen orders them by when their failures were seen.
func (d Deadline) compareSeen(o Deadline) int {
	return cmp.Or(d.FailedAt.Compare(o.FailedAt), d.compare(o))
}

func (d Deadline) equal(o Deadline) bool { return d.compareSeen(o) == 0 }

func (d Deadline) shift(by time.Duration) Deadline {
	d.FailedAt, d.Until = shifted(d.FailedAt, by), shifted(d.Until, by)
	return d
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
