package resilience

import (
	"math"
	"time"

	"omniroute/models"
)

// MaxHint is the longest an upstream may keep anything out, whatever it asks for.
const MaxHint = 24 * time.Hour

const (
	// jitterShare is how far a guessed cooldown may move either way.
	jitterShare = 0.10
	// leastCooldown is a floor under every duration, so that no failure leaves a busy loop.
	leastCooldown = time.Millisecond
)

// Cooldown is what is durable about the health of one connection, of one model on it, or of a
// provider: cooldown, backoff level and terminal state (guide section 2). The zero value is
// healthy. Fields hold evidence, also evidence that has been cleared since: read them through
// Standing.
//
// It is a join-semilattice: Join is commutative, associative and idempotent, so states may
// be lost, repeated and reordered on their way without harm. Every instant is a whole
// millisecond in UTC, as rows keep it, so that a state survives storage unchanged.
//
// Level and SetAt describe the latest episode. An episode begins with a failure of an attempt
// that was sent when no cooldown was running; failures of attempts sent earlier are the same
// crowd and belong to the episode (anti-stampede).
type Cooldown struct {
	Era int64 `json:"era,omitempty"`
	// Began is when the era began: attempts sent before it do not concern it.
	Began time.Time `json:"began,omitzero"`
	SetAt time.Time `json:"setAt,omitzero"`  // when the episode began
	Level int       `json:"level"`           // failures in a row, counted once per episode; cooldown = base*2^(level-1)
	Eases bool      `json:"eases,omitempty"` // a success halves the level; else it clears at once
	// EasedAt is when a success last halved the level of this episode; zero if none did.
	EasedAt time.Time `json:"easedAt,omitzero"`
	// Deadline is the one that holds.
	Deadline
	// Other is where replicas differ: they remember the deadline of the latest failure and the
	// longest one, which mostly are the same, and a clear voids those of failures that were seen
	// before it. So nothing is lost of what replicas learn apart, but where a deadline was
	// cleared that was longer than all they have learned since: of these the latest is kept,
	// and another comes again with the upstream's next answer.
	Other Deadline `json:"other,omitzero"`
	// Since is the clear on which the longest deadline replaced a longer one, so that what has
	// been cleared never comes back.
	Since time.Time `json:"since,omitzero"`
	// Terminal is banned, expired or credits_exhausted, else empty. The first one stays; no
	// cooldown and no success overwrites it, only a new era does.
	Terminal   models.Phase `json:"terminal,omitempty"`
	TerminalAt time.Time    `json:"terminalAt,omitzero"`
	// ClearedAt is the time of dispatch of the latest attempt that cleared by succeeding, or
	// when an operator cleared: it clears failures seen before it, never what came after
	// (compare-and-set).
	ClearedAt time.Time `json:"clearedAt,omitzero"`
}

// Deadline is until when a failure keeps something out, and why.
type Deadline struct {
	FailedAt time.Time     `json:"failedAt,omitzero"` // when it was seen
	Until    time.Time     `json:"until,omitzero"`
	Reason   models.Reason `json:"reason,omitempty"`
	Status   int           `json:"status,omitempty"` // HTTP status that set it; 0 for a transport failure
	Hinted   bool          `json:"hinted,omitempty"` // Until came from the upstream, not from the formula
}

// Failure is one adverse verdict about a connection (or about one model on it).
type Failure struct {
	At         time.Time // when the failure was seen
	Dispatched time.Time // when the attempt that failed was sent; zero = At
	Reason     models.Reason
	Status     int
	Terminal   models.Phase  // set when the verdict is terminal
	Fixed      time.Duration // a verdict's own duration (404: 2 min); 0 = the backoff formula
	Hint       time.Duration // what the upstream asked for, already capped; 0 = none
	Jitter     float64       // in [-1, 1]; scales a guess by up to ±10 %, never a hint
	Token      int64         // generation of the access token that was sent; matters where that has expired
	// Shared says that another connection met it: it keeps this one out for as long, and counts
	// no level here.
	Shared bool
}

// Fail applies a failure and reports whether anything changed.
//
//   - A failure of an attempt sent before the era is ignored: its credentials may be gone.
//   - A terminal state absorbs every later failure, and a terminal verdict always counts.
//   - A failure of an attempt sent before the latest clear is older news than that and is
//     ignored, unless the upstream said how long to stay away.
//   - A failure of an attempt sent while a cooldown was running, or before it, belongs to that
//     episode: the level stays. A declared duration (hint or fixed) extends a shorter deadline
//     and never shortens a longer one. A guess extends nothing while the cooldown runs; once it
//     has passed, the late failure cools again for the same level.
//   - Any other failure begins an episode: the level, decayed by quiet time, rises by one,
//     unless another connection met it.
func (c Cooldown) Fail(f Failure, p CooldownPolicy) (next Cooldown, changed bool) {
	f = f.normal()
	declared, isHint := f.declared(p)
	switch {
	case c.deaf(f):
		return c, false
	case f.Terminal.Terminal():
		return c.terminate(f), true
	case f.Dispatched.Before(c.ClearedAt) && !isHint:
		return c, false
	case c.running() && f.Dispatched.Before(c.Until):
		return c.extend(f, p, declared, isHint)
	default:
		return c.begin(f, p, declared, isHint), true
	}
}

