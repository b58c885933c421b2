package live_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// facts are those of a model through a connection.
func (r *replica) facts(i int, model models.ModelRef) (f routing.Facts) {
	r.Facts(r.conn(i), &catalog.ModelView{Ref: model}, r.now(), &f)
	return f
}

func ours() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonUnknown, Blame: models.BlameUs, Scope: models.ScopeNone}
}

func empty() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonEmptyResponse, Blame: models.BlameUpstream, Scope: models.ScopeNone, Failover: true, UpstreamStatus: 200}
}

func TestFactsAreWhatTheCatalogSaysAndNothingElseBeforeTheFirstAttempt(t *testing.T) {
	r := alone(t, 1)
	r.conn(1).MaxConcurrent, r.conn(1).Plan = 4, &catalog.QuotaPlan{Tier: "pro"}
	model := &catalog.ModelView{Ref: gpt, ContextWindow: 128_000, Price: routing.Price{Input: 2.5, Output: 10, Known: true}, Capabilities: []string{"tools"}}

	f := routing.Facts{Samples: 7, Latency: time.Second, Exhausted: true}
	r.Facts(r.conn(1), model, r.now(), &f)
	require.Equal(t, routing.Facts{
		MaxConcurrent: 4, Quality: -1, Price: routing.Price{Input: 2.5, Output: 10, Known: true}, ContextWindow: 128_000,
		Capabilities: []string{"tools"}, Class: models.ClassAPIKey, Tier: "pro",
	}, f)
	require.False(t, r.facts(1, gpt).Price.Known, "what has no price is not free")
}

func TestOnlyWhatTheUpstreamDidCountsAgainstATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		for range 3 {
			r.succeed(t, 1, gpt)
		}
		r.fail(t, 1, gpt, badRequest())
		r.fail(t, 1, gpt, ours())
		r.admit(t, 1, gpt).Abandoned(r.now())
		require.Equal(t, [2]float64{3, 1}, [2]float64{r.facts(1, gpt).Samples, r.facts(1, gpt).SuccessRate})

		r.fail(t, 1, gpt, empty())
		f := r.facts(1, gpt)
		require.InDelta(t, 4, f.Samples, 1e-9)
		require.InDelta(t, 0.75, f.SuccessRate, 1e-9)
		require.InDelta(t, 0.75, f.Quality, 1e-9)
		require.Zero(t, r.facts(2, gpt).Samples, "another connection")
		require.Zero(t, r.facts(1, mini).Samples, "another model")

		time.Sleep(routing.HalfLife)
		require.InDelta(t, 2, r.facts(1, gpt).Samples, 1e-9)
	})
}

func TestAttemptsUnderWayAreCountedExactly(t *testing.T) {
	r := alone(t, 1)
	first, second := r.admit(t, 1, gpt), r.admit(t, 1, mini)
	require.Equal(t, 2, r.facts(1, gpt).InFlight)
	first.FirstContent(time.Second, r.now())
	require.Equal(t, 2, r.facts(1, gpt).InFlight, "a stream that has begun is under way")
	first.Succeeded(r.now())
	second.Abandoned(r.now())
	require.Zero(t, r.facts(1, gpt).InFlight)
}

func TestTheTimeToTheFirstContentIsToldBeforeOrAfterTheEnd(t *testing.T) {
	r := alone(t, 1)
	stream := r.admit(t, 1, gpt)
	stream.FirstContent(200*time.Millisecond, r.now())
	stream.Abandoned(r.now())
	whole := r.admit(t, 1, gpt)
	whole.Succeeded(r.now())
	whole.FirstContent(400*time.Millisecond, r.now())

	f := r.facts(1, gpt)
	require.InDelta(t, 300, f.Latency.Milliseconds(), 1)
	require.InDelta(t, 100, f.Deviation.Milliseconds(), 1)
	require.InEpsilon(t, 400, f.LatencyP95.Milliseconds(), 0.2)
}

func TestAHalfOpenBreakerIsAFact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 3)
		require.False(t, r.facts(1, gpt).Opening)
		for r.breaker() != resilience.BreakerOpen {
			r.models++
			r.fail(t, 1+r.models%3, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", r.models)}, unavailable())
		}
		require.False(t, r.facts(1, gpt).Opening)
		time.Sleep(time.Minute)
		require.Equal(t, resilience.BreakerHalfOpen, r.breaker())
		require.True(t, r.facts(1, gpt).Opening)
	})
}

