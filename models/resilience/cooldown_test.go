package resilience

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

var (
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	apiKey = Settings{}.CooldownPolicy(models.ClassAPIKey)
	oauth  = Settings{}.CooldownPolicy(models.ClassOAuth)
)

// after is noon plus a wait.
func after(d time.Duration) time.Time { return noon.Add(d) }

// rateLimited is a 429 that was sent and seen at one moment.
func rateLimited(at time.Time) Failure {
	return Failure{At: at, Dispatched: at, Reason: models.ReasonRateLimited, Status: 429}
}

func fail(t *testing.T, c Cooldown, f Failure, p CooldownPolicy) Cooldown {
	t.Helper()
	next, changed := c.Fail(f, p)
	require.True(t, changed)
	require.False(t, next.Equal(c))
	return next
}

func ignored(t *testing.T, c Cooldown, f Failure, p CooldownPolicy) {
	t.Helper()
	next, changed := c.Fail(f, p)
	require.False(t, changed)
	require.True(t, next.Equal(c))
}

// Guide section 2: cooldown = base * 2^n, at most the configured steps.
func TestTheCooldownDoublesWithEveryEpisodeUpToItsSteps(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy CooldownPolicy
		want   []int // seconds
	}{
		{"api key", apiKey, []int{3, 6, 12, 24, 48, 96, 96, 96}},
		{"oauth", oauth, []int{5, 10, 20, 40, 80, 160, 320, 640, 1280, 1280}},
		{"bounded by the maximum", CooldownPolicy{Base: 3 * time.Second, MaxSteps: 5, Max: 20 * time.Second}, []int{3, 6, 12, 20, 20, 20, 20}},
		{"without steps", CooldownPolicy{Base: 3 * time.Second, Max: time.Hour}, []int{3, 3, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var state Cooldown
			now := noon
			for i, want := range c.want {
				state = fail(t, state, rateLimited(now), c.policy)
				require.Equal(t, min(i+1, c.policy.MaxSteps+1), state.Level)
				require.Equal(t, time.Duration(want)*time.Second, state.Until.Sub(now))
				now = state.Until // the trial goes at once and fails
			}
		})
	}
}

func TestTwentyRoundsInARowStayUnderTheMaximum(t *testing.T) {
	for _, p := range []CooldownPolicy{apiKey, oauth, lockoutDefaults.Cooldown(), {Base: 20 * time.Hour, MaxSteps: 32, Max: 48 * time.Hour}} {
		var c Cooldown
		now, total := noon, time.Duration(0)
		for range 20 {
			f := rateLimited(now)
			f.Jitter = 1
			c = fail(t, c, f, p)
			wait := c.Until.Sub(now)
			require.LessOrEqual(t, wait, min(p.Max, MaxHint))
			require.GreaterOrEqual(t, wait, p.Base)
			now, total = c.Until, total+wait
		}
		require.Greater(t, total, 20*p.Base, "and it has escalated")
	}
}

func TestAHealthyConnectionIsTheZeroValue(t *testing.T) {
	require.Equal(t, Standing{Phase: models.PhaseReady}, Cooldown{}.Standing(noon))
	require.True(t, Cooldown{}.Dormant(noon))
	_, changed := Cooldown{}.Succeed(noon)
	require.False(t, changed, "a success with nothing to clear changes nothing")
}

func TestACooldownEndsLazilyAtItsDeadlineAndATrialFollows(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	require.Equal(t, Standing{
		Phase: models.PhaseCooling, Reason: models.ReasonRateLimited, Until: after(3 * time.Second), Level: 1, Status: 429,
	}, c.Standing(after(3*time.Second-1)))
	require.False(t, c.Dormant(after(3*time.Second-1)))

	s := c.Standing(after(3 * time.Second))
	require.Equal(t, models.PhaseReady, s.Phase)
	require.True(t, s.Trial)
	require.True(t, c.Dormant(after(3*time.Second)))

	c, changed := c.Succeed(after(3 * time.Second))
	require.True(t, changed)
	require.Equal(t, Standing{Phase: models.PhaseReady}, c.Standing(after(3*time.Second)))
	_, changed = c.Succeed(after(4 * time.Second))
	require.False(t, changed, "the second success has nothing to clear")
}

