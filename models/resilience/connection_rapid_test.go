package resilience

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

// fleet is a few replicas of one connection and the row they share, each of which knows only
// what it has seen and been told.
type fleet struct {
	now      time.Time
	policy   ConnectionPolicy
	replicas []Connection
	row      Connection
}

var (
	anyKey = rapid.SampledFrom([]LockKey{
		{models.LockExact, "m1"}, {models.LockExact, "m2"}, {models.LockModel, "m1"}, {models.LockFamily, "f"},
	})
	anyConnectionFailure = rapid.Custom(func(t *rapid.T) Failure {
		f := anyFailure.Draw(t, "failure")
		f.Reason = rapid.SampledFrom([]models.Reason{
			models.ReasonRateLimited, models.ReasonRequestRejected, models.ReasonRequestRejected, models.ReasonExpired,
		}).Draw(t, "reason")
		f.Token = rapid.Int64Range(0, 2).Draw(t, "token")
		return f
	})
	// anyConnectionPolicy has retries and memories that a short run can use up.
	anyConnectionPolicy = rapid.Custom(func(t *rapid.T) ConnectionPolicy {
		return ConnectionPolicy{
			Cooldown:   anyPolicy.Draw(t, "cooldown"),
			Expired:    ExpiredPolicy{Retries: rapid.IntRange(0, 3).Draw(t, "retries"), Base: time.Second},
			NoCooldown: rapid.IntRange(0, 4).Draw(t, "disableCooling") == 0,
			Renewable:  rapid.Bool().Draw(t, "renewable"),
		}
	})
)

// change applies one event to a replica and checks what holds of every event.
func (w *fleet) change(t *rapid.T, event func(c Connection) (Connection, bool)) (before, after Connection, changed bool) {
	i := rapid.IntRange(0, len(w.replicas)-1).Draw(t, "replica")
	before = w.replicas[i]
	copied := before
	copied.Lockouts = slices.Clone(before.Lockouts)
	after, changed = event(before)
	require.True(t, before.Equal(copied), "a state is a value: nothing changes in place")
	require.Equal(t, !after.Equal(before), changed, "changed says so exactly when it is so")
	require.True(t, JoinConnection(before, after).Equal(after), "what is learned is not lost on the way")
	require.True(t, JoinConnection(after, before).Equal(after))
	require.True(t, slices.IsSortedFunc(after.Lockouts, func(a, b Lockout) int { return a.compare(b.LockKey) }))
	w.replicas[i] = after
	return before, after, changed
}

// dispatched is when the attempt of an event was sent.
func (w *fleet) dispatched(t *rapid.T) time.Time {
	return w.now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "ago")) * 500 * time.Millisecond)
}

// outUntil is the end of a cooldown that runs at now, else zero.
func outUntil(c Cooldown, now time.Time) time.Time { return c.sooner(time.Time{}, now) }

func (w *fleet) fail(t *rapid.T) {
	f := anyConnectionFailure.Draw(t, "failure")
	f.At, f.Dispatched = w.now, w.dispatched(t)
	before, after, _ := w.change(t, func(c Connection) (Connection, bool) { return c.Fail(f, w.policy) })
	require.Equal(t, before.Lockouts, after.Lockouts, "a failure of the connection locks no model")
	require.True(t, after.Cooldown.Terminal != "" || !outUntil(after.Cooldown, w.now).Before(outUntil(before.Cooldown, w.now)), "no failure shortens a cooldown")
	require.LessOrEqual(t, after.Rejections.Count, before.Rejections.Count+1)
	require.LessOrEqual(t, after.Expiries.Count, before.Expiries.Count+1)
	if before.Cooldown.Terminal != "" {
		require.True(t, after.Equal(before), "a terminal state is never overwritten")
	}
	if f.Reason == models.ReasonExpired && f.Terminal == "" && f.Token < before.Renewed {
		require.True(t, after.Equal(before), "a token that has been replaced says nothing")
	}
	if w.policy.NoCooldown && f.Reason != models.ReasonExpired {
		require.Equal(t, before.Cooldown.Until, after.Cooldown.Until, "no cooldown keeps it away")
	}
}

