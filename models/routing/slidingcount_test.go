package routing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestWhatWasUsedLeavesTheWindowEvenly(t *testing.T) {
	begin := time.Unix(0, 0).Add(1000 * time.Hour)
	var c SlidingCount
	c.Add(60, begin.Add(10*time.Minute), time.Hour)
	require.InDelta(t, 60, c.Used(begin.Add(59*time.Minute), time.Hour), 1e-9)
	require.InDelta(t, 30, c.Used(begin.Add(90*time.Minute), time.Hour), 1e-9)
	c.Add(7, begin.Add(90*time.Minute), time.Hour)
	require.InDelta(t, 37, c.Used(begin.Add(90*time.Minute), time.Hour), 1e-9)
	require.InDelta(t, 7, c.Used(begin.Add(2*time.Hour), time.Hour), 1e-9)
	require.Zero(t, c.Used(begin.Add(4*time.Hour), time.Hour))
}

func TestAClockThatIsSetBackLosesNoCount(t *testing.T) {
	begin := time.Unix(0, 0).Add(1000 * time.Hour)
	var c SlidingCount
	c.Add(60, begin, time.Hour)
	c.Add(1, begin.Add(-3*time.Hour), time.Hour)
	require.InDelta(t, 61, c.Used(begin.Add(time.Minute), time.Hour), 1e-9)
}

func TestCountsOfReplicasAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		var a, b, all SlidingCount
		for range rapid.IntRange(0, 30).Draw(rt, "uses") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(rt, "pause")))
			n := float64(rapid.IntRange(1, 100).Draw(rt, "units"))
			all.Add(n, now, time.Hour)
			[]*SlidingCount{&a, &b}[rapid.IntRange(0, 1).Draw(rt, "who")].Add(n, now, time.Hour)
		}
		require.InDelta(rt, all.Used(now, time.Hour), a.Join(b).Used(now, time.Hour), 1e-6)
		require.Equal(rt, a.Join(b), b.Join(a))
		require.GreaterOrEqual(rt, all.Used(now, time.Hour), 0.0)
	})
}
