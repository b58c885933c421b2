package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// told is what a replica reads of the rows that others have offered, by the database's clock,
// which is the bubble's.
func (r *replica) told(states *catalog.States) {
	states.Now, states.Skew = time.Now(), -r.ahead
	r.StatesChanged(states)
}

func TestACooldownIsAsLongOnReplicasWhoseClocksDifferByMinutes(t *testing.T) {
	for _, clocks := range [][2]time.Duration{
		{time.Minute, -time.Minute},
		{-time.Minute, time.Minute},
		{0, time.Minute},
		{-time.Minute, 0},
		{time.Hour, -time.Hour},
		{300 * time.Millisecond, -300 * time.Millisecond}, // as good as none
	} {
		synctest.Test(t, func(t *testing.T) {
			a := skewedReplica(t, "a", clocks[0], nil, newCatalog(2))
			b := skewedReplica(t, "b", clocks[1], nil, newCatalog(2))
			slack := time.Duration(0)
			if clocks[0].Abs() < time.Second && clocks[1].Abs() < time.Second {
				slack = (clocks[0] - clocks[1]).Abs() + time.Millisecond
			}
			for _, r := range []*replica{a, b} {
				r.told(&catalog.States{Complete: true})
			}
			a.fail(t, 1, gpt, rateLimited(30*time.Second))
			offered := a.offered()[0].Health.Cooldown
			require.InDelta(t, 30, time.Until(offered.Until).Seconds(), slack.Seconds(), "what is offered is by the shared clock")
			exchange := func(version int64) {
				for _, r := range []*replica{a, b} {
					r.told(&catalog.States{Connections: []catalog.ConnectionState{published("openai-1", version, offered)}, Complete: true})
				}
			}
			exchange(1)
			for left := 30 * time.Second; left > slack; left -= time.Second {
				for _, r := range []*replica{a, b} {
					require.InDelta(t, left.Seconds(), r.left(1, gpt).Seconds(), slack.Seconds(), "clocks %v", clocks)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(slack)
			require.Empty(t, a.out(1, gpt))
			require.Empty(t, b.out(1, gpt))
			require.Empty(t, b.offered(), "what was read is not sent back")
			require.Len(t, a.offered(), 1)

			b.succeed(t, 1, gpt) // the trial, on the other replica
			offered = resilience.Join(offered, b.offered()[0].Health.Cooldown)
			exchange(2)
			require.Equal(t, models.PhaseReady, offered.Standing(time.Now()).Phase)
			for _, r := range []*replica{a, b} {
				require.False(t, r.connection(1).Trial, "the success is newer than the failure on every clock: %v", clocks)
			}
		})
	}
}

func TestAnOpeningIsAsLongOnReplicasWhoseClocksDifferByMinutes(t *testing.T) {
	for _, ahead := range []time.Duration{time.Minute, -time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			shared := &row{}
			a := skewedReplica(t, "a", ahead, shared, newCatalog(2))
			b := skewedReplica(t, "b", -ahead, shared, newCatalog(2))
			for _, r := range []*replica{a, b} {
				r.told(&catalog.States{Complete: true})
			}
			a.wreck(t)
			for _, r := range []*replica{a, b} {
				r.told(&catalog.States{Providers: []catalog.ProviderState{publishedOpening(a, 1)}, Complete: true})
				require.Equal(t, 30*time.Second, r.left(1, mini))
			}
			require.Len(t, a.offered(), 1, "the row has it")
			time.Sleep(30*time.Second - time.Millisecond)
			require.Equal(t, resilience.BreakerOpen, a.breaker())
			require.Equal(t, resilience.BreakerOpen, b.breaker())
			time.Sleep(time.Millisecond)
			b.succeed(t, 1, mini)
			require.Equal(t, time.Now().UTC(), shared.asked[len(shared.asked)-1].Until, "the probe is claimed by the shared clock")
			a.told(&catalog.States{Providers: []catalog.ProviderState{publishedOpening(b, 2)}})
			require.Equal(t, resilience.BreakerClosed, a.breaker())
		})
	}
}