func (w *fleet) failModel(t *rapid.T) {
	key, f := anyKey.Draw(t, "key"), anyFailure.Draw(t, "failure")
	f.At, f.Dispatched = w.now, w.dispatched(t)
	policy := anyPolicy.Draw(t, "policy")
	before, after, changed := w.change(t, func(c Connection) (Connection, bool) { return c.FailModel(key, f, policy) })
	require.True(t, after.Cooldown.Equal(before.Cooldown), "the connection stays as it was")
	for _, other := range before.Lockouts {
		is := after.Lockouts.of(other.LockKey)
		require.False(t, outUntil(is, w.now).Before(outUntil(other.Cooldown, w.now)), "no failure shortens a lockout")
		require.True(t, other.LockKey == key || is.Equal(other.Cooldown), "no key touches another")
	}
	lock := after.Lockouts.of(key)
	require.Empty(t, lock.Terminal, "nothing ends for good with a model")
	if changed && before.Lockouts.of(key).Dormant(w.now) {
		wait := lock.Until.Sub(w.now)
		require.Positive(t, wait)
		if !policy.UseHints || f.Hint == 0 {
			require.LessOrEqual(t, wait, policy.Max+time.Millisecond, "never above the cap")
		}
	}
}

func (w *fleet) succeed(t *rapid.T) {
	model, dispatched := rapid.SampledFrom([]string{"m1", "m2"}).Draw(t, "model"), w.dispatched(t)
	before, after, _ := w.change(t, func(c Connection) (Connection, bool) { return c.Succeed(model, "f", dispatched) })
	require.Equal(t, before.Cooldown.Terminal, after.Cooldown.Terminal, "a success never ends a terminal state")
	for _, lock := range before.Lockouts {
		is := after.Lockouts.of(lock.LockKey)
		if lock.Scope != models.LockFamily && lock.Name != model || !dispatched.After(lock.FailedAt) {
			require.True(t, is.Equal(lock.Cooldown), "another model's success, or an older one, says nothing")
		}
	}
}

func (w *fleet) operate(t *rapid.T) {
	step := rapid.SampledFrom([]string{"clear", "enable", "renew", "renew", "reset"}).Draw(t, "operation")
	before, after, _ := w.change(t, func(c Connection) (Connection, bool) {
		switch step {
		case "clear":
			return c.ClearCooldown(w.now)
		case "enable":
			return c.Enable([]LockKey{anyKey.Draw(t, "key"), {models.LockModel, "unheard of"}}, w.now)
		case "renew":
			return c.Renew(w.now, rapid.Int64Range(0, 3).Draw(t, "generation"))
		default:
			return c.Reset(w.now), true
		}
	})
	switch step {
	case "clear":
		require.Equal(t, before.Cooldown.Terminal, after.Cooldown.Terminal)
		require.True(t, after.Cooldown.Terminal != "" || after.Cooldown.Settled() && after.Rejections.Count+after.Expiries.Count == 0)
		require.Equal(t, before.Lockouts, after.Lockouts)
	case "enable":
		require.True(t, after.Cooldown.Equal(before.Cooldown))
	case "renew":
		require.NotEqual(t, models.PhaseExpired, after.Cooldown.Terminal)
		require.Equal(t, before.Era() < after.Era(), before.Cooldown.Terminal == models.PhaseExpired, "any other terminal state stays")
		require.Equal(t, before.Lockouts, after.Lockouts)
		require.Equal(t, before.Rejections, after.Rejections)
		require.Zero(t, after.Expiries.Count)
		require.False(t, after.Outdated())
	case "reset":
		require.True(t, after.Pristine() && after.Settled() && after.Dormant(w.now))
	}
}

