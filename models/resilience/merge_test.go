package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

// Few distinct values, so that ties and collisions are common.
var (
	anyInstant = rapid.Custom(func(t *rapid.T) time.Time {
		if n := rapid.IntRange(0, 6).Draw(t, "instant"); n > 0 {
			return after(time.Duration(n) * time.Second)
		}
		return time.Time{}
	})
	anyReason   = rapid.SampledFrom([]models.Reason{"", models.ReasonRateLimited, models.ReasonAuth})
	anyStatus   = rapid.SampledFrom([]int{0, 429, 503})
	anyTerminal = rapid.SampledFrom([]models.Phase{"", "", models.PhaseBanned, models.PhaseExpired, models.PhaseCreditsExhausted})
	anyEra      = rapid.Int64Range(0, 2)

	anyDeadline = rapid.Custom(func(t *rapid.T) Deadline {
		return Deadline{
			FailedAt: after(time.Duration(rapid.IntRange(1, 6).Draw(t, "failedAt")) * time.Second),
			Until:    after(time.Duration(rapid.IntRange(1, 6).Draw(t, "until")) * time.Second),
			Reason:   anyReason.Draw(t, "reason"), Status: anyStatus.Draw(t, "status"), Hinted: rapid.Bool().Draw(t, "hinted"),
		}
	})
	// anyCooldown is any register at all, reachable or not.
	anyCooldown = rapid.Custom(func(t *rapid.T) Cooldown {
		c := Cooldown{
			Era: anyEra.Draw(t, "era"), Began: anyInstant.Draw(t, "began"), Since: anyInstant.Draw(t, "since"),
			SetAt: anyInstant.Draw(t, "setAt"), Level: rapid.IntRange(0, 3).Draw(t, "level"),
			EasedAt: anyInstant.Draw(t, "easedAt"), Eases: rapid.Bool().Draw(t, "eases"),
			Terminal: anyTerminal.Draw(t, "terminal"), ClearedAt: anyInstant.Draw(t, "clearedAt"),
		}
		if c.Terminal != "" {
			c.TerminalAt = anyInstant.Draw(t, "terminalAt")
		}
		if c.SetAt.IsZero() {
			c.Since = time.Time{}
			return c
		}
		latest, longest := anyDeadline.Draw(t, "latest"), anyDeadline.Draw(t, "longest")
		if rapid.Bool().Draw(t, "one deadline") {
			longest = latest
		}
		if latest.compareSeen(longest) < 0 {
			latest, longest = longest, latest
		}
		return c.remember(latest, longest)
	})
	anyOpening = rapid.Custom(func(t *rapid.T) Opening {
		return Opening{
			Era: anyEra.Draw(t, "era"), OpenedAt: anyInstant.Draw(t, "openedAt"), Until: anyInstant.Draw(t, "until"),
			Cycle: rapid.IntRange(0, 3).Draw(t, "cycle"), Reason: anyReason.Draw(t, "reason"), Status: anyStatus.Draw(t, "status"),
			Failures: rapid.IntRange(0, 3).Draw(t, "failures"), ClosedAt: anyInstant.Draw(t, "closedAt"),
		}
	})
	anyFailure = rapid.Custom(func(t *rapid.T) Failure {
		seconds := func(label string, low, high int) time.Duration {
			return time.Duration(rapid.IntRange(low, high).Draw(t, label)) * 500 * time.Millisecond
		}
		f := Failure{
			At: after(seconds("at", 0, 60)), Reason: anyReason.Draw(t, "reason"), Status: anyStatus.Draw(t, "status"),
			Hint: max(0, seconds("hint", -20, 60)), Fixed: max(0, seconds("fixed", -20, 60)), Jitter: rapid.Float64Range(-1, 1).Draw(t, "jitter"),
		}
		f.Dispatched = f.At.Add(-seconds("ago", 0, 30))
		if rapid.IntRange(0, 9).Draw(t, "is terminal") == 0 {
			f.Terminal = models.PhaseExpired
		}
		return f
	})
)

// like is b with some of a's fields, so that states differ in one thing only often enough.
func like(t *rapid.T, a, b Cooldown) Cooldown {
	same := func(field string) bool { return rapid.IntRange(0, 3).Draw(t, "same "+field) > 0 }
	if same("era") {
		b.Era = a.Era
	}
	if same("episode") && !a.SetAt.IsZero() && !b.SetAt.IsZero() {
		b.SetAt = a.SetAt
	}
	if same("easing") {
		b.EasedAt, b.Level = a.EasedAt, a.Level
	}
	if a.SetAt.IsZero() == b.SetAt.IsZero() {
		if same("since") {
			b.Since = a.Since
		}
		if same("deadlines") {
			b = b.remember(a.latest(), a.longest())
		}
	}
	return b
}