func TestFiftyParallelFailuresAreOneEpisodeAndOneBaseCooldown(t *testing.T) {
	var c Cooldown
	changes := 0
	for i := range 50 {
		f := rateLimited(after(time.Duration(i) * 10 * time.Millisecond))
		f.Dispatched = after(-time.Duration(i) * time.Millisecond)
		f.Jitter = float64(i%3 - 1)
		var changed bool
		if c, changed = c.Fail(f, apiKey); changed {
			changes++
		}
	}
	require.Equal(t, 1, changes)
	require.Equal(t, 1, c.Level)
	require.Equal(t, 2700*time.Millisecond, c.Until.Sub(noon), "the first one's base with the first one's jitter")
}

// A replica that has not heard of the cooldown yet sends into it: its failures are the crowd's.
func TestAFailureSentWhileACooldownRanIsOfThatEpisode(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	ignored(t, c, rateLimited(after(2999*time.Millisecond)), apiKey)
	next := fail(t, c, rateLimited(after(3*time.Second)), apiKey)
	require.Equal(t, 2, next.Level)
}

func TestALateFailureOfTheCrowdCoolsAgainForTheSameLevel(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	late := rateLimited(after(10 * time.Second))
	late.Dispatched = after(-time.Second)
	c = fail(t, c, late, apiKey)
	require.Equal(t, 1, c.Level)
	require.Equal(t, after(13*time.Second), c.Until)
	require.Equal(t, noon, c.SetAt)

	t.Run("and a success sent before it was seen does not clear it", func(t *testing.T) {
		_, changed := c.Succeed(after(9 * time.Second))
		require.False(t, changed)
		_, changed = c.Succeed(after(11 * time.Second))
		require.True(t, changed)
	})
}

func TestALongerHintExtendsAndAShorterOneNeverShortens(t *testing.T) {
	hinted := func(at, hint time.Duration) Failure {
		f := rateLimited(after(at))
		f.Dispatched, f.Hint = after(-time.Second), hint
		return f
	}
	c := fail(t, Cooldown{}, hinted(0, 30*time.Second), apiKey)
	require.Equal(t, after(30*time.Second), c.Until)
	require.True(t, c.Hinted)

	ignored(t, c, hinted(time.Second, 10*time.Second), apiKey)
	ignored(t, c, hinted(time.Second, 29*time.Second), apiKey)
	guess := rateLimited(after(2 * time.Second))
	guess.Dispatched, guess.Status, guess.Reason = after(-time.Second), 503, models.ReasonServerError
	ignored(t, c, guess, apiKey)

	c = fail(t, c, hinted(time.Second, 60*time.Second), apiKey)
	require.Equal(t, after(61*time.Second), c.Until)
	require.Equal(t, 1, c.Level, "extending is no new episode")

	t.Run("a verdict's own duration extends in the same way", func(t *testing.T) {
		f := rateLimited(after(2 * time.Second))
		f.Dispatched, f.Fixed, f.Reason = after(-time.Second), time.Hour, models.ReasonQuotaExhausted
		next := fail(t, c, f, apiKey)
		require.Equal(t, after(2*time.Second+time.Hour), next.Until)
		require.Equal(t, models.ReasonQuotaExhausted, next.Reason)
		require.False(t, next.Hinted)
	})
}

