package resilience

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

// lockoutDefaults are the guide's (section 3): 2 min, doubled up to 30 min.
var lockoutDefaults = LockoutPolicy{
	Enabled: true, Codes: []int{403, 404, 429, 502, 503, 504}, Base: 2 * time.Minute, Max: 30 * time.Minute, Steps: 10, Window: 30 * time.Minute,
}

var m1 = LockKey{models.LockModel, "m1"}

func failModel(t *testing.T, c Connection, key LockKey, f Failure, p CooldownPolicy) Connection {
	t.Helper()
	next, changed := c.FailModel(key, f, p)
	require.True(t, changed)
	return next
}

// locked is the lockout of one key as the list of lockouts shows it.
func locked(c Connection, key LockKey, now time.Time) Standing {
	return c.Lockouts.of(key).Standing(now)
}

func TestALockoutEscalatesWithEveryEpisodeAndCountsPastItsSteps(t *testing.T) {
	steps := func(base, longest time.Duration, steps int, window time.Duration) LockoutPolicy {
		return LockoutPolicy{Base: base, Max: longest, Steps: steps, Window: window}
	}
	flat := steps(5*time.Second, time.Hour, 10, time.Hour)
	flat.Flat = true
	ms := func(n ...int) (out []time.Duration) {
		for _, each := range n {
			out = append(out, time.Duration(each)*time.Millisecond)
		}
		return out
	}
	for _, c := range []struct {
		name   string
		policy LockoutPolicy
		pause  time.Duration // after the end of the one before
		want   []time.Duration
		counts []int
	}{
		{"two steps", steps(125*time.Millisecond, time.Hour, 2, 500*time.Millisecond), 50 * time.Millisecond, ms(125, 250, 500, 500), []int{1, 2, 3, 4}},
		{"after the window", steps(125*time.Millisecond, time.Hour, 2, 500*time.Millisecond), 501 * time.Millisecond, ms(125, 125, 125), []int{1, 1, 1}},
		{"at the end of the window", steps(125*time.Millisecond, time.Hour, 2, 500*time.Millisecond), 500 * time.Millisecond, ms(125, 250), []int{1, 2}},
		{"no window", steps(125*time.Millisecond, time.Hour, 2, 0), time.Millisecond, ms(125, 125), []int{1, 1}},
		{"base 5 s", steps(5*time.Second, 30*time.Minute, 5, time.Minute), 0, ms(5_000, 10_000), []int{1, 2}},
		{"second failure 10 s after the end", steps(2*time.Minute, 30*time.Minute, 10, 30*time.Second), 10 * time.Second, ms(120_000, 240_000), []int{1, 2}},
		{"capped", steps(time.Second, 2*time.Minute, 15, time.Hour), 0, ms(1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 120_000, 120_000), []int{1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"the defaults, capped at 30 min", lockoutDefaults, 0, ms(120_000, 240_000, 480_000, 960_000, 1_800_000, 1_800_000), []int{1, 2, 3, 4, 5, 6}},
		{"flat", flat, time.Second, ms(5_000, 5_000, 5_000), []int{1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var state Connection
			now := noon
			for i, want := range c.want {
				state = failModel(t, state, m1, rateLimited(now), c.policy.Cooldown())
				require.Equal(t, Standing{
					Phase: models.PhaseCooling, Reason: models.ReasonRateLimited, Status: 429, Level: c.counts[i], Until: now.Add(want),
				}, locked(state, m1, now))
				now = now.Add(want + c.pause)
			}
		})
	}
}

// A level that counts could grow for ever where nothing succeeds.
func TestACountIsBounded(t *testing.T) {
	c := Cooldown{SetAt: noon, Deadline: Deadline{FailedAt: noon, Until: after(time.Second)}, Level: mostCounted, Eases: true}
	c = fail(t, c, rateLimited(after(time.Second)), lockoutDefaults.Cooldown())
	require.Equal(t, mostCounted, c.Level)
	require.Equal(t, lockoutDefaults.Max, c.Until.Sub(after(time.Second)))
}

func TestWhatTheProviderDeclaresBeatsEveryGuessAndARuleIsClampedToTheMaximum(t *testing.T) {
	for _, c := range []struct {
		name        string
		hint, fixed time.Duration
		want        time.Duration
	}{
		{"a declared reset beyond the maximum", 5 * time.Hour, 0, 5 * time.Hour},
		{"a declared reset beyond every cap", 592_044 * time.Second, 0, 24 * time.Hour},
		{"a declared reset that is short", time.Second, 6 * time.Hour, time.Second},
		{"a rule's six hours", 0, 6 * time.Hour, 30 * time.Minute},
		{"a rule's minute", 0, time.Minute, time.Minute},
		{"nothing", 0, 0, 2 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := rateLimited(noon)
			f.Hint, f.Fixed = c.hint, c.fixed
			state := failModel(t, Connection{}, m1, f, lockoutDefaults.Cooldown())
			require.Equal(t, after(c.want), locked(state, m1, noon).Until)
			require.Equal(t, c.hint > 0, locked(state, m1, noon).Hinted)
		})
	}
	t.Run("also where the connection's own policy locks", func(t *testing.T) {
		f := rateLimited(noon)
		f.Fixed = 6 * time.Hour
		require.Equal(t, after(30*time.Minute), locked(failModel(t, Connection{}, m1, f, apiKey), m1, noon).Until)
	})
}