func TestTheOffsetIsMovedOnlyWhenItIsClearlyWrong(t *testing.T) {
	for _, c := range []struct {
		measured []time.Duration // one after the other
		used     time.Duration
	}{
		{[]time.Duration{999 * time.Millisecond}, 0},
		{[]time.Duration{time.Second}, time.Second},
		{[]time.Duration{-time.Minute}, -time.Minute},
		{[]time.Duration{time.Minute, time.Minute + 499*time.Millisecond}, time.Minute},
		{[]time.Duration{time.Minute, time.Minute + 500*time.Millisecond}, time.Minute + 500*time.Millisecond},
		{[]time.Duration{time.Second, 900 * time.Millisecond}, time.Second},
		{[]time.Duration{time.Second, 400 * time.Millisecond}, 0},
		{[]time.Duration{time.Minute, 0}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := alone(t, 1)
			for _, skew := range c.measured {
				r.StatesChanged(&catalog.States{Skew: skew})
			}
			r.fail(t, 1, gpt, rateLimited(time.Minute))
			require.Equal(t, time.Minute+c.used, time.Until(r.offered()[0].Health.Cooldown.Until), "%v", c.measured)
		})
	}
}

// NTP sets a clock that was wrong: what ran is out for as long as before, here and elsewhere.
func TestAClockThatIsSetChangesNoWaitAndTellsNobodyAnother(t *testing.T) {
	for name, clock := range map[string][2]time.Duration{
		"an hour ahead, set back":   {time.Hour, 0},
		"an hour behind, set ahead": {-time.Hour, 0},
		"right, set wrong":          {0, time.Hour},
	} {
		for _, published := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := skewedReplica(t, "a", clock[0], nil, gated(newCatalog(3)))
					a.told(&catalog.States{Complete: true})
					a.fail(t, 1, gpt, rateLimited(time.Minute))
					a.fail(t, 2, gpt, locked(models.LockExact, time.Minute)) // this replica's own
					a.fail(t, 2, mini, unavailable())                        // and so is the backoff of the gate
					health := a.offered()[0].Health
					resync := func() {
						states := &catalog.States{Complete: true}
						if published {
							states.Connections = []catalog.ConnectionState{publishedWhole("openai-1", 1, health)}
						}
						a.told(states)
					}
					resync()
					require.Equal(t, time.Minute, a.left(1, gpt))

					a.ahead = clock[1]
					time.Sleep(2 * time.Second)
					resync()
					for _, i := range []int{1, 2} {
						require.InDelta(t, 58, a.left(i, gpt).Seconds(), 0.01)
					}
					require.Equal(t, 3, a.connection(2).Gate.SecondsLeft)
					for _, change := range a.offered() {
						require.InDelta(t, 58, time.Until(change.Health.Cooldown.Until).Seconds(), 0.01)
					}
					time.Sleep(58 * time.Second)
					require.Empty(t, a.out(1, gpt))
					require.Empty(t, a.out(2, gpt))
				})
			})
		}
	}
}

func TestAClockThatIsSetMovesTheEndOfAnOpeningAndOfAHoldAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := skewedReplica(t, "a", time.Hour, nil, newCatalog(2))
		a.told(&catalog.States{Complete: true})
		held := a.admit(t, 1, gpt)
		a.wreck(t)
		a.ahead = 0
		time.Sleep(time.Second)
		a.told(&catalog.States{Complete: true})
		require.Equal(t, 29*time.Second, a.left(1, mini))
		held.Failed(wholeProvider(time.Minute), a.now())
		require.Equal(t, time.Minute, a.left(1, mini))
		a.ahead = -time.Hour
		a.told(&catalog.States{Complete: true})
		require.Equal(t, time.Minute, a.left(1, mini))
		time.Sleep(time.Minute)
		a.succeed(t, 1, mini)
		require.Equal(t, resilience.BreakerClosed, a.breaker())
		require.Equal(t, time.Now().UTC(), a.offered()[len(a.offered())-1].At)
	})
}

