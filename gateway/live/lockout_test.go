package live_test

import (
	"fmt"
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
)

// lockouts is the lockout policy of the guide's defaults, switched on.
func lockouts() resilience.LockoutPolicy {
	on := true
	return resilience.Settings{ModelLockout: resilience.LockoutSettings{Enabled: &on}}.LockoutPolicy()
}

// withLockouts is a catalog whose operator has switched model lockouts on.
func withLockouts(connections int) *catalog.Snapshot {
	s := newCatalog(connections)
	for _, c := range s.Connections {
		c.Policy.Lockout = lockouts()
	}
	return s
}

// withFamily makes models of one quota family of these.
func withFamily(s *catalog.Snapshot, name string, refs ...models.ModelRef) *catalog.Snapshot {
	s.Models = map[models.ModelRef]*catalog.ModelView{}
	for _, ref := range refs {
		s.Models[ref] = &catalog.ModelView{Ref: ref, Family: name}
	}
	return s
}

// verdict is what the classifier says of a status that puts out a model or more of them.
func verdict(scope models.LockScope, reason models.Reason, status int) failure.Verdict {
	return failure.Verdict{Reason: reason, Blame: models.BlameUpstream, Scope: models.ScopeModel, Lock: scope, Failover: true, UpstreamStatus: status}
}

// Guide section 3: the status decides which models are out. Only what says something about the
// account or the model is told to the other replicas, unless the operator wants lockouts.
func TestAVerdictLocksOutTheSmallestThingItBlamesAndTellsOnlyWhatOthersNeed(t *testing.T) {
	big := models.ModelRef{Provider: openai, Model: "gpt-big"}
	for name, c := range map[string]struct {
		verdict failure.Verdict
		policy  bool
		out     []models.ModelRef // of gpt, big, which is of its family, and mini, which is of none
		offers  int
		left    time.Duration
	}{
		"a server error":                       {verdict(models.LockExact, models.ReasonServerError, 503), false, []models.ModelRef{gpt}, 0, 3 * time.Second},
		"a server error, with the policy":      {verdict(models.LockExact, models.ReasonServerError, 503), true, []models.ModelRef{gpt}, 1, 2 * time.Minute},
		"a status that the policy leaves out":  {verdict(models.LockExact, models.ReasonServerError, 500), true, []models.ModelRef{gpt}, 0, 3 * time.Second},
		"no answer, which counts as a 502":     {verdict(models.LockExact, models.ReasonTransport, 0), true, []models.ModelRef{gpt}, 1, 2 * time.Minute},
		"an empty answer, also":                {verdict(models.LockExact, models.ReasonEmptyResponse, 200), true, []models.ModelRef{gpt}, 1, 2 * time.Minute},
		"a model that is not there":            {verdict(models.LockModel, models.ReasonNotFound, 404), false, []models.ModelRef{gpt}, 1, 3 * time.Second},
		"a quota of the model's family":        {verdict(models.LockFamily, models.ReasonQuotaExhausted, 429), false, []models.ModelRef{gpt, big}, 1, 3 * time.Second},
		"a quota of the family, with a policy": {verdict(models.LockFamily, models.ReasonRateLimited, 429), true, []models.ModelRef{gpt, big}, 1, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCatalog(2)
				if c.policy {
					s = withLockouts(2)
				}
				r := newReplica(t, "a", nil, withFamily(s, "large", gpt, big))
				r.fail(t, 1, gpt, c.verdict)
				var out []models.ModelRef
				for _, m := range []models.ModelRef{gpt, big, mini} {
					if reason := r.out(1, m); reason != "" {
						require.Equal(t, models.ReasonModelCooldown, reason)
						out = append(out, m)
					}
					require.Empty(t, r.out(2, m), "the other account is another matter")
				}
				require.Equal(t, c.out, out)
				require.Equal(t, c.left, r.left(1, gpt))
				require.Len(t, r.offered(), c.offers)
				require.Equal(t, models.PhaseReady, r.connection(1).Phase)
				require.Zero(t, r.Report(time.Now()).Providers[0].Failures)
			})
		})
	}
}