// Guide section 3: a success halves the count of a lockout that was made under the lockout
// policy and lifts it at zero. Any other lockout is only a backoff, and one success ends it.
func TestSuccessesHalveTheCountOfALockoutUntilItIsLifted(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy CooldownPolicy
		left   []int
	}{
		{"under the lockout policy", lockoutDefaults.Cooldown(), []int{2, 1, 0}},
		{"under the connection's", CooldownPolicy{Base: time.Second, MaxSteps: 10, Max: time.Hour}, []int{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var state Connection
			now := noon
			for range 5 {
				state = failModel(t, state, m1, rateLimited(now), c.policy)
				now = state.Lockouts[0].Until
			}
			require.Equal(t, 5, locked(state, m1, now).Level)
			running := now.Add(-time.Second) // it helps before the end, too
			for i, left := range c.left {
				var changed bool
				state, changed = state.Succeed("m1", "", running.Add(time.Duration(i)*time.Millisecond))
				require.True(t, changed)
				require.Equal(t, left, locked(state, m1, running).Level)
				require.Equal(t, left > 0, len(state.Out(running)) == 1, "the end stays until it is lifted")
				require.Empty(t, state.Trials("m1", "", now), "a success ends the trial")
			}
			require.True(t, state.Settled())
			_, changed := state.Succeed("m1", "", running.Add(time.Second))
			require.False(t, changed, "there is nothing left to clear")

			again := failModel(t, state, m1, rateLimited(now), c.policy)
			require.Equal(t, 1, locked(again, m1, now).Level, "the next failure begins at the base")
		})
	}
	t.Run("what is left escalates from there", func(t *testing.T) {
		var state Connection
		now := noon
		for range 5 {
			state = failModel(t, state, m1, rateLimited(now), lockoutDefaults.Cooldown())
			now = state.Lockouts[0].Until
		}
		state, _ = state.Succeed("m1", "", now)
		state = failModel(t, state, m1, rateLimited(now.Add(time.Minute)), lockoutDefaults.Cooldown())
		require.Equal(t, 3, locked(state, m1, now.Add(time.Minute)).Level)
		require.Equal(t, 8*time.Minute, state.Lockouts[0].Until.Sub(now.Add(time.Minute)))
	})
}

func TestASuccessAndAFailureOfOneMillisecondAreBothKept(t *testing.T) {
	state := failModel(t, Connection{}, m1, rateLimited(noon), lockoutDefaults.Cooldown())
	state = failModel(t, state, m1, rateLimited(after(2*time.Minute)), lockoutDefaults.Cooldown())
	at := after(10 * time.Minute)
	eased, changed := state.Succeed("m1", "", at)
	require.True(t, changed)
	failed := failModel(t, eased, m1, rateLimited(at), lockoutDefaults.Cooldown())
	require.Equal(t, 2, locked(failed, m1, at).Level)
	require.Equal(t, models.PhaseCooling, locked(failed, m1, at).Phase)
	for _, before := range []Connection{state, eased} {
		require.True(t, JoinConnection(before, failed).Equal(failed))
	}
}