// Succeed applies a success of an attempt sent at dispatched. When the attempt was sent after
// the latest failure was seen, it clears cooldown and level, or, where the episode says so,
// halves the level and clears at 0 (guide section 3, recovery by success). It never ends a
// terminal state, and changes nothing when there is nothing to clear.
func (c Cooldown) Succeed(dispatched time.Time) (next Cooldown, changed bool) {
	dispatched = instant(dispatched)
	switch {
	case c.Terminal != "" || !c.running() || !dispatched.After(c.latest().FailedAt):
		return c, false
	case c.Eases && c.Level > 1:
		// Later than the one before, so that of two states of one episode the newer is the later.
		c.Level, c.EasedAt = c.Level/2, later(dispatched, c.EasedAt.Add(time.Millisecond))
	default:
		return c.clear(dispatched), true
	}
	return c, true
}

// Clear ends a cooldown by decision, not by evidence, and never a terminal state. It is
// remembered also where nothing is known to run, so that what was seen before it and is still
// under way ends as well.
func (c Cooldown) Clear(now time.Time) (next Cooldown, changed bool) {
	at := later(instant(now), c.latest().FailedAt.Add(time.Millisecond))
	if c.Terminal != "" || !at.After(c.ClearedAt) {
		return c, false
	}
	return c.clear(at), true
}

// Enter moves to an era that began at the given time, healthy, as new credentials begin one.
// Failures of attempts sent before it are not counted in it. An era that is not newer changes
// nothing.
func (c Cooldown) Enter(era int64, at time.Time) Cooldown {
	if era <= c.Era {
		return c
	}
	return Cooldown{Era: era, Began: instant(at), ClearedAt: instant(at)}
}

// Pristine reports that nothing adverse has been seen in this era.
func (c Cooldown) Pristine() bool { return c.SetAt.IsZero() && c.Terminal == "" }

// Standing is what a Cooldown means at one moment.
type Standing struct {
	Phase  models.Phase
	Reason models.Reason // why it is out, or was before Trial; empty when healthy
	Until  time.Time     // end of the cooldown; zero unless cooling or on trial
	Level  int
	Status int
	Hinted bool
	// Trial says that the cooldown has passed and nothing has succeeded since: one request
	// goes first while the others stay behind.
	Trial bool
}

// Standing says where the connection stands at now. Recovery is lazy: a cooldown is over at
// the instant of its deadline, without a timer (guide section 2).
func (c Cooldown) Standing(now time.Time) Standing {
	if c.Terminal != "" {
		return Standing{Phase: c.Terminal, Reason: models.Reason(c.Terminal)}
	}
	if !c.running() {
		return Standing{Phase: models.PhaseReady}
	}
	s := Standing{
		Phase: models.PhaseCooling, Reason: c.Reason, Until: c.Until,
		Level: c.Level, Status: c.Status, Hinted: c.Hinted,
	}
	if !now.Before(c.Until) {
		s.Phase, s.Trial = models.PhaseReady, !c.EasedAt.After(c.latest().FailedAt)
	}
	return s
}

// Settled reports that there is nothing to time, to try or to clear.
func (c Cooldown) Settled() bool { return c.Terminal == "" && !c.running() }

// Evidence is the time of the latest observation in the state.
func (c Cooldown) Evidence() time.Time {
	return later(later(later(c.latest().FailedAt, c.TerminalAt), c.ClearedAt), c.EasedAt)
}

// Dormant reports whether no deadline lies ahead: healthy, or the cooldown has passed. The
// level that remains decays by quiet time when the next failure comes, which needs no timer.
func (c Cooldown) Dormant(now time.Time) bool {
	return c.Standing(now).Phase == models.PhaseReady
}

// Equal compares states; instants are compared as instants.
func (c Cooldown) Equal(o Cooldown) bool {
	return c.Era == o.Era && c.Level == o.Level && c.Eases == o.Eases && c.Terminal == o.Terminal &&
		c.equal(o.Deadline) && c.Other.equal(o.Other) &&
		c.Began.Equal(o.Began) && c.Since.Equal(o.Since) && c.SetAt.Equal(o.SetAt) && c.EasedAt.Equal(o.EasedAt) &&
		c.TerminalAt.Equal(o.TerminalAt) && c.ClearedAt.Equal(o.ClearedAt)
}

// deaf reports that a failure means nothing here: the state ends only with its era, or the
// attempt was sent before the era.
func (c Cooldown) deaf(f Failure) bool { return c.Terminal != "" || f.Dispatched.Before(c.Began) }

// sooner is the deadline ahead, if there is one and it is earlier than another; zero is none.
func (c Cooldown) sooner(than, now time.Time) time.Time {
	if c.Standing(now).Phase == models.PhaseCooling && (than.IsZero() || c.Until.Before(than)) {
		return c.Until
	}
	return than
}

