package live_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/live"
	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/feed"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

func TestLiveIsTheRelaysHealthAndTheFeedsSink(t *testing.T) {
	r := alone(t, 1)
	var _ relay.Health = r.Live
	var _ feed.Sink = r.Live
	require.NotNil(t, r.Snapshot())
}

func TestAHealthyRequestSendsNothingAndAllocatesOnlyItsPass(t *testing.T) {
	r := alone(t, 2)
	now := time.Now()
	conn := r.conn(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if out, rank := r.Check(conn, gpt, false, now); out != nil || rank != routing.RankFull {
			panic("a healthy connection is out")
		}
	}))
	ctx := t.Context()
	require.Equal(t, 1.0, testing.AllocsPerRun(1000, func() {
		pass, _ := r.Admit(ctx, conn, gpt, false, now)
		pass.Succeeded(now)
	}))
	require.Empty(t, r.offered())
}

func TestARateLimitedConnectionIsOutForItsHintAndItsSiblingIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.fail(t, 1, gpt, rateLimited(30*time.Second))

		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Equal(t, models.ReasonConnCooldown, r.out(1, mini), "the whole connection is out")
		require.Empty(t, r.out(2, gpt))
		require.Equal(t, 30*time.Second, r.left(1, gpt))
		offers := r.offered()
		require.Len(t, offers, 1)
		require.Equal(t, models.ConnectionID("openai-1"), offers[0].Connection)
		require.Equal(t, openai, offers[0].Provider)

		time.Sleep(30*time.Second - time.Millisecond)
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		time.Sleep(time.Millisecond)
		require.Empty(t, r.out(1, gpt))
		require.Len(t, r.offered(), 1, "a cooldown passes without a message")
	})
}

func TestAfterACooldownOneRequestGoesFirstAndTheOthersStayBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.fail(t, 1, gpt, rateLimited(10*time.Second))
		time.Sleep(10 * time.Second)

		require.Equal(t, routing.RankFull, r.rank(1, gpt), "nobody tries it yet")
		trial := r.admit(t, 1, gpt)
		require.Equal(t, models.ReasonConnCooldown, r.out(1, mini))
		time.Sleep(time.Second)
		require.Equal(t, routing.RankTrial, r.rank(1, gpt))
		other := r.admit(t, 1, gpt) // behind, not out
		other.Abandoned(time.Now())
		require.Equal(t, routing.RankTrial, r.rank(1, gpt), "the trial still runs")
		time.Sleep(time.Second)
		trial.Succeeded(time.Now())

		require.Equal(t, routing.RankFull, r.rank(1, gpt))
		require.Zero(t, r.connection(1).Level)
		offers := r.offered()
		require.Len(t, offers, 2, "the failure and the recovery")
		require.Equal(t, models.PhaseReady, offers[1].Health.Cooldown.Standing(time.Now()).Phase)
		r.succeed(t, 1, gpt)
		require.Len(t, r.offered(), 2, "a healthy success says nothing")
	})
}

// Else a connection that is the only one of its model meets all who waited for it at once.
func TestOfACrowdAtTheEndOfACooldownOneGoes(t *testing.T) {
	for name, c := range map[string]struct {
		verdict failure.Verdict
		reason  models.Reason
	}{
		"of a connection":         {rateLimited(10 * time.Second), models.ReasonConnCooldown},
		"of a model":              {locked(models.LockModel, 10*time.Second), models.ReasonModelCooldown},
		"of a model on a replica": {locked(models.LockExact, 10*time.Second), models.ReasonModelCooldown},
		"of a provider":           {wholeProvider(10 * time.Second), models.ReasonProviderCooldown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, 1)
				r.fail(t, 1, gpt, c.verdict)
				time.Sleep(10 * time.Second)
				began := time.Now()
				admitted, refused := make(chan live.Pass, 100), make(chan *routing.Exclusion, 100)
				var crowd sync.WaitGroup
				for range 100 {
					crowd.Go(func() {
						pass, out := r.Admit(t.Context(), r.conn(1), gpt, false, time.Now())
						if out != nil {
							refused <- out
						} else {
							admitted <- pass
						}
					})
				}
				crowd.Wait()
				require.Len(t, admitted, 1)
				for range 99 {
					out := <-refused
					require.Equal(t, c.reason, out.Reason)
					require.Equal(t, c.verdict.Reason, out.Because)
					require.Equal(t, began.Add(time.Second), out.Until)
				}
				require.EqualValues(t, 1, r.connection(1).InFlight)

				time.Sleep(999 * time.Millisecond)
				require.Equal(t, c.reason, r.out(1, gpt))
				time.Sleep(time.Millisecond)
				require.Empty(t, r.out(1, gpt), "who answers slowly holds nobody up")
				require.Equal(t, routing.RankTrial, r.rank(1, gpt))
				r.admit(t, 1, gpt).Abandoned(time.Now())

				(<-admitted).Succeeded(time.Now())
				require.Equal(t, routing.RankFull, r.rank(1, gpt))
			})
		})
	}
}