func TestATimeoutCountsAsA504UnderTheLockoutPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := withLockouts(1)
		s.Connections["openai-1"].Policy.Lockout.Codes = []int{504}
		r := newReplica(t, "a", nil, s)
		r.fail(t, 1, gpt, verdict(models.LockExact, models.ReasonTimeout, 0))
		time.Sleep(time.Second)
		r.fail(t, 1, mini, verdict(models.LockExact, models.ReasonTransport, 0))
		require.Len(t, r.offered(), 1)
		require.Equal(t, 119*time.Second, r.left(1, gpt))
		require.Equal(t, 3*time.Second, r.left(1, mini))
	})
}

func TestAFamilyThatIsOutIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withFamily(newCatalog(1), "codex", gpt, mini))
		r.fail(t, 1, gpt, verdict(models.LockFamily, models.ReasonQuotaExhausted, 429))
		out, _ := r.Check(r.conn(1), mini, false, time.Now())
		require.Equal(t, "quota_exhausted of the model family codex", out.Detail)
		require.Equal(t, models.ReasonQuotaExhausted, out.Because)
		lock := r.Report(time.Now()).Lockouts[0]
		require.Equal(t, live.LockoutReport{
			Connection: "openai-1", Provider: openai, Scope: models.LockFamily, Model: "codex",
			Reason: models.ReasonQuotaExhausted, Status: 429, Level: 1,
			SetAt: time.Now().UTC(), Until: time.Now().UTC().Add(3 * time.Second), SecondsLeft: 3,
		}, lock)
	})
}

// Of several causes the one that lasts longest is the truth about when to come back.
func TestTheExclusionIsTheOneThatLastsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withFamily(newCatalog(2), "f", gpt, mini))
		running := r.admit(t, 1, gpt)
		r.fail(t, 1, gpt, locked(models.LockFamily, 20*time.Minute))
		r.fail(t, 1, models.ModelRef{Provider: openai, Model: "other"}, rateLimited(time.Minute))
		require.Equal(t, models.ReasonModelCooldown, r.out(1, gpt))
		require.Equal(t, 20*time.Minute, r.left(1, gpt))
		require.Equal(t, models.ReasonConnCooldown, r.out(1, models.ModelRef{Provider: openai, Model: "other"}))
		r.wreck2(t)
		require.Equal(t, models.ReasonModelCooldown, r.out(1, gpt))
		running.Failed(rejectedKey(), time.Now())
		require.Equal(t, models.ReasonExpired, r.out(1, gpt), "and what has no end at all outlasts the rest")
	})
}

// wreck2 opens the breaker by what runs on the second connection alone: the first is out.
func (r *replica) wreck2(t *testing.T) {
	t.Helper()
	for i := range r.Snapshot().Providers[openai].Breaker.FailureThreshold {
		r.fail(t, 2, models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, unavailable())
	}
	require.Equal(t, resilience.BreakerOpen, r.breaker())
}

func TestFiftyParallelFailuresOfOneModelCountOnce(t *testing.T) {
	for name, snapshot := range map[string]*catalog.Snapshot{"the replica's own": newCatalog(1), "under the policy": withLockouts(1)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, "a", nil, snapshot)
				for episode := 1; episode <= 3; episode++ {
					var passes []live.Pass
					passes = append(passes, r.admit(t, 1, gpt))
					time.Sleep(time.Second) // for which the first goes alone
					for range 49 {
						passes = append(passes, r.admit(t, 1, gpt))
					}
					time.Sleep(100 * time.Millisecond)
					for _, p := range passes {
						p.Failed(verdict(models.LockExact, models.ReasonServerError, 503), time.Now())
						time.Sleep(time.Millisecond)
					}
					require.Equal(t, episode, r.Report(time.Now()).Lockouts[0].Level)
					time.Sleep(r.left(1, gpt))
				}
			})
		})
	}
}