// What one model explains puts out nothing else.
func TestEachKeyKeepsOutWhatItCoversAndNothingElse(t *testing.T) {
	exact, model, family := KeyOf(models.LockExact, "m1", "f"), KeyOf(models.LockModel, "m1", "f"), KeyOf(models.LockFamily, "m1", "f")
	require.Equal(t, []LockKey{exact, model, family}, KeysOf("m1", "f"))
	require.Equal(t, []LockKey{exact, model}, KeysOf("m1", ""))
	require.Equal(t, exact, KeyOf("", "m1", "f"), "what a verdict leaves open is exact")
	require.Equal(t, model, KeyOf(models.LockFamily, "m1", ""), "a model of no family is locked by itself")

	for _, c := range []struct {
		key  LockKey
		outs []string // of m1 and m2 of family f, and m3 of none
	}{
		{exact, []string{"m1"}},
		{model, []string{"m1"}},
		{family, []string{"m1", "m2"}},
	} {
		state := failModel(t, Connection{}, c.key, rateLimited(noon), apiKey)
		var outs []string
		for name, of := range map[string]string{"m1": "f", "m2": "f", "m3": "", "f": ""} {
			if lock, s := state.Locked(name, of, noon); lock != nil {
				require.Equal(t, c.key, lock.LockKey)
				require.Equal(t, models.PhaseCooling, s.Phase)
				outs = append(outs, name)
			}
		}
		require.ElementsMatch(t, c.outs, outs)
		require.Equal(t, models.PhaseReady, state.Cooldown.Standing(noon).Phase, "the connection stays in")
	}

	t.Run("and none escalates or frees another", func(t *testing.T) {
		state := failModel(t, Connection{}, family, rateLimited(noon), apiKey)
		state = failModel(t, state, family, rateLimited(after(3*time.Second)), apiKey)
		state = failModel(t, state, model, rateLimited(after(3*time.Second)), apiKey)
		require.Equal(t, 2, locked(state, family, after(3*time.Second)).Level)
		require.Equal(t, 1, locked(state, model, after(3*time.Second)).Level)
		state, _ = state.Enable([]LockKey{model}, after(4*time.Second))
		lock, _ := state.Locked("m1", "f", after(4*time.Second))
		require.Equal(t, family, lock.LockKey)
		state, _ = state.Succeed("m2", "f", after(5*time.Second))
		require.True(t, state.Settled(), "a success of a sibling frees the family")
	})
}

func TestAModelsFailureWithoutATimeOfDispatchIsOfTheEraItIsSeenIn(t *testing.T) {
	c := Connection{}.Reset(noon)
	c = failModel(t, c, m1, Failure{At: after(time.Second), Reason: models.ReasonRateLimited}, apiKey)
	require.Equal(t, after(4*time.Second), c.Next(after(time.Second)))
}

// Names of models have colons and prefixes; a key of strings joined together would read them.
func TestAModelsNameIsNeverReadAsAKey(t *testing.T) {
	state := failModel(t, Connection{}, KeyOf(models.LockModel, "exact:m1", ""), rateLimited(noon), apiKey)
	state = failModel(t, state, KeyOf(models.LockModel, "conn:x:m2", ""), rateLimited(noon), apiKey)
	for _, other := range []string{"m1", "m2", "conn", "x:m2"} {
		lock, _ := state.Locked(other, "", noon)
		require.Nil(t, lock, other)
	}
}

