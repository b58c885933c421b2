package live_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/routing"
	"omniroute/workflows/contract"
)

// wreck lets enough requests on distinct models of two connections fail to open the breaker.
func (r *replica) wreck(t *testing.T) {
	t.Helper()
	var passes []live.Pass
	for i := range r.Snapshot().Providers[openai].Breaker.FailureThreshold {
		passes = append(passes, r.admit(t, i%2+1, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}))
	}
	for _, p := range passes {
		p.Failed(unavailable(), r.now())
	}
	require.Equal(t, resilience.BreakerOpen, r.breaker())
}

func TestFiftyParallelServerErrorsOverTwoConnectionsOpenTheBreakerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		var running sync.WaitGroup
		for i := range 50 {
			pass := r.admit(t, i%2+1, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)})
			running.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				pass.Failed(unavailable(), time.Now())
			})
		}
		running.Wait()

		offers := r.offered()
		require.Len(t, offers, 1)
		require.Equal(t, contract.KindProvider, offers[0].Kind)
		require.Equal(t, 1, offers[0].Breaker.Opening.Cycle)
		for _, i := range []int{1, 2} {
			out, _ := r.Check(r.conn(i), gpt, false, time.Now())
			require.Equal(t, models.ReasonCircuitOpen, out.Reason)
			require.Equal(t, string(models.ReasonServerError), out.Detail)
			require.Equal(t, offers[0].Breaker.Opening.Until, out.Until)
			pass, out := r.Admit(t.Context(), r.conn(i), gpt, false, time.Now())
			require.Nil(t, pass, "open means no call at all")
			require.Equal(t, models.ReasonCircuitOpen, out.Reason)
		}
		require.InDelta(t, 30, r.Report(time.Now()).Providers[0].SecondsLeft, 1)
	})
}

func TestFailuresOfOneConnectionAmongTwoDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		for i := range 40 {
			r.fail(t, 1, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, unavailable())
		}
		require.Equal(t, resilience.BreakerDegraded, r.breaker())
		require.Equal(t, routing.RankDegraded, r.rank(2, gpt), "a degraded provider goes behind")
		r.fail(t, 2, gpt, rejectedKey()) // now there is one usable connection left
		r.fail(t, 1, gpt, unavailable())
		require.Equal(t, resilience.BreakerOpen, r.breaker())
	})
}

// Waiting for a second connection to confirm a failure is waiting for nobody when the second
// one is out for longer than the breaker would stay open.
func TestAConnectionThatIsOutForLongDoesNotKeepTheBreakerClosed(t *testing.T) {
	for _, c := range []struct {
		out  time.Duration
		want resilience.BreakerState
	}{
		{30 * time.Second, resilience.BreakerDegraded}, // the breaker's own reset timeout
		{31 * time.Second, resilience.BreakerOpen},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := alone(t, 2)
			r.fail(t, 2, gpt, rateLimited(c.out))
			for i := range 12 {
				r.fail(t, 1, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, unavailable())
			}
			require.Equal(t, c.want, r.breaker(), "the other is out for %s", c.out)
		})
	}
}

func TestWhatIsNotTheProvidersFaultNeverOpensItsBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		plain403 := failure.Verdict{Reason: models.ReasonAuth, Scope: models.ScopeNone, UpstreamStatus: 403}
		for range 1000 {
			r.fail(t, 1, gpt, badRequest())
			r.fail(t, 1, gpt, plain403)
			r.admit(t, 2, gpt).Abandoned(time.Now())
		}
		var crowd []live.Pass
		for range 1000 {
			crowd = append(crowd, r.admit(t, 1, gpt), r.admit(t, 2, gpt))
		}
		for i, p := range crowd {
			v := rateLimited(time.Second)
			if i%2 == 1 {
				v = rejectedKey()
			}
			p.Failed(v, time.Now())
		}
		require.Equal(t, resilience.BreakerClosed, r.breaker())
		require.Zero(t, r.Report(time.Now()).Providers[0].Failures)
	})
}

func TestASuccessfulProbeClosesTheBreakerAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.wreck(t)
		time.Sleep(30 * time.Second)
		require.Equal(t, resilience.BreakerHalfOpen, r.breaker())
		require.Empty(t, r.out(1, gpt), "the probe's place is free")
		probe := r.admit(t, 1, gpt)
		require.Equal(t, models.ReasonCircuitOpen, r.out(2, gpt), "it is taken")
		require.Equal(t, 30*time.Second, r.left(2, gpt), "for as long as the probe may take")
		time.Sleep(time.Second)
		probe.Succeeded(time.Now())

		require.Equal(t, resilience.BreakerClosed, r.breaker())
		offers := r.offered()
		require.Len(t, offers, 2)
		require.Equal(t, resilience.BreakerClosed, offers[1].Breaker.Opening.State(time.Now()))
		r.succeed(t, 2, gpt)
		require.Len(t, r.offered(), 2)
	})
}

func TestAFailedProbeOpensTheNextCycleAndKeepsItsPlaceInTheRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)
		r.fail(t, 1, gpt, unavailable())
		require.Equal(t, resilience.BreakerOpen, r.breaker())
		require.Equal(t, 2, r.Report(time.Now()).Providers[0].Cycle)
		require.Len(t, r.offered(), 2)
		synctest.Wait()
		require.Equal(t, "a", shared.holder(), "a replica that has not heard yet must not probe again")
	})
}