func likeOpening(t *rapid.T, a, b Opening) Opening {
	same := func(field string) bool { return rapid.IntRange(0, 3).Draw(t, "same "+field) > 0 }
	if same("era") {
		b.Era = a.Era
	}
	if same("opening") {
		b.OpenedAt, b.Until, b.Cycle = a.OpenedAt, a.Until, a.Cycle
	}
	if same("reason") {
		b.Reason, b.Status = a.Reason, a.Status
	}
	return b
}

func TestJoinIsCommutativeAssociativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, c := anyCooldown.Draw(t, "a"), anyCooldown.Draw(t, "c")
		b := like(t, a, anyCooldown.Draw(t, "b"))
		require.Equal(t, a, Join(a, a))
		require.Equal(t, Join(a, b), Join(b, a))
		require.Equal(t, Join(Join(a, b), c), Join(a, Join(b, c)))
		require.Equal(t, a, Join(Cooldown{}, a), "an empty state knows nothing")
	})
}

func TestJoinOpeningIsCommutativeAssociativeAndIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, c := anyOpening.Draw(t, "a"), anyOpening.Draw(t, "c")
		b := likeOpening(t, a, anyOpening.Draw(t, "b"))
		require.Equal(t, a, JoinOpening(a, a))
		require.Equal(t, JoinOpening(a, b), JoinOpening(b, a))
		require.Equal(t, JoinOpening(JoinOpening(a, b), c), JoinOpening(a, JoinOpening(b, c)))
		require.Equal(t, a, JoinOpening(Opening{}, a))
	})
}

func TestJoinKeepsEveryTerminalStateAndAllEvidenceOfTheEra(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyCooldown.Draw(t, "a"), anyCooldown.Draw(t, "b")
		b.Era = a.Era
		joined := Join(a, b)
		require.Equal(t, a.Terminal != "" || b.Terminal != "", joined.Terminal != "")
		require.False(t, joined.latest().FailedAt.Before(a.latest().FailedAt))
		require.False(t, joined.ClearedAt.Before(b.ClearedAt))
	})
}

func TestANewerEraWinsAsAWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyCooldown.Draw(t, "a"), anyCooldown.Draw(t, "b")
		b.Era = a.Era + 1
		require.Equal(t, b, Join(a, b))
		require.Equal(t, b, Join(b, a))
		x, y := anyOpening.Draw(t, "x"), anyOpening.Draw(t, "y")
		y.Era = x.Era + 1
		require.Equal(t, y, JoinOpening(x, y))
		require.Equal(t, y, JoinOpening(y, x))
	})
}

// replicas is a few replicas of one register that fail, succeed and gossip on their own.
type replicas []Cooldown

func (r replicas) step(t *rapid.T, now time.Time, p CooldownPolicy) {
	i := rapid.IntRange(0, len(r)-1).Draw(t, "replica")
	dispatched := now.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "ago")) * 250 * time.Millisecond)
	before := r[i]
	next, changed := before, false
	step := rapid.SampledFrom([]string{"fail", "fail", "fail", "succeed", "succeed", "gossip", "gossip", "clear", "reset"}).Draw(t, "step")
	switch step {
	case "fail":
		f := anyFailure.Draw(t, "failure")
		f.At, f.Dispatched = now, dispatched
		next, changed = before.Fail(f, p)
		checkFailure(t, before, next, changed, f, p)
	case "succeed":
		next, changed = before.Succeed(dispatched)
		if changed {
			require.True(t, before.latest().FailedAt.Before(dispatched), "a success counts only for what was seen before it was sent")
			require.False(t, next.Standing(now).Trial, "the trial is over")
			require.Less(t, next.Standing(now).Level, before.Level)
			require.Equal(t, before.Eases && before.Level > 1, next.running(), "one that eases is lifted at the last step only")
		}
	case "gossip":
		r[i] = Join(before, r[rapid.IntRange(0, len(r)-1).Draw(t, "from")])
		return
	case "clear", "reset": // rare
		if rapid.IntRange(0, 3).Draw(t, "really") > 0 {
			return
		}
		if step == "clear" {
			next, changed = before.Clear(now)
			require.Equal(t, before.Terminal == "", next.Settled(), "all is over but what is for good")
		} else {
			next, changed = before.Enter(before.Era+1, now), true
			require.Equal(t, Standing{Phase: models.PhaseReady}, next.Standing(now))
		}
	}
	require.Equal(t, !next.Equal(before), changed, "changed says so exactly when it is so")
	require.True(t, Join(before, next).Equal(next), "what a replica learns is never taken back by what it knew")
	if step != "reset" && before.Terminal != "" {
		require.True(t, next.Equal(before), "a terminal state is never overwritten")
	}
	r[i] = next
}