// Guide section 3: count 5, then successes: 2, 1 and the lockout is gone. What was not made
// under the lockout policy goes at once.
func TestSuccessesEaseALockoutOfThePolicyAndClearAnyOther(t *testing.T) {
	for _, c := range []struct {
		snapshot *catalog.Snapshot
		level    int // of the next failure, after one success
	}{{withLockouts(1), 3}, {newCatalog(1), 1}} {
		synctest.Test(t, func(t *testing.T) {
			r := newReplica(t, "a", nil, c.snapshot)
			for range 5 {
				r.fail(t, 1, gpt, verdict(models.LockModel, models.ReasonNotFound, 404))
				time.Sleep(r.left(1, gpt))
			}
			r.succeed(t, 1, gpt)
			time.Sleep(time.Second)
			r.fail(t, 1, gpt, verdict(models.LockModel, models.ReasonNotFound, 404))
			require.Equal(t, c.level, r.Report(time.Now()).Lockouts[0].Level)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withLockouts(1))
		for range 5 {
			r.fail(t, 1, gpt, verdict(models.LockModel, models.ReasonNotFound, 404))
			time.Sleep(r.left(1, gpt))
		}
		for _, want := range []int{2, 1} {
			r.succeed(t, 1, gpt)
			time.Sleep(time.Second)
			offers := r.offered()
			require.Equal(t, want, offers[len(offers)-1].Health.Lockouts[0].Level)
		}
		r.succeed(t, 1, gpt)
		offers := len(r.offered())
		require.Equal(t, 8, offers, "five failures and three successes")
		time.Sleep(time.Second)
		r.succeed(t, 1, gpt)
		require.Len(t, r.offered(), offers, "a healthy success says nothing")
	})
}

// Guide section 3: recovery does not wait for the timer when a request succeeds meanwhile, such
// as one of a replica that had not heard of the lockout when it sent it.
func TestASuccessSentAfterTheFailureLiftsTheLockoutBeforeItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := alone(t, 1), alone(t, 1)
		a.fail(t, 1, gpt, locked(models.LockModel, 20*time.Minute))
		row := publishedWhole("openai-1", 1, a.offered()[0].Health)
		time.Sleep(time.Second)
		onIt, onAnother := b.admit(t, 1, gpt), b.admit(t, 1, mini)
		b.read(row)
		onAnother.Succeeded(time.Now())
		require.Equal(t, models.ReasonModelCooldown, b.out(1, gpt), "another model's success says nothing of it")
		onIt.Succeeded(time.Now())
		require.Empty(t, b.out(1, gpt))
		a.read(publishedWhole("openai-1", 2, resilience.JoinConnection(row.State, b.offered()[0].Health)))
		require.Empty(t, a.out(1, gpt))
	})
}

func TestAfterALockoutOneRequestGoesFirstOfItsWholeFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withFamily(newCatalog(1), "f", gpt, mini))
		other := models.ModelRef{Provider: openai, Model: "other"}
		r.fail(t, 1, gpt, locked(models.LockFamily, 10*time.Second))
		time.Sleep(10 * time.Second)
		require.Equal(t, routing.RankFull, r.rank(1, mini), "nobody tries it yet")
		trial := r.admit(t, 1, gpt)
		require.Equal(t, models.ReasonModelCooldown, r.out(1, mini))
		time.Sleep(time.Second)
		require.Equal(t, routing.RankTrial, r.rank(1, gpt))
		require.Equal(t, routing.RankTrial, r.rank(1, mini))
		require.Equal(t, routing.RankFull, r.rank(1, other))
		second := r.admit(t, 1, mini) // behind, not out, and not the trial
		second.Abandoned(time.Now())
		require.Equal(t, routing.RankTrial, r.rank(1, mini), "the trial still runs")
		trial.Abandoned(time.Now())
		require.Equal(t, routing.RankFull, r.rank(1, mini), "its place is free")
		r.succeed(t, 1, mini)
		require.Equal(t, routing.RankFull, r.rank(1, gpt))
		require.Len(t, r.offered(), 2)
	})
}

