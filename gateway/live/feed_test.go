package live_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// published is a connection's row as the feed reads it now.
func published(id models.ConnectionID, version int64, state resilience.Cooldown) catalog.ConnectionState {
	return catalog.ConnectionState{
		Connection: id, Provider: openai, Stamp: models.Stamp{Era: state.Era, Version: version},
		State: resilience.Connection{Cooldown: state}, AppliedThrough: state.Evidence(), Remaining: time.Until(state.Until),
	}
}

func (r *replica) read(rows ...catalog.ConnectionState) {
	r.StatesChanged(&catalog.States{Connections: rows})
}

func (r *replica) resync(rows ...catalog.ConnectionState) {
	r.StatesChanged(&catalog.States{Connections: rows, Complete: true})
}

// seenElsewhere is the state of another replica that was just rate limited.
func seenElsewhere(hint time.Duration) resilience.Cooldown {
	state, _ := resilience.Cooldown{}.Fail(resilience.Failure{
		At: time.Now(), Reason: models.ReasonRateLimited, Status: 429, Hint: hint,
	}, rules.CooldownPolicy(models.ClassAPIKey))
	return state
}

func TestAFailureSeenByOneReplicaKeepsTheOtherAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := alone(t, 2), alone(t, 2)
		a.fail(t, 1, gpt, rateLimited(30*time.Second))
		b.read(published("openai-1", 1, a.offered()[0].Health.Cooldown))
		require.Equal(t, models.ReasonConnCooldown, b.out(1, gpt))
		require.Empty(t, b.offered(), "what was read is not sent back")
		time.Sleep(30 * time.Second)
		require.Empty(t, b.out(1, gpt))
	})
}

func TestADeadlineThatTheDatabasesClockContradictsIsRebuiltFromTheTimeThatRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		row := published("openai-1", 1, seenElsewhere(30*time.Second))
		row.State.Cooldown.Until = row.State.Cooldown.Until.Add(time.Hour) // that clock is an hour ahead, and the read was too slow to tell
		r.read(row)
		require.Equal(t, 30*time.Second, r.left(1, gpt))
	})
}

// The database answered late, or the answer waited here: it is as old as its question.
func TestAReadThatTookLongMakesNothingLonger(t *testing.T) {
	for name, c := range map[string]struct {
		wrong time.Duration // of the clock that wrote the row
		took  time.Duration
	}{
		"a right clock, 5 s":        {0, 5 * time.Second},
		"an hour ahead, 5 s":        {time.Hour, 5 * time.Second},
		"an hour behind, 5 s":       {-time.Hour, 5 * time.Second},
		"an hour ahead, at once":    {time.Hour, 0},
		"3 s ahead, at once":        {3 * time.Second, 0},
		"a right clock, past a day": {0, 25 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, 1)
				asked := time.Now()
				cooling := published("openai-1", 1, seenElsewhere(30*time.Second))
				cooling.State.Cooldown.Until = cooling.State.Cooldown.Until.Add(c.wrong)
				open := catalog.ProviderState{Provider: openai, Stamp: models.Stamp{Version: 1}, Remaining: 30 * time.Second}
				open.State.Opening = resilience.Opening{OpenedAt: asked, Until: asked.Add(30*time.Second + c.wrong), Cycle: 1}
				time.Sleep(c.took)
				r.StatesChanged(&catalog.States{
					Connections: []catalog.ConnectionState{cooling}, Providers: []catalog.ProviderState{open}, Complete: true, Asked: asked,
				})
				require.Equal(t, max(0, 30*time.Second-c.took), r.left(1, gpt))
				require.Equal(t, max(0, 30-int(c.took.Seconds())), r.Report(time.Now()).Providers[0].SecondsLeft)
			})
		})
	}
}

func TestAnOlderRowNeverReplacesANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, long := seenElsewhere(10*time.Second), seenElsewhere(time.Minute)
		r := alone(t, 1)
		r.read(published("openai-1", 5, long))
		r.read(published("openai-1", 4, short))
		require.Equal(t, time.Minute, r.left(1, gpt))
		inNewEra := short
		inNewEra.Era = 1
		r.read(published("openai-1", 1, inNewEra))
		require.Equal(t, 10*time.Second, r.left(1, gpt), "an era outranks every version of the one before")
	})
}