// tell sends a replica's news to the row, and a replica reads the row.
func (w *fleet) tell(t *rapid.T) {
	i := rapid.IntRange(0, len(w.replicas)-1).Draw(t, "replica")
	whole := JoinConnection(w.row, w.replicas[i])
	w.row = JoinConnection(w.row, w.replicas[i].News(w.row))
	require.True(t, w.row.Equal(whole), "the news are all that the row needs")
	require.True(t, SeenConnection(w.row, w.replicas[i], w.now))
	if rapid.Bool().Draw(t, "prune") {
		w.row = w.row.Prune(w.now)
		require.True(t, SeenConnection(w.row, w.replicas[i], w.now), "a pruned row has seen what an unpruned replica keeps")
		require.True(t, SeenConnection(w.row, w.replicas[i], w.now.Add(time.Minute)), "and does not forget it")
	}
	reader := rapid.IntRange(0, len(w.replicas)-1).Draw(t, "reader")
	before := w.replicas[reader]
	after := JoinConnection(before, w.row)
	w.replicas[reader] = after
	if after.Era() == before.Era() {
		checkLoosening(t, before.Cooldown, after.Cooldown, w.now)
		for _, lock := range before.Lockouts {
			checkLoosening(t, lock.Cooldown, after.Lockouts.of(lock.LockKey), w.now)
		}
	}
	was, is := before.Cooldown.Standing(w.now), after.Cooldown.Standing(w.now)
	if was.Phase.Terminal() && is.Phase != was.Phase {
		require.True(t, after.Era() > before.Era() || after.Cooldown.TerminalAt.Before(before.Cooldown.TerminalAt) || is.Reason < was.Reason)
		require.True(t, after.Era() > before.Era() || is.Phase.Terminal())
	}
}

// checkLoosening proves that what a replica hears frees nothing, but for a clear of it.
func checkLoosening(t *rapid.T, before, after Cooldown, now time.Time) {
	if after.Terminal != "" || !outUntil(after, now).Before(outUntil(before, now)) {
		return
	}
	cleared := before.FailedAt.Before(after.ClearedAt)
	longerWasCleared := after.longest().FailedAt.Before(after.ClearedAt)
	require.True(t, cleared || longerWasCleared, "a reader is freed by a clear or a new era only")
}

func (w *fleet) wait(t *rapid.T) {
	scale := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 5 * time.Minute, 20 * time.Minute}).Draw(t, "scale")
	w.now = w.now.Add(time.Duration(rapid.IntRange(0, 5).Draw(t, "wait")) * scale)
	if rapid.IntRange(0, 9).Draw(t, "new settings") == 0 {
		w.policy = anyConnectionPolicy.Draw(t, "policy")
	}
}

// check is what holds of any states, whatever has happened to them.
func (w *fleet) check(t *rapid.T) {
	a, b, c := w.replicas[0], w.replicas[1], w.row
	require.True(t, JoinConnection(a, a).Equal(a))
	require.True(t, JoinConnection(a, b).Equal(JoinConnection(b, a)))
	require.True(t, JoinConnection(JoinConnection(a, b), c).Equal(JoinConnection(a, JoinConnection(b, c))))
	require.True(t, JoinConnection(Connection{}, a).Equal(a), "an empty state knows nothing")
	require.Equal(t, SeenConnection(c, a, w.now), SeenConnection(c.Prune(w.now), a, w.now))
	require.True(t, a.Shift(time.Hour).Shift(-time.Hour).Equal(a))
	require.True(t, JoinConnection(a.Shift(time.Hour), b.Shift(time.Hour)).Equal(JoinConnection(a, b).Shift(time.Hour)))
	require.Equal(t, a.Dormant(w.now), a.Cooldown.Dormant(w.now) && len(a.Out(w.now)) == 0)
	if next := a.Next(w.now); !next.IsZero() {
		require.True(t, next.After(w.now))
		require.False(t, a.Dormant(next.Add(-time.Millisecond)))
	}

	text, err := json.Marshal(a)
	require.NoError(t, err)
	var stored Connection
	require.NoError(t, json.Unmarshal(text, &stored))
	require.True(t, stored.Equal(a), "a state survives storage unchanged")
}

func TestAFleetOfReplicasKeepsOneConnectionsHealth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &fleet{now: noon, policy: anyConnectionPolicy.Draw(t, "policy"), replicas: make([]Connection, 3)}
		t.Repeat(map[string]func(*rapid.T){
			"fail": w.fail, "fail again": w.fail, "fail a model": w.failModel, "fail a model again": w.failModel,
			"succeed": w.succeed, "operate": w.operate, "tell": w.tell, "tell again": w.tell, "wait": w.wait, "": w.check,
		})
	})
}