func TestAHintIsTakenExactlyAndAGuessIsJittered(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Failure)
		want time.Duration
	}{
		{"hint", func(f *Failure) { f.Hint = 1500 * time.Millisecond }, 1500 * time.Millisecond},
		{"hint above the maximum of guesses", func(f *Failure) { f.Hint = 5 * time.Hour }, 5 * time.Hour},
		{"hint beats the verdict's own duration", func(f *Failure) { f.Hint, f.Fixed = 9*time.Second, time.Hour }, 9 * time.Second},
		{"hint above every cap", func(f *Failure) { f.Hint = 1000 * time.Hour }, 24 * time.Hour},
		{"the verdict's own duration", func(f *Failure) { f.Fixed = 2 * time.Minute }, 2 * time.Minute},
		{"guess", func(*Failure) {}, 3300 * time.Millisecond},
		{"guess with wild jitter", func(f *Failure) { f.Jitter = 1e9 }, 3300 * time.Millisecond},
		{"guess the other way", func(f *Failure) { f.Jitter = math.Inf(-1) }, 2700 * time.Millisecond},
		{"guess without a number", func(f *Failure) { f.Jitter = math.NaN() }, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := rateLimited(noon)
			f.Jitter = 1
			c.edit(&f)
			require.Equal(t, c.want, fail(t, Cooldown{}, f, apiKey).Until.Sub(noon))
		})
	}
	t.Run("a hint after failures in a row", func(t *testing.T) {
		var c Cooldown
		now := noon
		for range 3 {
			c = fail(t, c, rateLimited(now), apiKey)
			now = c.Until
		}
		f := rateLimited(now)
		f.Hint, f.Jitter = 2*time.Minute, 1
		require.Equal(t, 2*time.Minute, fail(t, c, f, apiKey).Until.Sub(now), "at no level is it scaled")
	})
	t.Run("hints switched off", func(t *testing.T) {
		p := apiKey
		p.UseHints = false
		f := rateLimited(noon)
		f.Hint = time.Hour
		c := fail(t, Cooldown{}, f, p)
		require.Equal(t, after(3*time.Second), c.Until)
		require.False(t, c.Hinted)
	})
	t.Run("jitter stays under the maximum", func(t *testing.T) {
		f := rateLimited(noon)
		f.Jitter = 1
		p := CooldownPolicy{Base: time.Minute, Max: time.Minute}
		require.Equal(t, time.Minute, fail(t, Cooldown{}, f, p).Until.Sub(noon))
	})
}

// A success that was sent before a newer failure was seen says nothing about it.
func TestASuccessClearsOnlyWhatWasSeenBeforeItWasSent(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	for _, sent := range []time.Duration{-time.Second, 0} {
		next, changed := c.Succeed(after(sent))
		require.False(t, changed)
		require.True(t, next.Equal(c))
	}
	c, changed := c.Succeed(after(time.Millisecond))
	require.True(t, changed)
	require.Equal(t, models.PhaseReady, c.Standing(after(2*time.Millisecond)).Phase)
}

func TestAfterAClearTheNextEpisodeStartsFromTheBase(t *testing.T) {
	f := rateLimited(noon)
	f.Hint = 10 * time.Hour
	c := fail(t, Cooldown{}, f, apiKey)
	c, _ = c.Succeed(after(time.Second))
	c = fail(t, c, rateLimited(after(2*time.Second)), apiKey)
	require.Equal(t, 1, c.Level)
	require.Equal(t, after(5*time.Second), c.Until, "the cleared ten hours do not come back")

	t.Run("also when it meets the state before the clear", func(t *testing.T) {
		before := fail(t, Cooldown{}, f, apiKey)
		require.True(t, Join(before, c).Equal(c))
	})
}

func TestAFailureOlderThanTheClearingSuccessIsIgnoredUnlessItSaysHowLong(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	c, _ = c.Succeed(after(3 * time.Second))
	old := rateLimited(after(4 * time.Second))
	old.Dispatched = after(2 * time.Second)

	ignored(t, c, old, apiKey)

	old.Hint = 20 * time.Second
	next := fail(t, c, old, apiKey)
	require.Equal(t, models.PhaseCooling, next.Standing(after(5*time.Second)).Phase)
	require.Equal(t, after(24*time.Second), next.Until)

	old.Terminal = models.PhaseExpired
	require.Equal(t, models.PhaseExpired, fail(t, c, old, apiKey).Standing(noon).Phase)
}