func TestWhatThisReplicaSawStaysUntilAVerdictHasConsideredIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, gpt, rateLimited(time.Minute))
		mine := r.offered()[0].Health.Cooldown
		time.Sleep(time.Second)
		milder := seenElsewhere(10 * time.Second)
		r.read(published("openai-1", 1, milder)) // of later evidence, and without mine: its message is still under way
		require.Equal(t, 59*time.Second, r.left(1, gpt))
		require.False(t, r.connection(1).Durable)

		r.resync(published("openai-1", 1, milder))
		require.Len(t, r.offered(), 2, "and is sent again")
		r.read(published("openai-1", 2, resilience.Join(milder, mine)))
		require.Equal(t, 59*time.Second, r.left(1, gpt))
		require.True(t, r.connection(1).Durable)

		r.read(published("openai-1", 3, resilience.Join(milder, mine).Enter(1, time.Now())))
		require.Empty(t, r.out(1, gpt), "a new era frees it")
	})
}

func TestAVerdictFromAClockThatIsAheadDoesNotHideWhatHappensHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		ahead := published("openai-1", 1, resilience.Cooldown{ClearedAt: time.Now().Add(5 * time.Second)})
		r.read(ahead)
		r.fail(t, 1, gpt, rateLimited(30*time.Second))
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Len(t, r.offered(), 1)
	})
}

func TestAResetElsewhereFreesTheConnectionAndItsModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.fail(t, 1, mini, notFound())
		r.fail(t, 1, gpt, rejectedKey())
		require.Equal(t, models.ReasonExpired, r.out(1, mini))
		r.read(published("openai-1", 2, r.offered()[0].Health.Cooldown.Enter(1, time.Now())))
		require.Empty(t, r.out(1, gpt))
		require.Empty(t, r.out(1, mini))
		require.Equal(t, int64(1), r.connection(1).Era)
	})
}

func TestANewEraInTheRowIsToldToTheWorkflowWhateverWeThoughtOfTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		began := time.Now().Add(-time.Second)
		renewed := func(era int64) resilience.Cooldown { return resilience.Cooldown{}.Enter(era, began) }
		r.resync(published("openai-2", 4, renewed(1)))
		require.Empty(t, r.offered(), "what happened before this replica ran, the workflow finds by itself")
		r.fail(t, 1, gpt, rejectedKey())
		r.read(published("openai-1", 1, r.offered()[0].Health.Cooldown))
		require.Len(t, r.offered(), 1)

		r.read(published("openai-1", 0, renewed(1)))
		offers := r.offered()
		require.Len(t, offers, 2)
		require.Equal(t, renewed(1), offers[1].Health.Cooldown)
		require.Equal(t, began.UTC(), offers[1].At, "it is said when the era began")
		require.True(t, offers[1].Health.Cooldown.Pristine(), "and nothing that would start a workflow")

		r.read(published("openai-2", 0, renewed(2)))
		require.Len(t, r.offered(), 3, "healthy here, and perhaps not to its workflow")
		r.read(published("openai-2", 0, renewed(2)))
		r.resync(published("openai-1", 0, renewed(1)), published("openai-2", 0, renewed(2)))
		require.Len(t, r.offered(), 3, "once")
	})
}

func TestTheWorkflowOfAConnectionThatLeftTheCatalogIsToldThatItsEraIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.resync(published("openai-2", 3, resilience.Cooldown{Era: 4}))
		r.CatalogChanged(newCatalog(1))
		offers := r.offered()
		require.Len(t, offers, 1)
		require.Equal(t, models.ConnectionID("openai-2"), offers[0].Connection)
		require.EqualValues(t, 5, offers[0].Health.Cooldown.Era)
		require.True(t, offers[0].Health.Cooldown.Pristine())
	})
}

func TestACompleteReadForgetsWhatVanishedAndRepeatsWhatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.read(published("openai-1", 1, seenElsewhere(time.Hour)))
		r.fail(t, 2, gpt, rateLimited(time.Hour))
		lost := r.offered()[0]
		r.resync()
		require.Empty(t, r.out(1, gpt))
		offers := r.offered()
		require.Len(t, offers, 2)
		require.True(t, offers[1].Health.Cooldown.Equal(lost.Health.Cooldown))

		r.resync(published("openai-2", 1, lost.Health.Cooldown))
		require.Len(t, r.offered(), 2, "what arrived is not repeated")
		time.Sleep(2 * time.Hour)
		r.resync(published("openai-2", 1, lost.Health.Cooldown))
		require.Len(t, r.offered(), 2)
	})
}