// Without this a model that nobody asks for any more would keep its connection from the fast
// path for ever.
func TestALockoutThatEndedLongAgoIsForgotten(t *testing.T) {
	for name, lock := range map[string]models.LockScope{"of this replica": models.LockExact, "of all": models.LockModel} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, 1)
				r.fail(t, 1, gpt, locked(lock, time.Minute))
				var rows []catalog.ConnectionState
				for _, change := range r.offered() {
					rows = append(rows, publishedWhole("openai-1", 1, change.Health))
				}
				time.Sleep(time.Hour)
				r.resync(rows...)
				trial := r.admit(t, 1, gpt)
				require.Equal(t, models.ReasonModelCooldown, r.out(1, gpt), "within the hour the next request is a trial")
				trial.Abandoned(time.Now())
				time.Sleep(2 * time.Minute)
				r.resync(rows...)
				require.Len(t, r.offered(), len(rows))
				running := r.admit(t, 1, gpt)
				require.Equal(t, routing.RankFull, r.rank(1, gpt), "after it, one as any other")
				running.Abandoned(time.Now())
			})
		})
	}
}

func TestALockoutOfAnotherReplicaKeepsThisOneAwayToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newReplica(t, "a", nil, withLockouts(1)), newReplica(t, "b", nil, withLockouts(1))
		a.fail(t, 1, gpt, verdict(models.LockExact, models.ReasonServerError, 503))
		b.read(publishedWhole("openai-1", 1, a.offered()[0].Health))
		require.Equal(t, models.ReasonModelCooldown, b.out(1, gpt))
		require.Empty(t, b.out(1, mini))
		require.True(t, b.Report(time.Now()).Lockouts[0].Durable)
		require.False(t, a.Report(time.Now()).Lockouts[0].Durable, "its own row is still under way")
		require.Empty(t, b.offered())
		time.Sleep(2 * time.Minute)
		b.succeed(t, 1, gpt)
		require.Len(t, b.offered(), 1)
	})
}

// publishedWhole is a connection's row as the feed reads it now.
func publishedWhole(id models.ConnectionID, version int64, state resilience.Connection) catalog.ConnectionState {
	row := published(id, version, state.Cooldown)
	row.State, row.AppliedThrough = state, state.Evidence()
	return row
}

func TestAnOfferIsOnlyWhatTheRowDoesNotSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, locked(models.LockModel, 20*time.Minute))
		first := r.offered()[0].Health
		r.read(publishedWhole("openai-1", 1, first))
		r.fail(t, 1, mini, locked(models.LockModel, 20*time.Minute))
		second := r.offered()[1].Health
		require.Len(t, second.Lockouts, 1)
		require.Equal(t, "gpt-mini", second.Lockouts[0].Name)

		r.resync(publishedWhole("openai-1", 1, first))
		require.Len(t, r.offered(), 3, "and it is repeated while the row does not have it")
		require.True(t, r.offered()[2].Health.Equal(second))
		r.resync(publishedWhole("openai-1", 2, resilience.JoinConnection(first, second)))
		require.Len(t, r.offered(), 3)
		require.Len(t, r.Report(time.Now()).Lockouts, 2)
	})
}

func TestEnablingAModelEndsItsLockoutsHoweverTheyAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, locked(models.LockExact, 20*time.Minute)) // this replica's own
		r.fail(t, 1, mini, locked(models.LockExact, 20*time.Minute))
		slow := r.admit(t, 1, models.ModelRef{Provider: openai, Model: "other"})
		slow.Abandoned(time.Now())
		time.Sleep(time.Second)
		enabled, _ := resilience.Connection{}.Enable(resilience.KeysOf("gpt-x", ""), time.Now())
		r.read(publishedWhole("openai-1", 1, enabled))
		require.Empty(t, r.out(1, gpt))
		require.Equal(t, models.ReasonModelCooldown, r.out(1, mini))
		require.Equal(t, routing.RankFull, r.rank(1, gpt))

		time.Sleep(time.Second)
		r.fail(t, 1, gpt, verdict(models.LockExact, models.ReasonServerError, 503))
		require.Equal(t, 3*time.Second, r.left(1, gpt), "the next failure begins anew")
		require.Equal(t, 1, r.Report(time.Now()).Lockouts[1].Level)
	})
}

