package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

// Guide section 1, window gate: OAuth trips at 10 in 15 min for 5 min, API keys at 15 in
// 30 min for 10 min.
var gatePolicies = map[models.Class]WindowPolicy{
	models.ClassOAuth:  {Enabled: true, Failures: 10, Within: 15 * time.Minute, Cooldown: 5 * time.Minute, Least: 5 * time.Second, Longest: 5 * time.Minute},
	models.ClassAPIKey: {Enabled: true, Failures: 15, Within: 30 * time.Minute, Cooldown: 10 * time.Minute, Least: 5 * time.Second, Longest: 5 * time.Minute},
}

func TestTheWindowTripsAtItsThresholdAndNotBefore(t *testing.T) {
	for class, p := range gatePolicies {
		t.Run(string(class), func(t *testing.T) {
			on := true
			require.Equal(t, p, Settings{ProviderCooldown: GateSettings{Enabled: &on}}.GatePolicy(class))
			var w Window
			for i := 1; i < p.Failures; i++ {
				var tripped bool
				w, tripped = w.Fail(after(time.Duration(i)*time.Second), p)
				require.False(t, tripped)
				require.Equal(t, i, w.Failures(after(time.Duration(i)*time.Second), p))
			}
			w, tripped := w.Fail(after(time.Minute), p)
			require.True(t, tripped)
			require.True(t, w.Empty(), "the next count begins anew")
		})
	}
}

func TestTheWindowSlides(t *testing.T) {
	p := WindowPolicy{Enabled: true, Failures: 3, Within: time.Minute}
	var w Window
	w, _ = w.Fail(noon, p)
	w, _ = w.Fail(after(50*time.Second), p)
	w, tripped := w.Fail(after(60*time.Second), p)
	require.False(t, tripped, "the first lies a whole window back")
	require.Equal(t, 2, w.Failures(after(60*time.Second), p))
	_, tripped = w.Fail(after(109*time.Second), p)
	require.True(t, tripped, "three within a minute, in no fixed one")

	trickle := Window{}
	for i := range 1000 {
		trickle, tripped = trickle.Fail(after(time.Duration(i)*30*time.Second), p)
		require.False(t, tripped)
		require.LessOrEqual(t, len(trickle.at), p.Failures)
	}
}

func TestASuccessClearsTheWindowAndSwitchedOffItCountsNothing(t *testing.T) {
	p := WindowPolicy{Enabled: true, Failures: 2, Within: time.Minute}
	w, _ := Window{}.Fail(noon, p)
	require.False(t, w.Empty())
	w, tripped := w.Succeed().Fail(after(time.Second), p)
	require.False(t, tripped)

	p.Enabled = false
	w, tripped = w.Fail(after(2*time.Second), p)
	require.False(t, tripped)
	require.True(t, w.Empty(), "what was counted before is forgotten")
	_, tripped = Window{}.Fail(noon, WindowPolicy{Enabled: true})
	require.False(t, tripped, "a threshold of nothing is none")
}

func TestTheWindowTripsExactlyWhenSoManyLieWithinIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := WindowPolicy{Enabled: true, Failures: rapid.IntRange(1, 5).Draw(t, "threshold"), Within: 10 * time.Second}
		var w Window
		var seen []time.Time
		now := noon
		for range rapid.IntRange(1, 50).Draw(t, "failures") {
			now = now.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "seconds")) * time.Second)
			before := w
			held := before.Failures(now, p)
			var tripped bool
			w, tripped = w.Fail(now, p)
			require.Equal(t, held, before.Failures(now, p), "a window is a value")
			seen = append(seen, now)
			within := 0
			for _, at := range seen {
				if now.Sub(at) < p.Within {
					within++
				}
			}
			require.Equal(t, within >= p.Failures, tripped)
			if tripped {
				seen = nil
			}
		}
	})
}

// A connection's own part of the gate: 5 s doubled up to 5 min, at most ten times.
func TestTheGatesBackoffOfAConnectionDoublesFromTheLeastToTheLongest(t *testing.T) {
	var c Cooldown
	now := noon
	for _, seconds := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
		c = fail(t, c, rateLimited(now), gatePolicies[models.ClassAPIKey].Backoff())
		require.Equal(t, time.Duration(seconds)*time.Second, c.Until.Sub(now))
		now = c.Until
	}
	c, _ = c.Succeed(now)
	c = fail(t, c, rateLimited(now.Add(time.Second)), gatePolicies[models.ClassAPIKey].Backoff())
	require.Equal(t, 1, c.Level, "a success begins at the least again")

	none := fail(t, Cooldown{}, rateLimited(noon), WindowPolicy{}.Backoff())
	require.Equal(t, after(time.Millisecond), none.Until, "zero is next to nothing, not a default")
	ten := WindowPolicy{Least: time.Millisecond, Longest: time.Hour}.Backoff()
	require.Equal(t, 1024*time.Millisecond, ten.guess(50, 0))
}
