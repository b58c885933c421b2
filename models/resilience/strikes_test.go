package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStrikesCountInARowUntilASuccessSentAfterThem(t *testing.T) {
	s := Strikes{}.Strike(noon, 0).Strike(after(time.Hour), 0)
	require.Equal(t, Strikes{Count: 2, Since: noon, At: after(time.Hour)}, s)

	for _, sent := range []time.Duration{-time.Minute, 0, time.Hour, time.Hour + time.Microsecond} {
		_, changed := s.Succeed(after(sent))
		require.False(t, changed, "it was sent before the latest strike was seen")
	}
	s, changed := s.Succeed(after(time.Hour + time.Millisecond))
	require.True(t, changed)
	require.Zero(t, s.Count)
	_, changed = s.Succeed(after(2 * time.Hour))
	require.False(t, changed, "there is nothing to clear")
	require.Equal(t, 1, s.Strike(after(2*time.Hour), 0).Count)
}

func TestStrikesWithAMemoryAreCountedWithinItHoweverTheyLie(t *testing.T) {
	for _, c := range []struct {
		name  string
		hours []int // of the strikes
		count int
	}{
		{"close together", []int{0, 1, 2}, 3},
		{"within a day", []int{0, 12, 24}, 3},
		{"a day apart", []int{0, 24}, 2},
		{"the first is too old", []int{0, 23, 25}, 2},
		{"and then three of a day", []int{0, 23, 25, 26}, 3},
		{"a trickle", []int{0, 20, 40, 60, 80}, 2},
		{"all but the last are too old", []int{0, 1, 30}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Strikes
			for _, hour := range c.hours {
				s = s.Strike(after(time.Duration(hour)*time.Hour), 24*time.Hour)
			}
			require.Equal(t, c.count, s.Count)
		})
	}
	require.Equal(t, after(time.Millisecond), Strikes{}.Strike(noon, 0).Strike(after(-time.Hour), 0).At, "of a clock that is behind, it is the next millisecond's")
	require.Equal(t, after(time.Millisecond), Strikes{}.Strike(noon, 0).Clear(after(-time.Hour)).At)
	require.Equal(t, 2, Strikes{}.Strike(noon, 0).Strike(after(10_000*time.Hour), 0).Count, "without a memory nothing is forgotten")
}

func TestStrikesJoinAndNoneIsLostOnTheWay(t *testing.T) {
	ms := func(t *rapid.T, label string) time.Time {
		return after(time.Duration(rapid.IntRange(0, 5).Draw(t, label)) * time.Millisecond)
	}
	rapid.Check(t, func(t *rapid.T) {
		replicas := make([]Strikes, 3)
		for range rapid.IntRange(1, 12).Draw(t, "events") {
			i := rapid.IntRange(0, 2).Draw(t, "replica")
			before := replicas[i]
			next, changed := before, true
			switch rapid.SampledFrom([]string{"strike", "strike", "succeed", "clear", "hear"}).Draw(t, "event") {
			case "strike": // also in the millisecond of what was before, or by a clock that is behind
				next = before.Strike(ms(t, "at"), time.Duration(rapid.IntRange(0, 3).Draw(t, "memory"))*time.Millisecond)
				require.LessOrEqual(t, next.Count, before.Count+1)
				require.Positive(t, next.Count)
			case "succeed":
				next, changed = before.Succeed(ms(t, "dispatched"))
			case "clear":
				next = before.Clear(ms(t, "at"))
				require.Zero(t, next.Count)
			case "hear":
				next = joinStrikes(before, replicas[rapid.IntRange(0, 2).Draw(t, "from")])
				changed = !next.Equal(before)
			}
			require.Equal(t, !next.Equal(before), changed)
			require.True(t, joinStrikes(before, next).Equal(next), "what is counted is not lost on the way")
			replicas[i] = next
		}
		a, b, c := replicas[0], replicas[1], replicas[2]
		require.Equal(t, a, joinStrikes(a, a))
		require.Equal(t, joinStrikes(a, b), joinStrikes(b, a))
		require.Equal(t, joinStrikes(joinStrikes(a, b), c), joinStrikes(a, joinStrikes(b, c)))
		require.Equal(t, a, joinStrikes(Strikes{}, a))
	})
}
