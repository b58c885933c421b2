package routing

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var nine = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func filled(s *Statistics, now time.Time) (f Facts) {
	s.Fill(&f, now)
	return f
}

func TestNothingIsKnownOfATargetThatWasNeverTried(t *testing.T) {
	f := filled(&Statistics{}, nine)
	require.Equal(t, Facts{Quality: -1}, f)
}

func TestEvidenceCountsHalfAfterAHalfLife(t *testing.T) {
	var s Statistics
	for range 8 {
		s.Succeeded(nine)
	}
	require.InDelta(t, 8, filled(&s, nine).Samples, 1e-9)
	require.InDelta(t, 4, filled(&s, nine.Add(HalfLife)).Samples, 1e-9)
	require.InDelta(t, 1, filled(&s, nine.Add(3*HalfLife)).Samples, 1e-9)

	s.Failed(false, nine.Add(3*HalfLife))
	f := filled(&s, nine.Add(3*HalfLife))
	require.InDelta(t, 2, f.Samples, 1e-9)
	require.InDelta(t, 0.5, f.SuccessRate, 1e-9, "one failure of now weighs as much as eight successes of half an hour ago")
	require.InDelta(t, 1, f.Quality, 1e-9, "a refusal is no answer")
}

func TestAnAnswerOfNoUseLowersTheQuality(t *testing.T) {
	var s Statistics
	for range 3 {
		s.Succeeded(nine)
	}
	s.Failed(true, nine)
	f := filled(&s, nine)
	require.InDelta(t, 0.75, f.Quality, 1e-9)
	require.InDelta(t, 0.75, f.SuccessRate, 1e-9)
}

func TestTimesToTheFirstContentAreToldByMeanDeviationAndPercentile(t *testing.T) {
	var s Statistics
	for i := range 100 {
		s.Began(time.Duration(i+1)*10*time.Millisecond, nine)
	}
	f := filled(&s, nine)
	require.InDelta(t, 505, f.Latency.Milliseconds(), 1)
	require.InDelta(t, 289, f.Deviation.Milliseconds(), 1)
	require.InEpsilon(t, 950, f.LatencyP95.Milliseconds(), classFactor-1)
	require.Zero(t, f.Samples, "the attempts have not ended")
}

func TestTheLandmarkMovesWithoutChangingWhatIsKnown(t *testing.T) {
	var s Statistics
	now := nine
	for range 1000 { // a week
		now = now.Add(HalfLife)
		s.Succeeded(now)
		s.Began(time.Second, now)
	}
	f := filled(&s, now)
	require.InDelta(t, 2, f.Samples, 1e-6, "1 + 1/2 + 1/4 ...")
	require.InEpsilon(t, 1, f.Latency.Seconds(), 1e-6)
	require.InEpsilon(t, 1, f.LatencyP95.Seconds(), classFactor-1)
}

func TestAClockThatIsSetBackForgetsAndInventsNothing(t *testing.T) {
	var s Statistics
	s.Succeeded(nine)
	s.Succeeded(nine.Add(-24 * time.Hour))
	require.InDelta(t, 2, filled(&s, nine.Add(-24*time.Hour)).Samples, 1e-9)
}

func TestWhatIsKeptIsReadBackAsItWas(t *testing.T) {
	var s Statistics
	for i := range 20 {
		s.Succeeded(nine.Add(time.Duration(i) * time.Minute))
		s.Began(time.Duration(i)*100*time.Millisecond, nine.Add(time.Duration(i)*time.Minute))
	}
	later := nine.Add(time.Hour)
	text, err := json.Marshal(s.State(later))
	require.NoError(t, err)
	var state StatisticsState
	require.NoError(t, json.Unmarshal(text, &state))
	back, err := state.Restore(later)
	require.NoError(t, err)

	before, after := filled(&s, later), filled(&back, later)
	require.InEpsilon(t, before.Samples, after.Samples, 1e-9)
	require.InEpsilon(t, before.Latency, after.Latency, 1e-6)
	require.InEpsilon(t, before.LatencyP95, after.LatencyP95, 1e-4)
	require.InEpsilon(t, before.Deviation, after.Deviation, 1e-6)
}