func TestANewEraEndsWhatIsOfThisReplicaOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(1)))
		r.fail(t, 1, gpt, locked(models.LockExact, 20*time.Minute))
		r.fail(t, 1, mini, unavailable())
		require.NotNil(t, r.connection(1).Gate)
		r.read(publishedWhole("openai-1", 1, resilience.Connection{}.Reset(time.Now())))
		require.Empty(t, r.out(1, gpt))
		require.Nil(t, r.connection(1).Gate)
		require.Empty(t, r.Report(time.Now()).Lockouts)

		r.fail(t, 1, gpt, locked(models.LockExact, 20*time.Minute))
		require.NotEmpty(t, r.out(1, gpt))
		r.resync() // the row has vanished, and its era with it
		require.Empty(t, r.out(1, gpt))
	})
}

func TestATerminalConnectionTakesNoLockouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		running := r.admit(t, 1, gpt)
		r.fail(t, 1, mini, rejectedKey())
		running.Failed(locked(models.LockModel, 20*time.Minute), time.Now())
		require.Empty(t, r.Report(time.Now()).Lockouts)
		require.Len(t, r.offered(), 1)
	})
}

// The row may be here before the catalog with the new token: what the old one is refused for is
// known to be over.
func TestARefusedTokenThatTheRowKnowsToHaveBeenRenewedPutsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCatalog(1)
		s.Connections["openai-1"].TokenGeneration = 3
		s.Connections["openai-1"].Policy.Expired = resilience.ExpiredPolicy{Retries: 3, Base: 5 * time.Minute}
		r := newReplica(t, "a", nil, s)
		expired := failure.Verdict{Reason: models.ReasonExpired, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 401}
		r.read(publishedWhole("openai-1", 1, resilience.Connection{Renewed: 4}))

		r.fail(t, 1, gpt, expired)
		require.Empty(t, r.out(1, gpt))
		require.Empty(t, r.offered())

		s.Connections["openai-1"].TokenGeneration = 4
		r.CatalogChanged(s)
		r.fail(t, 1, gpt, expired)
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Equal(t, int64(4), r.offered()[0].Health.Refused)
	})
}

// A token that was refreshed meanwhile is of the same account: what the account itself has done
// counts, what the old token has caused does not.
func TestAnAttemptWithTheTokenBeforeARefreshStillTellsOfItsAccount(t *testing.T) {
	token := func(generation int64) *catalog.Snapshot {
		s := withKey(fmt.Sprint("token ", generation))
		c := s.Connections["openai-1"]
		c.TokenGeneration = generation
		c.Policy.Expired = resilience.ExpiredPolicy{Retries: 3, Base: 5 * time.Minute}
		return s
	}
	expired := failure.Verdict{Reason: models.ReasonExpired, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 401}
	for name, c := range map[string]struct {
		verdict failure.Verdict
		after   int64
		counts  bool
	}{
		"a rate limit":                      {rateLimited(time.Minute), 2, true},
		"an expired token":                  {expired, 2, false},
		"an expired token, not refreshed":   {expired, 1, true},
		"a rate limit of replaced tokens":   {rateLimited(time.Minute), 0, false},
		"a quota of the model":              {locked(models.LockModel, 20*time.Minute), 2, true},
		"a rejected token that was renewed": {rejectedKey(), 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, "a", nil, token(1))
				slow := r.admit(t, 1, gpt)
				r.CatalogChanged(token(c.after))
				slow.Failed(c.verdict, time.Now())
				require.Equal(t, c.counts, r.out(1, gpt) != "")
			})
		})
	}
}
