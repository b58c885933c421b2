package resilience

import (
	"cmp"
	"time"
)

// Join is the least state that knows everything both know. A newer era wins as a whole.
// Inside an era every part is a chain, so the whole is commutative, associative and
// idempotent: the first terminal state, the latest episode with its latest level, the latest
// clear, the deadline of the latest failure and the longest one since the latest clear that
// replaced a longer.
func Join(a, b Cooldown) Cooldown {
	if a.Era != b.Era {
		if a.Era > b.Era {
			return a
		}
		return b
	}
	out := a
	if compareEpisodes(a, b) < 0 {
		out.SetAt, out.EasedAt, out.Level, out.Eases = b.SetAt, b.EasedAt, b.Level, b.Eases
	}
	out.Began, out.ClearedAt = later(a.Began, b.Began), later(a.ClearedAt, b.ClearedAt)
	first := firstTerminal(a, b)
	out.Terminal, out.TerminalAt = first.Terminal, first.TerminalAt

	latest, longest := a.latest(), a.longest()
	if l := b.latest(); latest.compareSeen(l) < 0 {
		latest = l
	}
	l := b.longest()
	if cmp.Or(a.Since.Compare(b.Since), longest.compare(l), longest.FailedAt.Compare(l.FailedAt)) < 0 {
		out.Since, longest = b.Since, l
	}
	return out.remember(latest, longest)
}

// Seen reports that durable has considered all that provisional knows. A verdict is a join, so
// one that has seen evidence of its era holds at least as much; where it holds less it cannot
// have seen it, however late the evidence is that it did see. An older era is seen as a whole.
func Seen(durable, provisional Cooldown) bool {
	return Join(durable, provisional).Equal(durable)
}

// JoinOpening is Join for a breaker's opening: a newer era wins as a whole; inside an era the
// latest opening as a whole, and the latest close.
func JoinOpening(a, b Opening) Opening {
	if a.Era != b.Era {
		if a.Era > b.Era {
			return a
		}
		return b
	}
	out := a
	if compareOpening(a, b) < 0 {
		out = b
	}
	out.ClosedAt = later(a.ClosedAt, b.ClosedAt)
	return out
}

// JoinConnection is Join for a whole connection, part by part; a newer era wins as a whole.
func JoinConnection(a, b Connection) Connection {
	if a.Era() != b.Era() {
		if a.Era() > b.Era() {
			return a
		}
		return b
	}
	return Connection{
		Cooldown:   Join(a.Cooldown, b.Cooldown),
		Lockouts:   joinLockouts(a.Lockouts, b.Lockouts),
		Rejections: joinStrikes(a.Rejections, b.Rejections),
		Expiries:   joinStrikes(a.Expiries, b.Expiries),
		Refused:    max(a.Refused, b.Refused),
		Renewed:    max(a.Renewed, b.Renewed),
	}
}

// SeenConnection is Seen for a whole connection, leaving aside what is of no use at now, and the
// lockouts for which the durable list had no room: they are known, and told no more.
func SeenConnection(durable, provisional Connection, now time.Time) bool {
	if provisional.Era() != durable.Era() {
		return provisional.Era() < durable.Era()
	}
	durable, provisional = durable.Prune(now), provisional.Prune(now)
	if len(provisional.Lockouts.unseen(durable.Lockouts)) > 0 {
		return false
	}
	provisional.Lockouts = nil
	return JoinConnection(durable, provisional).Equal(durable)
}

// News is the state without the lockouts that the durable one has seen. Joined with the durable
// one it gives the same as the whole state.
func (c Connection) News(durable Connection) Connection {
	if c.Era() == durable.Era() {
		c.Lockouts = c.Lockouts.unseen(durable.Lockouts)
	}
	return c
}

// JoinProvider is Join for a whole provider, part by part; a newer era wins as a whole.
func JoinProvider(a, b Provider) Provider {
	if a.Era() != b.Era() {
		if a.Era() > b.Era() {
			return a
		}
		return b
	}
	return Provider{JoinOpening(a.Opening, b.Opening), Join(a.Hold, b.Hold), Join(a.Gate, b.Gate)}
}

// SeenProvider is Seen for a whole provider.
func SeenProvider(durable, provisional Provider) bool {
	return JoinProvider(durable, provisional).Equal(durable)
}

func compareEpisodes(a, b Cooldown) int {
	return cmp.Or(
		a.SetAt.Compare(b.SetAt),
		a.EasedAt.Compare(b.EasedAt),
		cmp.Compare(a.Level, b.Level),
		cmp.Compare(bit(a.Eases), bit(b.Eases)),
	)
}

func firstTerminal(a, b Cooldown) Cooldown {
	switch {
	case a.Terminal == "":
		return b
	case b.Terminal == "":
		return a
	case cmp.Or(a.TerminalAt.Compare(b.TerminalAt), cmp.Compare(a.Terminal, b.Terminal)) <= 0:
		return a
	default:
		return b
	}
}

func compareOpening(a, b Opening) int {
	return cmp.Or(
		a.OpenedAt.Compare(b.OpenedAt),
		a.Until.Compare(b.Until),
		cmp.Compare(a.Cycle, b.Cycle),
		cmp.Compare(a.Failures, b.Failures),
		cmp.Compare(a.Status, b.Status),
		cmp.Compare(a.Reason, b.Reason),
	)
}