// What fails between the step and the next read of the rows is told by the right clock, too.
func TestAFailureRightAfterAClockWasSetIsAsLongAsItSays(t *testing.T) {
	for _, clock := range [][2]time.Duration{{time.Hour, 0}, {-time.Hour, 0}} {
		synctest.Test(t, func(t *testing.T) {
			a := skewedReplica(t, "a", clock[0], nil, newCatalog(2))
			a.told(&catalog.States{Complete: true})
			running := a.admit(t, 1, gpt)
			a.ahead = clock[1]
			running.Failed(rateLimited(time.Minute), a.now())
			require.InDelta(t, 60, time.Until(a.offered()[0].Health.Cooldown.Until).Seconds(), 0.01)
			a.told(&catalog.States{Complete: true})
			require.InDelta(t, 60, a.left(1, gpt).Seconds(), 0.01)
		})
	}
}

func TestASuccessSentBeforeTheClockWasSetBackMakesNobodyDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := skewedReplica(t, "a", time.Hour, nil, newCatalog(1))
		a.told(&catalog.States{Complete: true})
		a.fail(t, 1, gpt, rateLimited(time.Second))
		time.Sleep(2 * time.Second)
		trial := a.admit(t, 1, gpt)
		a.ahead = 0
		time.Sleep(time.Second)
		trial.Succeeded(a.now())
		a.fail(t, 1, gpt, rateLimited(0))
		require.NotEmpty(t, a.out(1, gpt), "what fails after the success counts")
	})
}

// The database moved to a host whose clock is wrong, and back: nothing that runs here moves.
func TestTheDatabasesClockThatIsSetLeavesWhatRunsHereAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.StatesChanged(&catalog.States{Complete: true})
		r.StatesChanged(&catalog.States{Complete: true, Skew: time.Hour})
		r.fail(t, 1, gpt, rateLimited(time.Minute))
		r.StatesChanged(&catalog.States{Complete: true})
		require.Equal(t, time.Minute, r.left(1, gpt))
	})
}

// The reset was made by a clock that is ahead of this one and of the database's.
func TestWhatAProviderMeetsAfterAResetByAClockThatIsAheadCounts(t *testing.T) {
	reset := func(t *testing.T, ahead time.Duration) *replica {
		s := gated(newCatalog(2))
		s.Providers[openai].Gate.Failures = 3
		r := newReplica(t, "a", nil, s)
		state := resilience.Provider{}.Reset(time.Now().Add(ahead))
		r.told(&catalog.States{Complete: true, Providers: []catalog.ProviderState{{Provider: openai, Stamp: models.Stamp{Era: 1, Version: 1}, State: state}}})
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		r := reset(t, 20*time.Second)
		r.fail(t, 1, gpt, wholeProvider(time.Hour))
		require.Equal(t, models.ReasonProviderCooldown, r.out(2, gpt))
		require.Len(t, r.offered(), 1)
		time.Sleep(r.left(2, gpt))
		r.succeed(t, 1, gpt)
		require.True(t, r.offered()[1].Breaker.Settled(), "and so does the success after it")
	})
	synctest.Test(t, func(t *testing.T) {
		r := reset(t, 20*time.Second)
		r.failing(t, 1, 3)
		require.True(t, r.gate())
		r.succeed(t, 2, gpt)
		require.False(t, r.gate())
	})
	synctest.Test(t, func(t *testing.T) {
		r := reset(t, 2*time.Minute) // too far ahead to be followed
		r.failing(t, 1, 3)
		require.False(t, r.gate())
		time.Sleep(2 * time.Minute)
		r.failing(t, 1, 1)
		require.True(t, r.gate(), "what was counted meanwhile was not forgotten")
	})
}