func TestAProbeThatSaysNothingLeavesThePlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)
		for _, end := range []func(live.Pass){
			func(p live.Pass) { p.Abandoned(time.Now()) },                        // the client left
			func(p live.Pass) { p.Failed(rateLimited(time.Second), time.Now()) }, // the account's fault
		} {
			probe := r.admit(t, 1, gpt)
			require.Equal(t, "a", shared.holder())
			end(probe)
			synctest.Wait()
			require.Empty(t, shared.holder(), "the row is given back")
			require.Equal(t, resilience.BreakerHalfOpen, r.breaker())
			require.Empty(t, r.out(2, gpt))
			time.Sleep(time.Second)
		}
	})
}

func TestAHungProbeFreesThePlaceAfterItsTimeAndItsLateResultIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)
		hung := r.admit(t, 1, gpt)
		time.Sleep(30*time.Second - time.Millisecond)
		require.Equal(t, models.ReasonCircuitOpen, r.out(2, gpt))
		time.Sleep(time.Millisecond)
		second := r.admit(t, 2, gpt)
		require.Equal(t, models.ReasonCircuitOpen, r.out(1, mini))
		hung.Abandoned(time.Now())
		synctest.Wait()
		require.Equal(t, resilience.BreakerHalfOpen, r.breaker(), "a late result changes nothing")
		require.Equal(t, "a", shared.holder(), "nor does it give away the place of the probe after it")
		second.Succeeded(time.Now())
		require.Equal(t, resilience.BreakerClosed, r.breaker())
		require.Equal(t, 1, r.breakerCycle(), "and never will")
	})
}

func (r *replica) breakerCycle() int {
	offers := r.offered()
	return offers[len(offers)-1].Breaker.Opening.Cycle
}

func TestAHundredRequestsAtExpiryOverTwoReplicasSendExactlyOneProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{}
		a, b := newReplica(t, "a", shared, newCatalog(2)), newReplica(t, "b", shared, newCatalog(2))
		a.wreck(t)
		b.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{publishedOpening(a, 1)}})
		require.Equal(t, resilience.BreakerOpen, b.breaker(), "the opening is shared")
		time.Sleep(30 * time.Second)

		var mu sync.Mutex
		var probes []live.Pass
		var running sync.WaitGroup
		for i := range 100 {
			r := []*replica{a, b}[i%2]
			running.Go(func() {
				pass, out := r.Admit(t.Context(), r.conn(i%2+1), gpt, false, time.Now())
				mu.Lock()
				defer mu.Unlock()
				if pass != nil {
					probes = append(probes, pass)
					return
				}
				if out.Reason != models.ReasonCircuitOpen || !out.Until.After(time.Now()) {
					panic("refused for another reason than the breaker")
				}
			})
		}
		running.Wait()
		require.Len(t, probes, 1)
		require.LessOrEqual(t, len(shared.asked), 2, "a replica asks once")
		probes[0].Succeeded(time.Now())
	})
}

func TestAReplicaThatLostTheProbeWaitsForTheWinnersVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{owner: "b", until: time.Now().Add(50 * time.Second)}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)
		pass, out := r.Admit(t.Context(), r.conn(1), gpt, false, time.Now())
		require.Nil(t, pass)
		require.Equal(t, 20*time.Second, time.Until(out.Until))
		require.Equal(t, 20*time.Second, r.left(2, gpt), "and everybody here waits as long")
		require.Zero(t, r.connection(1).InFlight)

		closed := publishedOpening(r, 2)
		closed.State.Opening.ClosedAt = time.Now().UTC().Truncate(time.Millisecond)
		r.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{closed}})
		require.Empty(t, r.out(1, gpt), "the winner's success closes it here, too")
		require.Len(t, shared.asked, 1)
	})
}

func TestWithTheDatabaseAwayEachReplicaProbesForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{err: errors.New("connection refused")}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)
		r.succeed(t, 1, gpt)
		require.Equal(t, resilience.BreakerClosed, r.breaker())
	})
}

// A slow database may have given the probe to another replica before its answer was late, so
// one silence is no leave to probe; a second one is a database that is away.
func TestAFrozenDatabaseIsAskedTwiceBeforeAReplicaProbesForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{frozen: true}
		r := newReplica(t, "a", shared, newCatalog(2))
		r.wreck(t)
		time.Sleep(30 * time.Second)

		begin := time.Now()
		_, out := r.Admit(t.Context(), r.conn(1), gpt, false, r.now())
		require.Equal(t, models.ReasonCircuitOpen, out.Reason)
		require.Equal(t, 250*time.Millisecond, time.Since(begin))
		require.WithinDuration(t, time.Now().Add(time.Second), out.Until, 0)

		time.Sleep(time.Second)
		begin = time.Now()
		r.succeed(t, 1, gpt)
		require.Equal(t, 250*time.Millisecond, time.Since(begin))
		require.Equal(t, resilience.BreakerClosed, r.breaker())
	})
}

// publishedOpening is a replica's opening as the provider's row has it.
func publishedOpening(r *replica, version int64) catalog.ProviderState {
	offers := r.offered()
	o := offers[len(offers)-1].Breaker.Opening
	return catalog.ProviderState{
		Provider: openai, Stamp: models.Stamp{Era: o.Era, Version: version}, State: resilience.Provider{Opening: o},
		AppliedThrough: o.Evidence(), Remaining: time.Until(o.Until),
	}
}
