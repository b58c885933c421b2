package resilience

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"omniroute/models"
)

// LockKey says which models of one connection a lockout keeps out (guide section 3, key scope
// by status).
type LockKey struct {
	Scope models.LockScope `json:"scope"`
	Name  string           `json:"name"` // the model's id at its provider, or the family's name
}

// KeyOf is the key of a verdict's lock on a model. A model of no family is locked by itself.
func KeyOf(scope models.LockScope, model, family string) LockKey {
	switch {
	case scope == models.LockFamily && family != "":
		return LockKey{models.LockFamily, family}
	case scope == models.LockFamily:
		return LockKey{models.LockModel, model}
	case scope == "":
		return LockKey{models.LockExact, model}
	default:
		return LockKey{scope, model}
	}
}

// KeysOf are all keys that keep a model out; a model of no family has two.
func KeysOf(model, family string) []LockKey {
	keys := keysOf(model, family)
	if family == "" {
		return keys[:2]
	}
	return keys[:]
}

// keysOf is KeysOf with a key for the empty family, which no lockout has.
func keysOf(model, family string) [3]LockKey {
	return [3]LockKey{{models.LockExact, model}, {models.LockModel, model}, {models.LockFamily, family}}
}

func (k LockKey) compare(o LockKey) int {
	return cmp.Or(cmp.Compare(k.Scope, o.Scope), cmp.Compare(k.Name, o.Name))
}

// Lockout is one model, or one family of models, that is out on one connection. Its cooldown's
// level is the count of failures. Terminal, Era and Began are never used: nothing ends for good
// with one model, and the era is the connection's.
type Lockout struct {
	LockKey
	Cooldown
}

const (
	// MaxLockouts bounds the lockouts of one connection. Beyond it the one that ends first goes,
	// also when it is the newest.
	MaxLockouts = 128
	// lockoutMemory is how long a lockout is remembered after its end, which is the longest
	// escalation window, and for how long a clear is: older evidence may still be under way.
	lockoutMemory = time.Hour
)

// ends is the time from which nothing of the lockout is of use to anybody. No join makes it
// earlier, a clear included: which lockouts a full list keeps must not depend on the order in
// which they came.
func (l *Lockout) ends() time.Time {
	return later(later(l.Until, l.Other.Until), l.ClearedAt).Add(lockoutMemory)
}

// Lockouts is what one connection has, sorted by key, one for each; never changed in place.
type Lockouts []Lockout

// at is where a key is, or belongs.
func (ls Lockouts) at(key LockKey) (index int, found bool) {
	return sort.Find(len(ls), func(i int) int { return key.compare(ls[i].LockKey) })
}

// of is the cooldown of a key; of one that is not there, a healthy one.
func (ls Lockouts) of(key LockKey) Cooldown {
	if i, found := ls.at(key); found {
		return ls[i].Cooldown
	}
	return Cooldown{}
}

// with is a copy in which the cooldown stands for its key.
func (ls Lockouts) with(key LockKey, c Cooldown) Lockouts {
	i, found := ls.at(key)
	if !found {
		out := append(make(Lockouts, 0, len(ls)+1), ls[:i]...)
		return append(append(out, Lockout{key, c}), ls[i:]...).bounded()
	}
	out := slices.Clone(ls)
	out[i].Cooldown = c
	return out
}

// bounded drops, in place, what ends first until the list is within its bound.
func (ls Lockouts) bounded() Lockouts {
	for len(ls) > MaxLockouts {
		first := 0
		for i := range ls {
			if ls[i].ends().Before(ls[first].ends()) {
				first = i
			}
		}
		ls = slices.Delete(ls, first, first+1)
	}
	return ls
}

// pruned is the list without what is of no use at now.
func (ls Lockouts) pruned(now time.Time) Lockouts {
	for i := range ls {
		if ls[i].ends().Before(now) {
			return slices.DeleteFunc(slices.Clone(ls), func(l Lockout) bool { return l.ends().Before(now) })
		}
	}
	return ls
}

func (ls Lockouts) equal(o Lockouts) bool {
	if len(ls) != len(o) {
		return false
	}
	for i := range ls {
		if ls[i].LockKey != o[i].LockKey || !ls[i].Equal(o[i].Cooldown) {
			return false
		}
	}
	return true
}

// joinLockouts joins two lists key by key. Only where more come together than the bound allows,
// which of them are dropped may depend on the order of joins.
func joinLockouts(a, b Lockouts) Lockouts {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make(Lockouts, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch n := a[0].compare(b[0].LockKey); {
		case n < 0:
			out, a = append(out, a[0]), a[1:]
		case n > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			out = append(out, Lockout{a[0].LockKey, Join(a[0].Cooldown, b[0].Cooldown)})
			a, b = a[1:], b[1:]
		}
	}
	return append(append(out, a...), b...).bounded()
}

// unseen is what a list knows and a durable one does not, leaving aside what a full one has no
// room for: that would be told again for ever.
func (ls Lockouts) unseen(durable Lockouts) Lockouts {
	var out Lockouts
	for i := range ls {
		at, found := durable.at(ls[i].LockKey)
		if found && Seen(durable[at].Cooldown, ls[i].Cooldown) || !found && !durable.roomFor(&ls[i]) {
			continue
		}
		out = append(out, ls[i])
	}
	return out
}

// roomFor reports whether a lockout with a key of its own would stay in the list.
func (ls Lockouts) roomFor(l *Lockout) bool {
	return len(ls) < MaxLockouts ||
		slices.ContainsFunc(ls, func(other Lockout) bool { return other.ends().Before(l.ends()) })
}