func checkFailure(t *rapid.T, before, next Cooldown, changed bool, f Failure, p CooldownPolicy) {
	require.LessOrEqual(t, next.Level, max(p.highest(), before.Level))
	if next.Terminal != "" || !changed {
		return
	}
	was, is := before.Standing(f.At), next.Standing(f.At)
	require.Equal(t, models.PhaseCooling, is.Phase, "a failure that counts leaves a wait, never 0")
	require.False(t, is.Until.Before(was.Until), "no failure shortens a cooldown")
	require.LessOrEqual(t, is.Level-was.Level, 1, "a failure raises the level by one at most")
	wait := is.Until.Sub(f.At)
	require.GreaterOrEqual(t, wait, leastCooldown)
	if was.Phase == models.PhaseReady {
		hint := f.Hint
		if !p.UseHints {
			hint = 0
		}
		require.LessOrEqual(t, wait, max(p.Max, hint, f.Fixed)+time.Millisecond, "never above the cap")
	}
}

// anyPolicy is one of a connection, or one of a lockout.
var anyPolicy = rapid.Custom(func(t *rapid.T) CooldownPolicy {
	p := CooldownPolicy{
		Base: 500 * time.Millisecond, MaxSteps: rapid.IntRange(0, 4).Draw(t, "steps"),
		Max: 5 * time.Second, UseHints: rapid.Bool().Draw(t, "hints"),
	}
	if p.Eases = rapid.Bool().Draw(t, "eases"); p.Eases {
		p.Window = time.Duration(rapid.IntRange(0, 20).Draw(t, "window")) * time.Second
	}
	return p
})

func TestReplicasThatFailSucceedAndGossipConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := make(replicas, 3)
		now := noon
		p := anyPolicy.Draw(t, "policy")
		for range rapid.IntRange(1, 60).Draw(t, "steps taken") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			if rapid.IntRange(0, 19).Draw(t, "new settings") == 0 {
				p = anyPolicy.Draw(t, "policy")
			}
			r.step(t, now, p)
		}
		forth := Join(Join(r[0], r[1]), r[2])
		back := Join(r[2], Join(r[1], Join(r[0], r[1])))
		require.True(t, forth.Equal(back), "any order, with repeats, is the same state")
		for _, one := range r {
			if one.Era == forth.Era && one.Terminal != "" {
				require.True(t, forth.Standing(now).Phase.Terminal(), "no replica's terminal state is lost")
			}
		}
	})
}

func TestACrowdOnTwoReplicasIsOneEpisode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := make(replicas, 2)
		longest := time.Duration(0)
		for i := range rapid.IntRange(2, 50).Draw(t, "crowd") {
			f := rateLimited(after(time.Duration(rapid.IntRange(0, 2999).Draw(t, "seen")) * time.Millisecond))
			f.Dispatched = after(-time.Duration(i+1) * time.Millisecond)
			if rapid.Bool().Draw(t, "hinted") {
				f.Hint = time.Duration(rapid.IntRange(1, 60_000).Draw(t, "hint")) * time.Millisecond
				longest = max(longest, f.At.Sub(noon)+f.Hint)
			}
			k := i % 2
			r[k], _ = r[k].Fail(f, apiKey)
			if rapid.Bool().Draw(t, "gossip") {
				r[1-k] = Join(r[0], r[1])
			}
		}
		both := Join(r[0], r[1])
		require.Equal(t, 1, both.Level)
		require.GreaterOrEqual(t, both.Until.Sub(noon), longest, "the longest hint of the crowd holds")
	})
}

// What a replica acts on is the join of the row and its own evidence (design: tightening is
// local, loosening is durable).
func TestAVerdictThatHasNotSeenAReplicasEvidenceFreesNothing(t *testing.T) {
	own := rateLimited(noon)
	own.Hint = time.Minute
	provisional := fail(t, Cooldown{}, own, apiKey)
	other := rateLimited(after(2 * time.Second)) // seen elsewhere, later, and milder
	durable := fail(t, Cooldown{}, other, apiKey)

	require.False(t, Seen(durable, provisional), "it knows of something later, and not of this")
	require.Equal(t, after(time.Minute), Join(durable, provisional).Until)

	verdict := Join(durable, provisional)
	require.True(t, Seen(verdict, provisional))
	require.Equal(t, verdict, Join(verdict, provisional), "seen evidence is not applied twice")

	require.True(t, Seen(Cooldown{}.Enter(1, noon), provisional), "a new era has seen all of the one before")
	require.Equal(t, models.PhaseReady, Join(Cooldown{}.Enter(1, noon), provisional).Standing(noon).Phase)
}

