package live_test

import (
	"fmt"
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

// gated is a catalog with the provider cooldown of the guide's section 1 switched on, and a
// breaker that does not come before it.
func gated(s *catalog.Snapshot) *catalog.Snapshot {
	s.Providers[openai].Breaker.FailureThreshold = 1000
	s.Providers[openai].Breaker.DegradationThreshold = 999
	s.Providers[openai].Gate = resilience.WindowPolicy{
		Enabled: true, Failures: 15, Within: 30 * time.Minute, Cooldown: 10 * time.Minute, Least: 5 * time.Second, Longest: 5 * time.Minute,
	}
	return s
}

// combo is why a request to a combo may not call a target now; empty when it may.
func (r *replica) combo(i int, model models.ModelRef) models.Reason {
	if out, _ := r.Check(r.conn(i), model, true, r.now()); out != nil {
		return out.Reason
	}
	return ""
}

// failing lets so many requests to a connection fail, each to another model.
func (r *replica) failing(t *testing.T, i, times int) {
	t.Helper()
	for range times {
		r.models++
		r.fail(t, i, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", r.models)}, unavailable())
		time.Sleep(time.Millisecond)
	}
}

func (r *replica) gate() bool { return r.Report(r.now()).Providers[0].Gate != nil }

func TestAsManyFailuresAsTheThresholdKeepCombosAwayFromTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		r.failing(t, 1, 14)
		require.Empty(t, r.combo(2, gpt), "below the threshold nothing cools")
		require.Empty(t, r.offered())
		r.failing(t, 2, 1)

		out, _ := r.Check(r.conn(2), gpt, true, time.Now())
		require.Equal(t, models.ReasonProviderCooldown, out.Reason)
		require.Equal(t, models.ReasonServerError, out.Because)
		require.Equal(t, 10*time.Minute, time.Until(out.Until)+time.Millisecond)
		_, out = r.Admit(t.Context(), r.conn(2), gpt, true, time.Now())
		require.Equal(t, models.ReasonProviderCooldown, out.Reason)
		require.Empty(t, r.out(2, gpt), "plain models do not heed it")
		require.Len(t, r.offered(), 1, "the other replicas are told")
		until := out.Until

		r.failing(t, 1, 40)
		require.Len(t, r.offered(), 1)
		out, _ = r.Check(r.conn(2), gpt, true, time.Now())
		require.Equal(t, until, out.Until, "what goes on failing extends nothing")
		report := r.Report(time.Now()).Providers[0]
		require.Equal(t, 600, report.Gate.SecondsLeft)
		require.Nil(t, report.Hold)

		time.Sleep(time.Until(until))
		require.Empty(t, r.combo(2, gpt))
		r.failing(t, 2, 14)
		require.False(t, r.gate(), "the count began anew")
	})
}

func TestFailuresThatLieFurtherApartThanTheWindowDoNotAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(1)))
		for range 60 {
			r.fail(t, 1, gpt, unavailable())
			time.Sleep(130 * time.Second) // 14 in half an hour
		}
		require.False(t, r.gate())
	})
}

func TestASuccessClearsTheWindowTheGateAndTheConnectionsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		r.failing(t, 1, 14)
		r.succeed(t, 2, gpt)
		r.failing(t, 1, 14)
		require.False(t, r.gate(), "the success was in between")
		r.failing(t, 1, 1)
		require.True(t, r.gate())
		time.Sleep(time.Second)
		r.succeed(t, 2, gpt) // a plain model's request
		require.False(t, r.gate())
		require.Empty(t, r.combo(2, gpt))
		require.Len(t, r.offered(), 2, "shut and open again")
		require.Equal(t, models.ReasonProviderCooldown, r.combo(1, gpt), "the first connection's backoff is its own")
		r.succeed(t, 1, gpt)
		require.Empty(t, r.combo(1, gpt))
		require.Len(t, r.offered(), 2, "of which nobody else knows")
	})
}

// Guide section 1: a connection's own entry doubles from the least to the longest.
func TestAConnectionThatFailsKeepsCombosAwayForLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		for i, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 300 * time.Second, 300 * time.Second} {
			r.fail(t, 1, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, unavailable())
			out, _ := r.Check(r.conn(1), gpt, true, time.Now())
			require.Equal(t, models.ReasonProviderCooldown, out.Reason)
			require.Equal(t, want, time.Until(out.Until))
			require.Equal(t, i+1, r.connection(1).Gate.Level)
			require.Empty(t, r.out(1, gpt))
			require.Empty(t, r.combo(2, gpt))
			time.Sleep(want)
			require.Empty(t, r.combo(1, gpt))
		}
		require.Empty(t, r.offered(), "it is this replica's own matter")
	})
}

func TestWithoutTheSettingNothingIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := gated(newCatalog(1))
		s.Providers[openai].Gate.Enabled = false
		r := newReplica(t, "a", nil, s)
		r.failing(t, 1, 50)
		require.Empty(t, r.combo(1, gpt))
		require.Empty(t, r.offered())
	})
}

func TestSwitchingTheSettingOffLetsCombosInAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(1)))
		r.failing(t, 1, 15)
		require.Equal(t, models.ReasonProviderCooldown, r.combo(1, gpt))
		off := gated(newCatalog(1))
		off.Providers[openai].Gate.Enabled = false
		r.CatalogChanged(off)
		require.Empty(t, r.combo(1, gpt))
	})
}

func TestAccountsFaultsAndClientsNeverShutTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		for range 100 {
			r.fail(t, 1, gpt, badRequest())
			r.fail(t, 1, gpt, rateLimited(time.Second))
			time.Sleep(time.Second)
			r.admit(t, 2, gpt).Abandoned(time.Now())
		}
		require.False(t, r.gate())
		require.Nil(t, r.connection(1).Gate)
	})
}

func TestAShutGateIsSharedRepeatedAndOpenedByAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newReplica(t, "a", nil, gated(newCatalog(1))), newReplica(t, "b", nil, gated(newCatalog(1)))
		a.failing(t, 1, 15)
		require.Equal(t, 1, a.Report(time.Now()).Unpublished.Entities)
		a.StatesChanged(&catalog.States{Complete: true})
		require.Len(t, a.offered(), 2, "the row does not have it")
		b.StatesChanged(&catalog.States{Complete: true, Providers: []catalog.ProviderState{publishedProvider(a, 1)}})
		require.Equal(t, models.ReasonProviderCooldown, b.combo(1, gpt))
		a.StatesChanged(&catalog.States{Complete: true, Providers: []catalog.ProviderState{publishedProvider(a, 1)}})
		require.Len(t, a.offered(), 2, "now it does")
		require.Empty(t, b.offered())

		time.Sleep(time.Second)
		b.succeed(t, 1, gpt)
		a.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{publishedProvider(b, 2)}})
		require.False(t, a.gate())
	})
}

func TestAResetOfTheProviderEndsItsCooldownsAndTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		r.failing(t, 1, 15)
		r.fail(t, 2, gpt, wholeProvider(time.Hour))
		state := r.offered()[1].Breaker.Reset(time.Now())
		row := catalog.ProviderState{Provider: openai, Stamp: models.Stamp{Era: state.Era(), Version: 1}, State: state}
		r.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{row}})
		report := r.Report(time.Now()).Providers[0]
		require.Nil(t, report.Hold)
		require.Nil(t, report.Gate)
		require.Empty(t, r.combo(2, gpt))
		r.failing(t, 2, 14)
		require.False(t, r.gate(), "the count began anew")
		r.failing(t, 2, 1)
		require.True(t, r.gate(), "and in the new era it counts")
		require.EqualValues(t, 1, r.offered()[2].Breaker.Era())
	})
}

// wholeProvider is the verdict of a rule of scope provider.
func wholeProvider(wait time.Duration) failure.Verdict {
	return failure.Verdict{
		Reason: models.ReasonQuotaExhausted, Blame: models.BlameUpstream, Scope: models.ScopeProvider, Failover: true,
		Fixed: wait, UpstreamStatus: 403, Rule: "maintenance",
	}
}

func TestARuleOfScopeProviderKeepsEveryRequestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.fail(t, 1, gpt, wholeProvider(time.Minute))
		for _, i := range []int{1, 2} {
			require.Equal(t, models.ReasonProviderCooldown, r.out(i, mini))
			require.Equal(t, models.ReasonProviderCooldown, r.combo(i, mini))
			require.Equal(t, time.Minute, r.left(i, mini))
			require.Equal(t, models.PhaseReady, r.connection(i).Phase)
		}
		require.Zero(t, r.Report(time.Now()).Providers[0].Failures, "the breaker is another matter")
		require.Equal(t, 60, r.Report(time.Now()).Providers[0].Hold.SecondsLeft)
		require.Len(t, r.offered(), 1)

		time.Sleep(time.Minute)
		trial := r.admit(t, 1, gpt)
		require.Equal(t, models.ReasonProviderCooldown, r.out(2, gpt), "one goes first")
		time.Sleep(time.Second)
		r.admit(t, 2, gpt).Abandoned(time.Now())
		require.Equal(t, routing.RankTrial, r.rank(2, gpt))
		time.Sleep(time.Second)
		trial.Succeeded(time.Now())
		require.Equal(t, routing.RankFull, r.rank(2, gpt))
		require.Len(t, r.offered(), 2)
		require.True(t, r.offered()[1].Breaker.Settled())
	})
}

func TestAnAttemptThatLostTheProbeIsNoTrialAfterAHoldEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &row{owner: "b", until: time.Now().Add(time.Hour)}
		r := newReplica(t, "a", shared, newCatalog(2))
		held := r.admit(t, 1, gpt)
		r.wreck(t)
		held.Failed(wholeProvider(10*time.Second), time.Now())
		time.Sleep(30 * time.Second)
		_, out := r.Admit(t.Context(), r.conn(1), gpt, false, time.Now())
		require.Equal(t, models.ReasonCircuitOpen, out.Reason)
		closed := publishedOpening(r, 2)
		closed.State.Opening.ClosedAt = time.Now().UTC().Truncate(time.Millisecond)
		r.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{closed}})
		require.Equal(t, routing.RankFull, r.rank(2, gpt), "nobody tries it")
	})
}

func TestAHoldWithoutATimeOfItsOwnBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		for _, want := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second} {
			r.fail(t, 1, gpt, wholeProvider(0))
			require.Equal(t, want, r.left(1, gpt))
			time.Sleep(want)
		}
	})
}

// publishedProvider is a provider's row with what a replica offered last.
func publishedProvider(r *replica, version int64) catalog.ProviderState {
	offers := r.offered()
	state := offers[len(offers)-1].Breaker
	return catalog.ProviderState{
		Provider: openai, Stamp: models.Stamp{Era: state.Era(), Version: version}, State: state, AppliedThrough: state.Evidence(),
	}
}