func TestATrialThatEndsLetsTheOthersInAtOnceOrKeepsThemOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, rateLimited(10*time.Second))
		time.Sleep(10 * time.Second)
		trial := r.admit(t, 1, gpt)
		time.Sleep(100 * time.Millisecond)
		trial.Failed(rateLimited(10*time.Second), time.Now())
		require.Equal(t, 10*time.Second, r.left(1, gpt))
		time.Sleep(10 * time.Second)
		trial = r.admit(t, 1, gpt)
		time.Sleep(100 * time.Millisecond)
		trial.Succeeded(time.Now())
		for range 100 {
			defer r.admit(t, 1, gpt).Abandoned(time.Now())
		}
	})
}

func TestATrialThatFailsRaisesTheLevelAndOneThatIsAbandonedLeavesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, rateLimited(0))
		require.Equal(t, 3*time.Second, r.left(1, gpt))
		time.Sleep(3 * time.Second)
		r.admit(t, 1, gpt).Abandoned(time.Now())
		require.Equal(t, routing.RankFull, r.rank(1, gpt))
		r.fail(t, 1, gpt, rateLimited(0))
		require.Equal(t, 6*time.Second, r.left(1, gpt))
		require.Equal(t, 2, r.connection(1).Level)
		require.Equal(t, routing.RankFull, r.rank(1, gpt))
	})
}

func TestFiftyParallelRateLimitsAreOneEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		var passes []live.Pass
		for range 50 {
			passes = append(passes, r.admit(t, 1, gpt))
		}
		time.Sleep(100 * time.Millisecond)
		for _, p := range passes {
			p.Failed(rateLimited(0), time.Now())
			time.Sleep(time.Millisecond)
		}
		c := r.connection(1)
		require.Equal(t, 1, c.Level)
		require.Equal(t, 3*time.Second, time.Until(c.Until)+50*time.Millisecond)
		require.Len(t, r.offered(), 1)
		require.Zero(t, c.InFlight)
	})
}

func TestALateSuccessDoesNotClearACooldownThatIsNewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		early := r.admit(t, 1, gpt)
		time.Sleep(time.Second)
		r.fail(t, 1, gpt, rateLimited(time.Minute))
		time.Sleep(time.Second)
		early.Succeeded(time.Now())
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Len(t, r.offered(), 1)
	})
}

func TestARejectedKeyIsOutForGoodAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.fail(t, 1, gpt, rejectedKey())
		time.Sleep(1000 * time.Hour)
		out, _ := r.Check(r.conn(1), gpt, false, time.Now())
		require.Equal(t, models.ReasonExpired, out.Reason)
		require.True(t, out.Until.IsZero())
		require.Equal(t, models.PhaseExpired, r.connection(1).Phase)
		require.Empty(t, r.out(2, gpt))
	})
}

func TestAServerErrorPutsOutOnlyThatModelOnThatConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.fail(t, 1, gpt, unavailable())
		require.Equal(t, models.ReasonModelCooldown, r.out(1, gpt))
		require.Equal(t, 3*time.Second, r.left(1, gpt))
		require.Empty(t, r.out(1, mini))
		require.Empty(t, r.out(2, gpt))
		require.Empty(t, r.offered(), "it is this replica's own matter")
		require.Equal(t, 1, r.Report(time.Now()).Providers[0].Failures)

		time.Sleep(3 * time.Second)
		trial := r.admit(t, 1, gpt)
		require.Equal(t, models.ReasonModelCooldown, r.out(1, gpt))
		require.Equal(t, routing.RankFull, r.rank(1, mini))
		trial.Failed(unavailable(), time.Now())
		require.Equal(t, 6*time.Second, r.left(1, gpt))
		time.Sleep(6 * time.Second)
		r.succeed(t, 1, gpt)
		require.Empty(t, r.Report(time.Now()).Lockouts)
		r.fail(t, 1, gpt, unavailable())
		require.Equal(t, 3*time.Second, r.left(1, gpt), "a success takes the level down")
	})
}

func TestAMissingModelIsOutForTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, notFound())
		require.Equal(t, 2*time.Minute, r.left(1, gpt))
		require.Empty(t, r.out(1, mini))
		require.Zero(t, r.Report(time.Now()).Providers[0].Failures)
	})
}

func TestWhatTheClientDidTouchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		before := r.Report(time.Now())
		for range 1000 {
			r.fail(t, 1, gpt, badRequest())
			r.admit(t, 1, gpt).Abandoned(time.Now())
		}
		require.Equal(t, before, r.Report(time.Now()))
		require.Empty(t, r.offered())
	})
}

func TestSlotsBoundWhatRunsAndEveryEndingFreesOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snapshot := newCatalog(1)
		snapshot.Connections["openai-1"].MaxConcurrent = 2
		r := newReplica(t, "a", nil, snapshot)
		first, second := r.admit(t, 1, gpt), r.admit(t, 1, mini)
		require.Equal(t, models.ReasonConcurrency, r.out(1, gpt))
		_, out := r.Admit(t.Context(), r.conn(1), gpt, false, time.Now())
		require.Equal(t, models.ReasonConcurrency, out.Reason)

		first.Abandoned(time.Now())
		require.Empty(t, r.out(1, gpt))
		third := r.admit(t, 1, gpt)
		second.Failed(badRequest(), time.Now())
		third.Succeeded(time.Now())
		third.Succeeded(time.Now()) // a second ending frees nobody else's slot
		fourth := r.admit(t, 1, gpt)
		require.Equal(t, int64(1), r.connection(1).InFlight)
		fourth.Succeeded(time.Now())
		require.Zero(t, r.connection(1).InFlight)
	})
}