// No worker publishes, for a day: the messages wait for one, and more of them help nobody.
func TestWhatNobodyPublishesIsRepeatedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, gated(newCatalog(1)))
		slow := r.admit(t, 1, gpt)
		r.fail(t, 1, gpt, rateLimited(24*time.Hour))
		slow.Failed(wholeProvider(24*time.Hour), time.Now())
		since := len(r.offered())
		hours := func(n int) (offers int) {
			for range n * 60 {
				time.Sleep(time.Minute)
				r.resync()
			}
			offers, since = len(r.offered())-since, len(r.offered())
			return offers
		}
		require.Equal(t, 2*6, hours(1), "at once, and after 1, 2, 4, 8 and 16 minutes more")
		require.LessOrEqual(t, hours(22), 2*23, "then once an hour")

		state := r.offered()[0].Health.Cooldown
		r.resync(published("openai-1", 1, state))
		since = len(r.offered())
		r.resync()
		require.Len(t, r.offered(), since, "a row that vanished takes along what it said")
	})
}

func TestSomethingNewIsRepeatedAtTheNextReadHoweverLongNobodyPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		slow := r.admit(t, 1, gpt)
		r.fail(t, 1, gpt, rateLimited(time.Hour))
		for range 30 {
			r.resync()
			time.Sleep(time.Minute)
		}
		slow.Failed(rejectedKey(), time.Now())
		before := len(r.offered())
		r.resync()
		require.Len(t, r.offered(), before+1)
		require.Equal(t, models.PhaseExpired, r.offered()[before].Health.Cooldown.Terminal)
		r.resync()
		require.Len(t, r.offered(), before+1)
	})
}

func TestAnOpeningThatWasLostIsRepeatedAndOneThatArrivedIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.wreck(t)
		require.Len(t, r.offered(), 1)
		r.StatesChanged(&catalog.States{Complete: true})
		require.Len(t, r.offered(), 2)
		r.StatesChanged(&catalog.States{Complete: true, Providers: []catalog.ProviderState{publishedOpening(r, 1)}})
		require.Len(t, r.offered(), 2)
	})
}

func TestReplicasThatExchangeTheirRowsInAnyOrderAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := alone(t, 1), alone(t, 1)
		for range 30 { // each sees its own failures and successes
			for _, r := range []*replica{a, b} {
				pass, out := r.Admit(t.Context(), r.conn(1), gpt, false, time.Now())
				if out != nil {
					continue
				}
				time.Sleep(time.Millisecond)
				if rand.IntN(3) == 0 {
					pass.Succeeded(time.Now())
				} else {
					pass.Failed(rateLimited(time.Duration(rand.IntN(20))*time.Second), time.Now())
				}
			}
			time.Sleep(time.Duration(rand.IntN(8)) * time.Second)
		}
		all := append(a.offered(), b.offered()...)
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var workflow resilience.Cooldown
		for _, change := range all {
			workflow = resilience.Join(workflow, change.Health.Cooldown)
		}
		row := published("openai-1", 100, workflow)
		a.read(row)
		b.read(row)
		want := workflow.Standing(time.Now())
		for _, r := range []*replica{a, b} {
			require.Equal(t, want.Phase, r.connection(1).Phase)
			require.Equal(t, want.Level, r.connection(1).Level)
		}
	})
}

func TestTheModelsThatAreOutAreBoundedAndALossIsCounted(t *testing.T) {
	for name, scope := range map[string]models.LockScope{"of this replica": models.LockExact, "of all": models.LockModel} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, 2)
				model := func(i int) models.ModelRef { return models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)} }
				lock := func(i int, wait time.Duration) {
					v := notFound()
					v.Lock, v.Fixed = scope, wait
					r.fail(t, 1, model(i), v)
				}
				for i := range resilience.MaxLockouts {
					lock(i, time.Minute+time.Duration(i)*time.Second)
				}
				require.Zero(t, droppedLockouts(t, r))
				lock(200, time.Hour)
				require.Len(t, r.Report(time.Now()).Lockouts, resilience.MaxLockouts)
				require.Empty(t, r.out(1, model(0)), "the one that would have ended first")
				require.Equal(t, models.ReasonModelCooldown, r.out(1, model(1)))
				require.Equal(t, 1.0, droppedLockouts(t, r))
				lock(201, time.Second)
				require.Empty(t, r.out(1, model(201)), "also when it is the newest")
				require.Equal(t, 2.0, droppedLockouts(t, r))

				time.Sleep(90 * time.Second) // some have ended: no loss
				lock(202, time.Hour)
				require.Equal(t, models.ReasonModelCooldown, r.out(1, model(202)))
				require.Equal(t, 2.0, droppedLockouts(t, r))
				r.fail(t, 2, gpt, notFound())
				require.NotEmpty(t, r.out(2, gpt), "the bound is a connection's own")
			})
		})
	}
}