func TestTheLockoutThatEndsLastSpeaksAndThenEachIsTriedByOneRequest(t *testing.T) {
	exact, family := KeyOf(models.LockExact, "m", "f"), KeyOf(models.LockFamily, "m", "f")
	hold := func(d time.Duration) Failure {
		f := rateLimited(noon)
		f.Fixed = d
		return f
	}
	state := failModel(t, Connection{}, exact, hold(time.Second), apiKey)
	state = failModel(t, state, family, hold(time.Minute), apiKey)

	lock, s := state.Locked("m", "f", noon)
	require.Equal(t, family, lock.LockKey)
	require.Equal(t, after(time.Minute), s.Until)
	require.Empty(t, state.Trials("m", "f", noon))
	require.Equal(t, after(time.Second), state.Next(noon))
	require.Len(t, state.Out(noon), 2)

	require.Equal(t, []LockKey{exact}, state.Trials("m", "f", after(time.Second)))
	require.Equal(t, after(time.Minute), state.Next(after(time.Second)))
	require.Equal(t, []LockKey{exact, family}, state.Trials("m", "f", after(time.Minute)))
	require.Equal(t, []LockKey{family}, state.Trials("other", "f", after(time.Minute)))
	lock, s = state.Locked("m", "f", after(time.Minute))
	require.True(t, lock.LockKey == family && s.Trial)
	require.True(t, state.Next(after(time.Minute)).IsZero())
	require.True(t, state.Dormant(after(time.Minute)))

	t.Run("whichever of them that is", func(t *testing.T) {
		state := failModel(t, Connection{}, exact, hold(time.Minute), apiKey)
		state = failModel(t, state, family, hold(time.Second), apiKey)
		lock, _ := state.Locked("m", "f", noon)
		require.Equal(t, exact, lock.LockKey)
	})
	t.Run("one that a success has eased is no trial, whenever it ended", func(t *testing.T) {
		p := lockoutDefaults.Cooldown()
		eased := failModel(t, Connection{}, family, hold(time.Second), p)
		eased = failModel(t, eased, family, rateLimited(after(time.Second)), p)
		eased = failModel(t, eased, exact, hold(time.Second), p)
		eased, _ = eased.Succeed("other", "f", after(2*time.Second))
		lock, s := eased.Locked("m", "f", after(time.Hour))
		require.True(t, lock.LockKey == exact && s.Trial)
		require.Equal(t, []LockKey{exact}, eased.Trials("m", "f", after(time.Hour)))
	})
}

func TestEnablingIsRememberedSoThatOldEvidenceChangesNothing(t *testing.T) {
	known := failModel(t, Connection{}, m1, rateLimited(noon), apiKey)
	enabled, changed := known.Enable([]LockKey{m1}, after(time.Second))
	require.True(t, changed)
	require.Empty(t, enabled.Out(after(time.Second)))
	require.True(t, JoinConnection(known, enabled).Equal(enabled), "what is still under way comes late")

	_, changed = enabled.FailModel(m1, Failure{At: after(2 * time.Second), Dispatched: after(500 * time.Millisecond)}, apiKey)
	require.False(t, changed, "and so does the answer to an attempt that was sent before")
	again := failModel(t, enabled, m1, rateLimited(after(2*time.Second)), apiKey)
	require.Equal(t, 1, locked(again, m1, after(2*time.Second)).Level)

	t.Run("also where the lockout was not known here", func(t *testing.T) {
		enabled, changed := Connection{}.Enable([]LockKey{m1}, after(time.Second))
		require.True(t, changed)
		require.Empty(t, JoinConnection(enabled, known).Out(after(time.Second)))
	})
	t.Run("by a clock that is behind", func(t *testing.T) {
		enabled, changed := known.Enable([]LockKey{m1}, after(-time.Minute))
		require.True(t, changed)
		require.Empty(t, enabled.Out(noon))
	})
	t.Run("what is seen after it counts", func(t *testing.T) {
		elsewhere := failModel(t, Connection{}, m1, rateLimited(after(2*time.Second)), apiKey)
		require.Len(t, JoinConnection(enabled, elsewhere).Out(after(2*time.Second)), 1)
	})
}

func TestALockoutThatEasesIsNewsToARowThatHasItWithoutTheMark(t *testing.T) {
	hold := rateLimited(noon)
	hold.Fixed = time.Minute
	plain := failModel(t, Connection{}, m1, hold, apiKey)
	eases := failModel(t, Connection{}, m1, hold, lockoutDefaults.Cooldown())
	require.Len(t, eases.News(plain).Lockouts, 1)
	require.Empty(t, plain.News(eases).Lockouts)
	require.True(t, JoinConnection(plain, eases).Equal(eases))
}

func key(i int) LockKey { return LockKey{models.LockModel, fmt.Sprintf("m%03d", i)} }

// fullOf has so many lockouts; the first ends after a minute, the next after two, and so on.
func fullOf(n int) (c Connection) {
	for i := range n {
		f := rateLimited(noon)
		f.Hint = time.Duration(i+1) * time.Minute
		c, _ = c.FailModel(key(i), f, lockoutDefaults.Cooldown())
	}
	return c
}