func TestADisabledConnectionAndOneThatLeftTheCatalogAreOut(t *testing.T) {
	r := alone(t, 2)
	gone := r.conn(2)
	snapshot := newCatalog(1)
	snapshot.Connections["openai-1"].Disabled = true
	r.CatalogChanged(snapshot)
	require.Equal(t, models.ReasonDisabled, r.out(1, gpt))
	out, _ := r.Check(gone, gpt, false, time.Now())
	require.Equal(t, models.ReasonUnavailable, out.Reason)
	pass, out := r.Admit(t.Context(), gone, gpt, false, time.Now())
	require.Nil(t, pass)
	require.Equal(t, models.ReasonUnavailable, out.Reason)
}

func TestANewCatalogKeepsTheStateOfWhatItStillNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 3)
		r.fail(t, 1, gpt, rateLimited(time.Minute))
		r.fail(t, 2, gpt, notFound())
		r.fail(t, 3, gpt, notFound())
		running := r.admit(t, 3, mini)

		next := newCatalog(2)
		next.Connections["openai-2"].Policy.Cooldown.Base = 20 * time.Second
		r.CatalogChanged(next)
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Equal(t, models.ReasonModelCooldown, r.out(2, gpt))
		require.Len(t, r.Report(time.Now()).Lockouts, 1, "what belonged to openai-3 has gone with it")
		running.Failed(rateLimited(time.Minute), time.Now()) // ends well all the same
		r.fail(t, 2, mini, rateLimited(0))
		require.Equal(t, 20*time.Second, r.left(2, mini), "the new policy holds from the next event on")
	})
}

func uncooled(s *catalog.Snapshot) *catalog.Snapshot {
	s.Connections["openai-1"].Policy.NoCooldown = true
	return s
}

func TestSwitchingCoolingOffFreesAConnectionAtOnceAndOnAgainKeepsItAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(2)))
		r.failing(t, 1, 1)
		require.Equal(t, models.ReasonProviderCooldown, r.combo(1, gpt), "the backoff of the gate")
		r.fail(t, 1, gpt, rateLimited(20*time.Hour))
		r.CatalogChanged(uncooled(gated(newCatalog(2))))
		require.Empty(t, r.out(1, gpt))
		require.Empty(t, r.combo(1, gpt))
		require.Equal(t, models.PhaseReady, r.connection(1).Phase)
		require.Nil(t, r.connection(1).Gate)

		r.CatalogChanged(gated(newCatalog(2)))
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		r.CatalogChanged(uncooled(gated(newCatalog(2))))
		time.Sleep(21 * time.Hour)
		for range 100 { // no trial either
			defer r.admit(t, 1, gpt).Abandoned(time.Now())
		}
		require.Equal(t, routing.RankFull, r.rank(1, gpt))
	})
}

// Without cooling a refusal only counts, whether it came before the switch or after it.
func TestSwitchingCoolingOffFreesAConnectionWhoseRequestsWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, newCatalog(1))
		r.fail(t, 1, gpt, failure.Verdict{Reason: models.ReasonRequestRejected, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 403})
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		r.CatalogChanged(uncooled(newCatalog(1)))
		require.Empty(t, r.out(1, gpt))
		require.Equal(t, 1, r.connection(1).Rejections)
	})
}

func TestAConnectionWithoutCoolingIsNotKeptFromCombosByItsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, uncooled(gated(newCatalog(2))))
		r.failing(t, 1, 5)
		r.failing(t, 2, 1)
		require.Empty(t, r.combo(1, gpt))
		require.Equal(t, models.ReasonProviderCooldown, r.combo(2, gpt), "its sibling is")
		r.CatalogChanged(gated(newCatalog(2)))
		require.Empty(t, r.combo(1, gpt), "and nothing was counted")
	})
}

func TestWithoutCoolingWhatNoRequestCanOvercomeStillKeepsAConnectionAway(t *testing.T) {
	expired := failure.Verdict{Reason: models.ReasonExpired, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 401}
	for name, c := range map[string]struct {
		verdict failure.Verdict
		out     models.Reason
	}{
		"a terminal state":    {rejectedKey(), models.ReasonExpired},
		"expired credentials": {expired, models.ReasonConnCooldown},
		"a model's lockout":   {locked(models.LockModel, time.Hour), models.ReasonModelCooldown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCatalog(1)
				s.Connections["openai-1"].Policy.Expired = resilience.ExpiredPolicy{Retries: 3, Base: 5 * time.Minute}
				r := newReplica(t, "a", nil, s)
				r.fail(t, 1, gpt, c.verdict)
				r.CatalogChanged(uncooled(newCatalog(1)))
				require.Equal(t, c.out, r.out(1, gpt))
			})
		})
	}
}