// ofOneClear is a register whose longest deadline takes part in what its latest does.
func ofOneClear(c Cooldown) Cooldown {
	latest, longest := c.latest(), c.longest()
	if longest.compare(latest) < 0 {
		longest = latest
	}
	return c.remember(latest, longest)
}

func TestEvidenceIsLoosenedByAClearOnlyAndNeverByOtherEvidence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durable, provisional := anyCooldown.Draw(t, "durable"), anyCooldown.Draw(t, "provisional")
		provisional.Era, provisional.Since = durable.Era, durable.Since
		durable, provisional = ofOneClear(durable), ofOneClear(provisional)
		view := Join(durable, provisional)
		longerWasCleared := view.longest().FailedAt.Before(view.ClearedAt)
		for _, side := range []Cooldown{durable, provisional} {
			cleared := side.FailedAt.Before(view.ClearedAt)
			require.True(t, !view.Until.Before(side.Until) || cleared || longerWasCleared)
			require.True(t, !view.Until.Before(side.latest().Until) || cleared || side.latest() != view.latest(), "the latest always holds")
			require.Equal(t, side.Terminal != "", side.Terminal != "" && view.Terminal != "")
			require.True(t, Seen(view, side))
		}
		require.Equal(t, Seen(durable, provisional), view.Equal(durable))
	})
}

// The one case in which something is lost is where the deadline that was cleared would have
// lasted longer: a cooldown that ended by itself and was then cleared costs nobody's evidence.
func TestWhatAReplicaLearnsWithoutHearingOfAClearStillHolds(t *testing.T) {
	here := fail(t, Cooldown{}, rateLimited(noon), apiKey) // until 3 s
	here, _ = here.Succeed(after(4 * time.Second))
	here = fail(t, here, rateLimited(after(6*time.Second)), apiKey) // until 9 s

	hinted := rateLimited(after(5 * time.Second))
	hinted.Hint = 10 * time.Hour
	there := fail(t, Cooldown{}, hinted, apiKey)
	both := Join(here, there)
	require.Equal(t, after(5*time.Second+10*time.Hour), both.Standing(after(7*time.Second)).Until)
	require.True(t, both.Standing(after(7*time.Second)).Hinted)

	next := rateLimited(after(20 * time.Hour))
	both = fail(t, both, next, apiKey)
	require.True(t, Join(Join(both, here), there).Equal(both))
}

func TestShiftingThereAndBackChangesNothingAndMovesEveryInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.IntRange(1, 3600).Draw(t, "seconds")) * time.Second
		a, b := anyCooldown.Draw(t, "a"), anyCooldown.Draw(t, "b")
		require.True(t, a.Shift(d).Shift(-d).Equal(a))
		require.True(t, Join(a.Shift(d), b.Shift(d)).Equal(Join(a, b).Shift(d)), "any clock does as long as both sides use it")
		for at := range 70 {
			now := after(time.Duration(at) * 100 * time.Millisecond)
			require.Equal(t, a.Standing(now).Phase, a.Shift(d).Standing(now.Add(d)).Phase)
		}
		o := anyOpening.Draw(t, "o")
		require.True(t, o.Shift(d).Shift(-d).Equal(o))
		require.Equal(t, o.State(noon), o.Shift(d).State(noon.Add(d)))
	})
	require.True(t, Cooldown{}.Shift(time.Hour).Equal(Cooldown{}), "never stays never")
}

func TestEqualIsReflexiveAndNoticesEveryField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyCooldown.Draw(t, "a"), anyCooldown.Draw(t, "b")
		require.True(t, a.Equal(a))
		require.Equal(t, a == b, a.Equal(b))
		x, y := anyOpening.Draw(t, "x"), anyOpening.Draw(t, "y")
		require.True(t, x.Equal(x))
		require.Equal(t, x == y, x.Equal(y))
	})
	here := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	there := here
	there.Until = there.Until.In(time.FixedZone("elsewhere", 7200))
	require.True(t, here.Equal(there), "an instant is an instant in every zone")
}