func TestStatisticsThatNoAttemptsCanHaveShownAreRefused(t *testing.T) {
	for name, state := range map[string]StatisticsState{
		"negative":           {Attempts: -1},
		"not a number":       {Attempts: math.NaN()},
		"infinite":           {Attempts: math.Inf(1)},
		"more than all":      {Attempts: 1, Successes: 2},
		"usable and none":    {Usable: 1},
		"too many classes":   {Classes: make([]float32, latencyClasses+1)},
		"beyond the classes": {First: latencyClasses, Classes: []float32{1}},
		"overflow":           {First: math.MaxInt, Classes: []float32{1}},
		"before the classes": {First: -1, Classes: []float32{1}},
		"a negative class":   {Classes: []float32{-1}},
	} {
		_, err := state.Restore(nine)
		require.Error(t, err, name)
	}
}

// attempted is one piece of evidence.
type attempted struct {
	kind int
	took time.Duration
	at   time.Time
}

func (a attempted) into(s *Statistics) {
	switch a.kind {
	case 0:
		s.Succeeded(a.at)
	case 1:
		s.Failed(false, a.at)
	case 2:
		s.Failed(true, a.at)
	default:
		s.Began(a.took, a.at)
	}
}

func drawEvidence(rt *rapid.T) []attempted {
	at := nine
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) attempted {
		at = at.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "pause")))
		return attempted{
			kind: rapid.IntRange(0, 3).Draw(rt, "kind"), at: at,
			took: time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(rt, "took")),
		}
	}), 1, 60).Draw(rt, "evidence")
}

func TestWhateverIsSeenTheRatesAreRatesAndTheDecayIsAsDocumented(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		evidence := drawEvidence(rt)
		now := evidence[len(evidence)-1].at.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(rt, "after")))
		var s Statistics
		var samples float64
		for _, a := range evidence {
			a.into(&s)
			if a.kind < 3 {
				samples += math.Exp2(-float64(now.Sub(a.at)) / float64(HalfLife))
			}
		}
		f := filled(&s, now)
		require.InEpsilon(rt, 1+samples, 1+f.Samples, 1e-6)
		require.True(rt, f.SuccessRate >= 0 && f.SuccessRate <= 1)
		require.True(rt, f.Quality == -1 || f.Quality >= 0 && f.Quality <= 1)
		require.True(rt, f.Latency >= 0 && f.Deviation >= 0 && f.LatencyP95 >= 0)
	})
}

// Evidence that two have seen is the evidence of both, in whatever order it is put together.
func TestJoiningIsTheSameAsHavingSeenEverything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		evidence := drawEvidence(rt)
		now := evidence[len(evidence)-1].at
		var a, b, all Statistics
		for _, e := range evidence {
			e.into(&all)
			e.into([]*Statistics{&a, &b}[rapid.IntRange(0, 1).Draw(rt, "who")])
		}
		ab, ba := a, b
		ab.Join(&b)
		ba.Join(&a)
		for _, joined := range []*Statistics{&ab, &ba} {
			want, got := filled(&all, now), filled(joined, now)
			require.InEpsilon(rt, 1+want.Samples, 1+got.Samples, 1e-6)
			require.InDelta(rt, want.SuccessRate, got.SuccessRate, 1e-6)
			require.InDelta(rt, want.Quality, got.Quality, 1e-6)
			require.InEpsilon(rt, float64(time.Second+want.Latency), float64(time.Second+got.Latency), 1e-6)
			require.InEpsilon(rt, float64(time.Second+want.LatencyP95), float64(time.Second+got.LatencyP95), 1e-2)
		}
	})
}

func TestAPercentileIsAClassOffAtMost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		times := rapid.SliceOfN(rapid.Int64Range(int64(20*time.Millisecond), int64(3*time.Minute)), 1, 200).Draw(rt, "times")
		var s Statistics
		for _, took := range times {
			s.Began(time.Duration(took), nine)
		}
		slices.Sort(times)
		exact := float64(times[int(math.Ceil(0.95*float64(len(times))))-1])
		got := float64(filled(&s, nine).LatencyP95)
		require.True(rt, got <= exact*classFactor*1.001 && got >= exact/classFactor/1.001, "exact %v, told %v", time.Duration(exact), time.Duration(got))
	})
}

func TestStatisticsAllocateNothing(t *testing.T) {
	var s Statistics
	var f Facts
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Began(time.Second, nine)
		s.Succeeded(nine)
		s.Failed(true, nine)
		s.Fill(&f, nine)
	}))
}

func BenchmarkStatistics(b *testing.B) {
	var s Statistics
	var f Facts
	s.Began(time.Second, nine)
	b.Run("Succeeded", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Succeeded(nine)
		}
	})
	b.Run("Began", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Began(time.Second, nine)
		}
	})
	b.Run("Fill", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Fill(&f, nine)
		}
	})
}