func droppedLockouts(t *testing.T, r *replica) float64 {
	families, err := r.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "omniroute_target_cooldowns_dropped_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

func TestTheReportAndTheMetricsSayWhatIsOutAndWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 3)
		r.fail(t, 1, gpt, rateLimited(90*time.Second))
		r.fail(t, 2, gpt, rejectedKey())
		r.fail(t, 3, gpt, notFound())
		time.Sleep(500 * time.Millisecond)

		report := r.Report(time.Now())
		require.Equal(t, 90, report.Connections[0].SecondsLeft)
		require.Equal(t, models.ReasonRateLimited, report.Connections[0].Reason)
		require.Equal(t, 429, report.Connections[0].Status)
		require.Equal(t, models.PhaseExpired, report.Connections[1].Phase)
		require.Equal(t, "gpt-x", report.Lockouts[0].Model)
		require.NoError(t, testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP omniroute_breaker_state State of a provider's breaker: 0 closed, 1 degraded, 2 half-open, 3 open.
# TYPE omniroute_breaker_state gauge
omniroute_breaker_state{provider="openai"} 0
# HELP omniroute_connection_cooldowns Connections that are out now, by provider and reason; a terminal state is its own reason.
# TYPE omniroute_connection_cooldowns gauge
omniroute_connection_cooldowns{provider="openai",reason="expired"} 1
omniroute_connection_cooldowns{provider="openai",reason="rate_limit_exceeded"} 1
# HELP omniroute_target_cooldowns Lockouts of models on single connections that run now, by provider and reason.
# TYPE omniroute_target_cooldowns gauge
omniroute_target_cooldowns{provider="openai",reason="not_found"} 1
`), "omniroute_breaker_state", "omniroute_connection_cooldowns", "omniroute_target_cooldowns"))
	})
}

func TestFeedHealthSaysSinceWhenTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.FeedHealth(nil)
		time.Sleep(time.Minute)
		lost := time.Now()
		r.FeedHealth(errors.New("connection refused"))
		time.Sleep(time.Minute)
		r.FeedHealth(errors.New("connection refused"))
		feed := r.Report(time.Now()).Feed
		require.False(t, feed.OK)
		require.Equal(t, "connection refused", feed.Error)
		require.Equal(t, lost, feed.Since)
	})
}

// Everything at once, for the race detector: requests, verdicts, rows, catalogs, reports.
func TestEverythingMayHappenAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everything := func() *catalog.Snapshot {
			s := withFamily(gated(withLockouts(3)), "f", gpt, mini)
			s.Providers[openai].Gate.Failures = 20
			s.Providers[openai].EgressShared = true
			return s
		}
		r := newReplica(t, "a", &row{}, everything())
		verdicts := []func(){ // each is a kind of event
			func() { r.CatalogChanged(everything()) },
			func() { r.read(published("openai-1", rand.Int64N(50), seenElsewhere(time.Second))) },
			func() { r.resync() },
			func() {
				r.StatesChanged(&catalog.States{Providers: []catalog.ProviderState{{Provider: openai, Stamp: models.Stamp{Version: rand.Int64N(50)}}}})
			},
			func() { r.Report(time.Now()) },
		}
		var running sync.WaitGroup
		for worker := range 16 {
			running.Go(func() {
				for i := range 200 {
					time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
					if worker == 0 {
						verdicts[i%len(verdicts)]()
						continue
					}
					pass, _ := r.Admit(t.Context(), r.conn(i%3+1), []models.ModelRef{gpt, mini}[i%2], i%4 < 2, time.Now())
					if pass == nil {
						continue
					}
					time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
					switch i % 8 {
					case 0:
						pass.Failed(rateLimited(time.Second), time.Now())
					case 1:
						pass.Failed(unavailable(), time.Now())
					case 2:
						pass.Abandoned(time.Now())
					case 3:
						pass.Failed(locked(models.LockFamily, time.Second), time.Now())
					case 4:
						pass.Failed(wholeProvider(100*time.Millisecond), time.Now())
					default:
						pass.Succeeded(time.Now())
					}
				}
			})
		}
		running.Wait()
		for _, c := range r.Report(time.Now()).Connections {
			require.Zero(t, c.InFlight)
		}
		require.NotEmpty(t, r.offered())
		for _, change := range r.offered() {
			require.NotEqual(t, contract.EntityKind(""), change.Kind)
		}
	})
}