// Replicas' clocks differ: what counts must not look older than what it comes after.
func TestAFailureThatCountsIsNotUndoneByAClockThatIsBehind(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	c, _ = c.Succeed(after(3 * time.Second)) // by a replica whose clock is ahead
	behind := rateLimited(after(2 * time.Second))
	behind.Hint = time.Minute
	c = fail(t, c, behind, apiKey)
	require.Equal(t, models.PhaseCooling, c.Standing(after(4*time.Second)).Phase)

	earlier := rateLimited(after(time.Second))
	earlier.Hint = time.Hour
	next := fail(t, c, earlier, apiKey)
	require.False(t, next.Evidence().Before(c.Evidence()))
}

func TestTheLevelDecaysByQuietTime(t *testing.T) {
	var c Cooldown
	now := noon
	for range 4 { // 3 + 6 + 12 + 24
		c = fail(t, c, rateLimited(now), apiKey)
		now = c.Until
	}
	longest := 96 * time.Second
	for _, s := range []struct {
		quiet time.Duration
		level int
	}{
		{0, 5},
		{longest - time.Millisecond, 5},
		{longest, 4},
		{3 * longest, 2},
		{4 * longest, 1},
		{1000 * time.Hour, 1},
	} {
		require.Equal(t, s.level, fail(t, c, rateLimited(now.Add(s.quiet)), apiKey).Level, "after %v", s.quiet)
	}
}

func TestUnderAWindowTheLevelIsKeptToItsEndAndThenForgotten(t *testing.T) {
	p := CooldownPolicy{Base: time.Second, MaxSteps: 3, Max: time.Minute, Window: 10 * time.Second}
	c := fail(t, Cooldown{}, rateLimited(noon), p)
	c = fail(t, c, rateLimited(c.Until), p)
	require.Equal(t, 3, fail(t, c, rateLimited(c.Until.Add(10*time.Second)), p).Level)
	require.Equal(t, 1, fail(t, c, rateLimited(c.Until.Add(10*time.Second+time.Millisecond)), p).Level)
}

// Guide section 2: terminal states are not overwritten by passing ones.
func TestATerminalStateAbsorbsEverythingUntilANewEra(t *testing.T) {
	for _, phase := range []models.Phase{models.PhaseBanned, models.PhaseExpired, models.PhaseCreditsExhausted} {
		t.Run(string(phase), func(t *testing.T) {
			f := rateLimited(noon)
			f.Terminal = phase
			c := fail(t, Cooldown{Era: 3}, f, apiKey)
			require.Equal(t, Standing{Phase: phase, Reason: models.Reason(phase)}, c.Standing(after(1000*time.Hour)))
			require.False(t, c.Dormant(after(1000*time.Hour)))

			ignored(t, c, rateLimited(after(time.Minute)), apiKey)
			other := rateLimited(after(time.Minute))
			other.Terminal, other.Hint = models.PhaseBanned, time.Hour
			ignored(t, c, other, apiKey)
			_, changed := c.Succeed(after(time.Hour))
			require.False(t, changed)

			require.Equal(t, models.PhaseReady, c.Enter(c.Era+1, after(time.Hour)).Standing(after(time.Hour)).Phase)
			require.EqualValues(t, 4, c.Enter(c.Era+1, after(time.Hour)).Era)
			require.True(t, c.Enter(3, after(time.Hour)).Equal(c))
			require.True(t, c.Enter(2, after(time.Hour)).Equal(c))
			require.True(t, c.Enter(7, after(time.Hour)).Equal(Cooldown{Era: 7, Began: after(time.Hour), ClearedAt: after(time.Hour)}))
		})
	}
}

func TestATerminalVerdictCutsACooldownShort(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	f := rateLimited(after(time.Second))
	f.Terminal, f.Dispatched = models.PhaseExpired, after(-time.Minute)
	c = fail(t, c, f, apiKey)
	require.Equal(t, models.PhaseExpired, c.Standing(after(time.Second)).Phase)
	require.Equal(t, after(time.Second), c.Evidence())
}