func TestBeyondTheBoundTheLockoutThatEndsFirstGoesAlsoWhenItIsTheNewest(t *testing.T) {
	before := fullOf(MaxLockouts)
	longer := rateLimited(noon)
	longer.Hint = time.Hour
	after := failModel(t, before, key(999), longer, lockoutDefaults.Cooldown())
	require.Len(t, after.Lockouts, MaxLockouts)
	_, first := after.Lockouts.at(key(0))
	_, newest := after.Lockouts.at(key(999))
	require.True(t, !first && newest)
	require.True(t, JoinConnection(before, after).Equal(after), "it does not come back")
	require.Len(t, JoinConnection(before, fullOf(MaxLockouts)).Lockouts, MaxLockouts)

	shorter := rateLimited(noon)
	shorter.Hint = time.Second
	same, changed := before.FailModel(key(999), shorter, lockoutDefaults.Cooldown())
	require.False(t, changed, "what there is no room for has not changed anything")
	require.True(t, same.Equal(before))
	require.True(t, SeenConnection(before, same, noon))
}

func TestNoMoreThanTheBoundEverComeTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (c Connection) {
			first, step := rapid.IntRange(0, 9).Draw(t, label+" first"), rapid.IntRange(1, 3).Draw(t, label+" step")
			spread := rapid.IntRange(1, 50).Draw(t, label+" minutes")
			for i := first; len(c.Lockouts) < rapid.IntRange(100, MaxLockouts).Draw(t, label+" size"); i += step {
				f := rateLimited(noon)
				f.Hint = time.Duration(1+i*7%spread) * time.Minute
				cooldown, _ := Cooldown{}.Fail(f, apiKey)
				c.Lockouts = append(c.Lockouts, Lockout{key(i), cooldown})
			}
			return c
		}
		a, b := draw("a"), draw("b")
		joined := JoinConnection(a, b)
		require.LessOrEqual(t, len(joined.Lockouts), MaxLockouts)
		require.True(t, joined.Equal(JoinConnection(b, a)))
		require.True(t, JoinConnection(joined, joined).Equal(joined))
		require.True(t, SeenConnection(joined, a, noon) && SeenConnection(joined, b, noon), "or it would be offered for ever")
		require.True(t, JoinConnection(a, b.News(a)).Equal(joined))
	})
}

func TestALockoutIsForgottenAnHourAfterItsEndAndRowAndReplicaAgree(t *testing.T) {
	replica := failModel(t, Connection{}, m1, rateLimited(noon), apiKey) // until 12:00:03
	replica = failModel(t, replica, key(2), rateLimited(after(30*time.Minute)), apiKey)
	end := after(3*time.Second + time.Hour)
	require.Len(t, replica.Prune(end).Lockouts, 2)
	row := replica.Prune(end.Add(time.Millisecond))
	require.Len(t, row.Lockouts, 1)
	require.Len(t, replica.Lockouts, 2, "a state is a value")

	require.True(t, SeenConnection(row, replica, end.Add(time.Millisecond)))
	require.True(t, SeenConnection(replica, row, end.Add(time.Millisecond)))
	require.False(t, SeenConnection(row, replica, noon), "before, it would have been news")

	t.Run("and a new failure is not lost to what the other still keeps", func(t *testing.T) {
		long := rateLimited(noon)
		long.Hint = 10 * time.Second
		kept := failModel(t, Connection{}, m1, long, apiKey)
		kept, _ = kept.Succeed("m1", "", after(time.Second))
		kept = failModel(t, kept, m1, rateLimited(after(2*time.Second)), apiKey) // in place of a longer one that was cleared
		later := after(2 * time.Hour)
		fresh := failModel(t, kept.Prune(later), m1, rateLimited(later), apiKey)
		view := JoinConnection(kept, fresh)
		require.Equal(t, later.Add(3*time.Second), view.Next(later))
		require.True(t, SeenConnection(view, fresh, later))
	})
}

func TestAFullConnectionFitsItsRowAndAQuarterOfItsWorkflow(t *testing.T) {
	text, err := json.Marshal(fullOf(MaxLockouts))
	require.NoError(t, err)
	require.Less(t, len(text), 50<<10)
	var back Connection
	require.NoError(t, json.Unmarshal(text, &back))
	require.True(t, back.Equal(fullOf(MaxLockouts)))
}