func TestThoseThatWereOfUseLongestAgoMakeRoom(t *testing.T) {
	const most, kept = 10_000, 8_750
	r := alone(t, 25)
	begin := time.Now()
	see := func(i, at int) {
		pass, out := r.Admit(t.Context(), r.conn(1+i%25), models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, false, begin)
		require.Nil(t, out)
		pass.Succeeded(begin.Add(time.Duration(at)))
	}
	for i := range most {
		see(i, i)
	}
	see(0, most) // used again
	see(most, most+1)

	known := func(i int) bool {
		return r.facts(1+i%25, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}).Samples > 0
	}
	require.Equal(t, kept, r.Tracks())
	require.True(t, known(0) && known(most) && known(most-1) && known(most-kept+2))
	require.False(t, known(1) || known(most-kept+1))
	require.InDelta(t, most+1-kept, r.counted(t, "omniroute_target_statistics_dropped_total"), 0)

	for i := range most { // all of one moment, by a clock that stands still
		see(most+1+i, most+2)
		require.LessOrEqual(t, r.Tracks(), most)
	}
}

// counted is the value of a counter without labels.
func (r *replica) counted(t *testing.T, name string) float64 {
	t.Helper()
	families, err := r.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no counter %s", name)
	return 0
}

func TestAConnectionThatIsGoneTakesItsStatisticsAlong(t *testing.T) {
	r := alone(t, 2)
	r.succeed(t, 2, gpt)
	gone := r.conn(2)
	r.CatalogChanged(newCatalog(1))
	var f routing.Facts
	r.Facts(gone, &catalog.ModelView{Ref: gpt}, r.now(), &f)
	require.Zero(t, f.Samples)

	r.CatalogChanged(newCatalog(2))
	require.Zero(t, r.facts(2, gpt).Samples, "one of the same name is another")
}

func TestFactsAllocateNothingAndNoMoreDoesAHealthyAttempt(t *testing.T) {
	r := alone(t, 1)
	conn, model, now := r.conn(1), &catalog.ModelView{Ref: gpt}, time.Now()
	attempt := func() {
		pass, _ := r.Admit(context.Background(), conn, gpt, false, now)
		pass.Heard(nil, now)
		pass.FirstContent(time.Second, now)
		pass.Succeeded(now)
		pass.Used(100, now)
	}
	attempt()
	require.LessOrEqual(t, testing.AllocsPerRun(100, attempt), 1.0, "the pass itself")

	var f routing.Facts
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Facts(conn, model, now, &f) }))
}

func TestAttemptsAndPlansAtTheSameTimeSeeSomethingWhole(t *testing.T) {
	r := alone(t, 4)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 200 {
				model := models.ModelRef{Provider: openai, Model: fmt.Sprint("m", n%7)}
				pass, out := r.Admit(context.Background(), r.conn(1+i%4), model, false, time.Now())
				if out != nil {
					continue
				}
				pass.FirstContent(time.Millisecond, time.Now())
				f := r.facts(1+i%4, model)
				if f.InFlight < 1 || f.SuccessRate < 0 || f.SuccessRate > 1 {
					t.Errorf("%+v", f)
				}
				pass.Succeeded(time.Now())
			}
		})
	}
	group.Wait()
	require.InDelta(t, 2*200, r.sum(1), 1)
}

// sum is how much was seen of all models of a connection.
func (r *replica) sum(i int) (samples float64) {
	for n := range 7 {
		samples += r.facts(i, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", n)}).Samples
	}
	return samples
}

func BenchmarkFactsOfTwoHundredCandidates(b *testing.B) {
	r := newReplica(b, "a", nil, newCatalog(200))
	now := time.Now()
	for _, conn := range r.Snapshot().Connections {
		for range 20 {
			pass, _ := r.Admit(b.Context(), conn, gpt, false, now)
			pass.FirstContent(time.Second, now)
			pass.Succeeded(now)
		}
	}
	conns := r.Snapshot().Providers[openai].Connections
	model := &catalog.ModelView{Ref: gpt}
	facts := make([]routing.Facts, len(conns))
	b.ReportAllocs()
	for b.Loop() {
		for i, conn := range conns {
			r.Facts(conn, model, now, &facts[i])
		}
	}
}