func TestWhatWasSentBeforeAResetIsNotCountedAfterIt(t *testing.T) {
	c := Cooldown{}.Enter(1, noon)
	f := rateLimited(after(time.Second))
	f.Dispatched, f.Terminal, f.Hint = after(-time.Second), models.PhaseExpired, time.Hour
	ignored(t, c, f, apiKey)

	f.Dispatched = after(time.Millisecond)
	require.Equal(t, models.PhaseExpired, fail(t, c, f, apiKey).Standing(noon).Phase)
}

func TestAFailureWithoutATimeOfDispatchCountsAsSentWhenSeen(t *testing.T) {
	c := fail(t, Cooldown{}, rateLimited(noon), apiKey)
	f := rateLimited(after(time.Minute))
	f.Dispatched = time.Time{}
	require.Equal(t, 2, fail(t, c, f, apiKey).Level)
	f.Dispatched = after(time.Hour) // a clock that jumped
	require.Equal(t, 2, fail(t, c, f, apiKey).Level)
}

func TestEvenAnEmptyPolicyLeavesAWait(t *testing.T) {
	c := fail(t, Cooldown{}, Failure{At: noon, Reason: models.ReasonUnknown}, CooldownPolicy{})
	require.Equal(t, after(time.Second), c.Until)
	c = fail(t, c, rateLimited(after(time.Hour)), CooldownPolicy{})
	require.Equal(t, after(time.Hour+time.Second), c.Until)

	f := rateLimited(noon)
	f.Hint = time.Nanosecond
	require.Equal(t, after(time.Millisecond), fail(t, Cooldown{}, f, apiKey).Until, "never 0")
}

func TestAStateSurvivesStorageUnchanged(t *testing.T) {
	at := noon.Add(1234567 * time.Nanosecond).In(time.FixedZone("somewhere", 3600))
	c := fail(t, Cooldown{Era: 1}, rateLimited(at), apiKey)
	c, _ = c.Succeed(at.Add(9 * time.Second))
	f := rateLimited(at.Add(10 * time.Second))
	f.Terminal = models.PhaseBanned
	c = fail(t, c, f, apiKey)

	text, err := json.Marshal(c)
	require.NoError(t, err)
	var back Cooldown
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, c, back)
	require.Equal(t, c.SetAt, time.UnixMilli(c.SetAt.UnixMilli()).UTC(), "instants are whole milliseconds, as rows keep them")
}

func TestRoundingToMillisecondsNeverCutsAWaitShort(t *testing.T) {
	at := noon.Add(999_999 * time.Nanosecond)
	f := rateLimited(at)
	f.Hint = time.Second + 500*time.Microsecond
	c := fail(t, Cooldown{}, f, apiKey)
	require.GreaterOrEqual(t, c.Until.Sub(at), f.Hint)
	require.Less(t, c.Until.Sub(at), f.Hint+2*time.Millisecond)
}

func TestAFailureThatAnotherConnectionMetCoolsAndCountsNothing(t *testing.T) {
	shared := Failure{At: noon, Reason: models.ReasonRateLimited, Status: 429, Fixed: time.Minute, Shared: true}
	c, changed := Cooldown{}.Fail(shared, CooldownPolicy{Base: time.Second, MaxSteps: 5})
	require.True(t, changed)
	require.Equal(t, models.PhaseCooling, c.Standing(noon).Phase)
	require.Equal(t, noon.Add(time.Minute), c.Until)
	require.Zero(t, c.Level)

	own := Failure{At: noon.Add(time.Minute), Reason: models.ReasonRateLimited, Status: 429}
	c, _ = c.Fail(own, CooldownPolicy{Base: time.Second, MaxSteps: 5})
	require.Equal(t, 1, c.Level, "its own first is the first")
	require.Equal(t, own.At.Add(time.Second), c.Until)

	shared.At = c.Until
	c, _ = c.Fail(shared, CooldownPolicy{Base: time.Second, MaxSteps: 5})
	require.Equal(t, 1, c.Level, "what it has counted stays")
	c, changed = c.Succeed(shared.At.Add(time.Second))
	require.True(t, changed, "and a success clears it")
	require.True(t, c.Settled())
}