// running reports whether there is an episode that no success has cleared.
func (c Cooldown) running() bool {
	return !c.SetAt.IsZero() && !c.ClearedAt.After(c.latest().FailedAt)
}

func (c Cooldown) terminate(f Failure) Cooldown {
	c.Terminal, c.TerminalAt = f.Terminal, f.At
	return c
}

func (c Cooldown) extend(f Failure, p CooldownPolicy, declared time.Duration, isHint bool) (Cooldown, bool) {
	wait := declared
	if wait == 0 {
		if f.At.Before(c.Until) {
			return c, false
		}
		wait = p.guess(c.Level, f.Jitter)
	}
	until := deadline(f.At, wait)
	if !until.After(c.Until) {
		return c, false
	}
	return c.hold(f, until, isHint), true
}

func (c Cooldown) begin(f Failure, p CooldownPolicy, declared time.Duration, isHint bool) Cooldown {
	level := 0
	if c.running() {
		level = c.decayed(f.At, p)
	}
	if !f.Shared {
		level = min(level+1, p.highest())
	}
	wait := declared
	if wait == 0 {
		wait = p.guess(level, f.Jitter)
	}
	c.Level, c.Eases, c.EasedAt = level, p.Eases, time.Time{}
	// Later than the episode before, whose time may be of a clock that is ahead.
	c.SetAt = later(f.At, c.SetAt.Add(time.Millisecond))
	return c.hold(f, deadline(f.At, wait), isHint)
}

// hold sets a deadline that ends later than any that holds: it is the latest and the longest.
func (c Cooldown) hold(f Failure, until time.Time, isHint bool) Cooldown {
	// What counts is not undone by a clock that is behind.
	seen := later(later(f.At, c.latest().FailedAt), c.ClearedAt)
	d := Deadline{FailedAt: seen, Until: until, Reason: f.Reason, Status: f.Status, Hinted: isHint}
	if void := c.longest(); void.FailedAt.Before(c.ClearedAt) && void.compare(d) >= 0 {
		c.Since = c.ClearedAt
	}
	c.Deadline, c.Other = d, Deadline{}
	return c
}

// decayed is the level after quiet time. One that counts is forgotten once the window has passed
// since the deadline; of another there is one level less for every longest guess that has.
func (c Cooldown) decayed(now time.Time, p CooldownPolicy) int {
	if p.Eases || p.Window > 0 {
		if now.Sub(c.Until) > p.Window {
			return 0
		}
		return c.Level
	}
	quiet := now.Sub(c.Until) / p.guess(p.topLevel(), 0)
	return max(0, c.Level-int(min(quiet, time.Duration(c.Level))))
}

// topLevel is the level of the longest guess: the first failure and MaxSteps doublings.
func (p CooldownPolicy) topLevel() int { return max(0, p.MaxSteps) + 1 }

// mostCounted bounds a level that counts.
const mostCounted = 1000

// highest is where the level stops. One that successes halve counts failures, also past the
// last doubling; another would take the longer to decay the longer the trouble was.
func (p CooldownPolicy) highest() int {
	if p.Eases {
		return mostCounted
	}
	return p.topLevel()
}

// guess is base*2^(level-1), moved by jitter and bounded by Max.
func (p CooldownPolicy) guess(level int, jitter float64) time.Duration {
	longest := p.Max
	if longest <= 0 || longest > MaxHint {
		longest = MaxHint
	}
	wait := p.Base
	if wait <= 0 {
		wait = fallbackBase
	}
	for range min(max(level, 1), p.topLevel()) - 1 {
		if wait >= longest {
			break
		}
		wait *= 2
	}
	wait = min(wait, longest)
	if !math.IsNaN(jitter) {
		wait += time.Duration(float64(wait) * jitterShare * min(max(jitter, -1), 1))
	}
	return min(max(wait, leastCooldown), longest)
}

// declared is how long the upstream or the verdict itself says to stay away: the hint where
// the policy honours hints, else the verdict's own duration, else 0.
func (f Failure) declared(p CooldownPolicy) (wait time.Duration, isHint bool) {
	if p.UseHints && f.Hint > 0 {
		return min(max(f.Hint, leastCooldown), MaxHint), true
	}
	if f.Fixed > 0 {
		return min(max(f.Fixed, leastCooldown), MaxHint), false
	}
	return 0, false
}

func (f Failure) normal() Failure {
	f.At = deadline(f.At, 0)
	if f.Dispatched.IsZero() || f.Dispatched.After(f.At) {
		f.Dispatched = f.At
	}
	return f
}

// instant is t as a row keeps it: whole milliseconds, UTC, no monotonic reading.
func instant(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Millisecond)
}

// deadline is at+wait, rounded up to a whole millisecond so that no wait is cut short.
func deadline(at time.Time, wait time.Duration) time.Time {
	return instant(at.Add(wait + time.Millisecond - 1))
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
