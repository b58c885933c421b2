package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

var apiKeyBreaker = Settings{}.BreakerPolicy(models.ClassAPIKey) // opens at 12, degraded at 7, 30 s

const (
	c1 models.ConnectionID = "c1"
	c2 models.ConnectionID = "c2"
)

// unavailable is a 503 through a connection, of two usable ones.
func unavailable(conn models.ConnectionID) Result {
	return Result{Outcome: Failed, Connection: conn, UsableConnections: 2, Reason: models.ReasonServerError, Status: 503}
}

func good(conn models.ConnectionID) Result {
	return Result{Outcome: Succeeded, Connection: conn, UsableConnections: 2}
}

// send admits one attempt and reports its result at once.
func send(t *testing.T, b Breaker, r Result, now time.Time) (Breaker, bool) {
	t.Helper()
	b, ticket, ok, _ := b.Admit(apiKeyBreaker, now)
	require.True(t, ok)
	return b.Report(ticket, r, apiKeyBreaker, now)
}

// failing reports n failures at one moment, by turns through both connections.
func failing(t *testing.T, b Breaker, n int, now time.Time) Breaker {
	t.Helper()
	for i := range n {
		b, _ = send(t, b, unavailable([]models.ConnectionID{c1, c2}[i%2]), now)
	}
	return b
}

// opened is a breaker that opened at noon.
func opened(t *testing.T) Breaker {
	t.Helper()
	b := failing(t, Breaker{}, 12, noon)
	require.Equal(t, BreakerOpen, b.State(noon))
	return b
}

func TestTheBreakerDegradesAtSevenAndOpensAtTwelve(t *testing.T) {
	b := failing(t, Breaker{}, 6, noon)
	require.Equal(t, BreakerClosed, b.State(noon))
	b = failing(t, b, 1, noon)
	require.Equal(t, BreakerDegraded, b.State(noon))
	b = failing(t, b, 4, noon)
	require.Equal(t, BreakerDegraded, b.State(noon))

	b, changed := send(t, b, unavailable(c1), noon)
	require.True(t, changed)
	require.Equal(t, BreakerOpen, b.State(noon))
	require.Equal(t, Opening{
		OpenedAt: noon, Until: after(30 * time.Second), Cycle: 1, Reason: models.ReasonServerError, Status: 503, Failures: 12,
	}, b.Opening())
}

// What an operator sees of a breaker, failure by failure.
func TestABreakersEndCountsFromTheFailureThatOpenedItAndMovesWithNoLaterOne(t *testing.T) {
	for _, c := range []struct {
		name      string
		policy    BreakerPolicy
		failures  int // one a second
		remaining time.Duration
	}{
		{"eleven of twelve", apiKeyBreaker, 11, 0},
		{"the twelfth", apiKeyBreaker, 12, 30 * time.Second},
		{"seven of eight for oauth", Settings{}.BreakerPolicy(models.ClassOAuth), 7, 0},
		{"the eighth", Settings{}.BreakerPolicy(models.ClassOAuth), 8, time.Minute},
		{"one of two for a local one", Settings{}.BreakerPolicy(models.ClassLocal), 1, 0},
		{"the second", Settings{}.BreakerPolicy(models.ClassLocal), 2, 15 * time.Second},
		{"a threshold of one", BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Minute, Window: time.Hour}, 1, time.Minute},
		{"one of nineteen", BreakerPolicy{FailureThreshold: 19, ResetTimeout: 75 * time.Second, Window: time.Hour}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b Breaker
			now := noon
			tickets := make([]Ticket, c.failures+1)
			for i := range tickets {
				b, tickets[i], _, _ = b.Admit(c.policy, noon)
			}
			for i := range c.failures {
				now = after(time.Duration(i) * time.Second)
				b, _ = b.Report(tickets[i], Result{Outcome: Failed, Connection: c1, UsableConnections: 1}, c.policy, now)
			}
			if c.remaining == 0 {
				require.NotEqual(t, BreakerOpen, b.State(now))
				return
			}
			require.Equal(t, c.remaining, b.Opening().Until.Sub(now))
			b, changed := b.Report(tickets[c.failures], unavailable("c3"), c.policy, now.Add(10*time.Second))
			require.False(t, changed)
			require.Equal(t, c.remaining-10*time.Second, b.Opening().Until.Sub(now.Add(10*time.Second)))
			require.Equal(t, BreakerHalfOpen, b.State(now.Add(c.remaining)))
		})
	}
}

func TestDegradedIsLeftAtHalfItsThreshold(t *testing.T) {
	b := failing(t, Breaker{}, 7, noon)
	for want := 6; want >= 4; want-- {
		b, _ = send(t, b, good(c1), noon)
		require.Equal(t, want, b.Failures(noon))
		require.Equal(t, BreakerDegraded, b.State(noon), "at %d", want)
	}
	b, _ = send(t, b, good(c1), noon)
	require.Equal(t, BreakerClosed, b.State(noon), "at 3")
	b = failing(t, b, 3, noon)
	require.Equal(t, BreakerClosed, b.State(noon), "back at 6, and not degraded before 7")
}

func TestDegradedIsLeftAtHalfItsThresholdAlsoAsItsFailuresAge(t *testing.T) {
	b := failing(t, Breaker{}, 4, noon)
	b = failing(t, b, 3, after(time.Minute))
	end := after(apiKeyBreaker.Window)
	require.Equal(t, BreakerDegraded, b.State(end.Add(-1)))
	require.Equal(t, 3, b.Failures(end))
	require.Equal(t, BreakerClosed, b.State(end))
}

func TestAResetOfABreakerThatNeverOpenedForgetsItsFailures(t *testing.T) {
	b, ticket, _, _ := failing(t, Breaker{}, 11, noon).Admit(apiKeyBreaker, noon)
	b = b.Merge(Opening{}.Enter(1, after(time.Second)))
	require.True(t, b.Quiet())
	b, _ = b.Report(ticket, unavailable(c1), apiKeyBreaker, after(2*time.Second))
	require.True(t, b.Quiet(), "what was sent before it is late")
}

func TestNewsOfTheSameOpeningTakeNoProbesPlace(t *testing.T) {
	b, probe, _, _ := opened(t).Admit(apiKeyBreaker, after(30*time.Second))
	more := b.Opening()
	more.Failures++
	b = b.Merge(more)
	require.Equal(t, 13, b.Opening().Failures)
	b, changed := b.Report(probe, good(c1), apiKeyBreaker, after(31*time.Second))
	require.True(t, changed)
	require.Equal(t, BreakerClosed, b.State(after(31*time.Second)))
}

func TestASuccessOutweighsTheOldestFailureUntilTheBreakerIsQuiet(t *testing.T) {
	b := failing(t, Breaker{}, 2, noon)
	require.False(t, b.Quiet())
	b, changed := send(t, b, good(c1), noon)
	require.False(t, changed)
	require.Equal(t, 1, b.Failures(noon))
	b, _ = send(t, b, good(c1), noon)
	require.True(t, b.Quiet())
	b, _ = send(t, b, good(c1), noon)
	require.True(t, b.Quiet())
	aged, _ := send(t, failing(t, Breaker{}, 5, noon), good(c1), after(apiKeyBreaker.Window))
	require.True(t, aged.Quiet(), "also when all of them have aged")
}

func TestFailuresOutsideTheWindowDoNotCount(t *testing.T) {
	b := failing(t, Breaker{}, 11, noon)
	end := after(apiKeyBreaker.Window)
	require.Equal(t, BreakerDegraded, b.State(end.Add(-1)))
	require.Equal(t, BreakerClosed, b.State(end), "degraded lapses with its failures, without an event")
	b = failing(t, b, 6, end)
	require.Equal(t, 6, b.Failures(end))
	require.Equal(t, BreakerClosed, b.State(end))
	b = failing(t, b, 6, end)
	require.Equal(t, BreakerOpen, b.State(end))
}

// A trickle of one failure in 12 seconds never has twelve of them in 120 seconds.
func TestASlowTrickleNeverOpens(t *testing.T) {
	var b Breaker
	now := noon
	for i := range 1000 {
		b, _ = send(t, b, unavailable([]models.ConnectionID{c1, c2}[i%2]), now)
		require.NotEqual(t, BreakerOpen, b.State(now))
		now = now.Add(12 * time.Second)
	}
	require.LessOrEqual(t, len(b.failures), apiKeyBreaker.FailureThreshold)
}

// Design decision 2: one bad account cannot take the others down.
func TestFailuresOfOneConnectionDoNotOpenWhileAnotherIsUsable(t *testing.T) {
	var b Breaker
	for i := range 500 {
		b, _ = send(t, b, unavailable(c1), noon)
		require.Len(t, b.failures, min(i+1, apiKeyBreaker.FailureThreshold), "the window is bounded")
	}
	require.Equal(t, BreakerDegraded, b.State(noon))

	t.Run("until one comes from another", func(t *testing.T) {
		b, changed := send(t, b, unavailable(c2), noon)
		require.True(t, changed)
		require.Equal(t, BreakerOpen, b.State(noon))
	})
	t.Run("or it is the only usable one", func(t *testing.T) {
		r := unavailable(c1)
		r.UsableConnections = 1
		b, changed := send(t, b, r, noon)
		require.True(t, changed)
		require.Equal(t, BreakerOpen, b.State(noon))
	})
}

func TestFiftyParallelFailuresOpenOnceAndTheEndDoesNotMove(t *testing.T) {
	var b Breaker
	tickets := make([]Ticket, 50)
	for i := range tickets {
		var ok bool
		b, tickets[i], ok, _ = b.Admit(apiKeyBreaker, noon)
		require.True(t, ok)
	}
	openings := 0
	for i, ticket := range tickets {
		var changed bool
		seen := after(time.Duration(i) * 100 * time.Millisecond)
		if b, changed = b.Report(ticket, unavailable([]models.ConnectionID{c1, c2}[i%2]), apiKeyBreaker, seen); changed {
			openings++
		}
	}
	require.Equal(t, 1, openings)
	require.Equal(t, after(1100*time.Millisecond+30*time.Second), b.Opening().Until)
	require.Equal(t, 1, b.Opening().Cycle)

	t.Run("and a late success does not close it", func(t *testing.T) {
		b, changed := b.Report(tickets[0], good(c1), apiKeyBreaker, after(10*time.Second))
		require.False(t, changed)
		require.Equal(t, BreakerOpen, b.State(after(10*time.Second)))
	})
}

func TestWhatIsNoFailureOfTheProviderIsNotCounted(t *testing.T) {
	var b Breaker
	for range 1000 {
		var changed bool
		b, changed = send(t, b, Result{Outcome: Ignored, Connection: c1, UsableConnections: 2}, noon)
		require.False(t, changed)
	}
	require.True(t, b.Quiet())
}

func TestOpenRefusesUntilItsEndAndThenAdmitsOneProbe(t *testing.T) {
	b := opened(t)
	_, _, ok, retryAt := b.Admit(apiKeyBreaker, after(30*time.Second-1))
	require.False(t, ok)
	require.Equal(t, after(30*time.Second), retryAt)

	now := after(30 * time.Second)
	require.Equal(t, BreakerHalfOpen, b.State(now))
	b, probe, ok, _ := b.Admit(apiKeyBreaker, now)
	require.True(t, ok)
	require.True(t, probe.Probe)
	for range 99 {
		var again bool
		b, _, again, retryAt = b.Admit(apiKeyBreaker, now.Add(time.Second))
		require.False(t, again)
		require.Equal(t, after(60*time.Second), retryAt, "when the probe's place is free again")
	}

	t.Run("whose success closes and clears", func(t *testing.T) {
		b, changed := b.Report(probe, good(c1), apiKeyBreaker, now.Add(time.Second))
		require.True(t, changed)
		require.Equal(t, BreakerClosed, b.State(now))
		require.True(t, b.Quiet())
		require.Equal(t, now, b.Opening().ClosedAt)
		_, ticket, ok, _ := b.Admit(apiKeyBreaker, now)
		require.True(t, ok)
		require.False(t, ticket.Probe)
	})
	t.Run("whose failure opens again in the next cycle", func(t *testing.T) {
		b, changed := b.Report(probe, unavailable(c1), apiKeyBreaker, now.Add(time.Second))
		require.True(t, changed)
		require.Equal(t, BreakerOpen, b.State(now.Add(time.Second)))
		require.Equal(t, 2, b.Opening().Cycle)
		require.Equal(t, now.Add(31*time.Second), b.Opening().Until)
	})
	t.Run("whose place is free at once when it says nothing", func(t *testing.T) {
		b, changed := b.Report(probe, Result{Outcome: Ignored}, apiKeyBreaker, now)
		require.False(t, changed)
		_, next, ok, _ := b.Admit(apiKeyBreaker, now)
		require.True(t, ok)
		require.True(t, next.Probe)
		require.NotEqual(t, probe.Generation, next.Generation)
	})
}

// A half-open phase without an end would leave the breaker rejecting for ever.
func TestAHungProbeLosesItsPlaceAndItsLateResultChangesNothing(t *testing.T) {
	b := opened(t)
	b, hung, _, _ := b.Admit(apiKeyBreaker, after(30*time.Second))
	b, probe, ok, _ := b.Admit(apiKeyBreaker, after(60*time.Second))
	require.True(t, ok)
	require.True(t, probe.Probe)
	_, _, ok, _ = b.Admit(apiKeyBreaker, after(60*time.Second))
	require.False(t, ok, "exactly one new probe")

	for _, r := range []Result{good(c1), unavailable(c1), {Outcome: Ignored}} {
		next, changed := b.Report(hung, r, apiKeyBreaker, after(61*time.Second))
		require.False(t, changed)
		require.Equal(t, b, next)
	}
	b, changed := b.Report(probe, good(c2), apiKeyBreaker, after(62*time.Second))
	require.True(t, changed)
	require.Equal(t, BreakerClosed, b.State(after(62*time.Second)))
}

// A provider whose answers take longer than the probe's place is kept can still close its
// breaker, when nobody has asked meanwhile.
func TestASlowProbeCountsWhileNoOtherHasTakenItsPlace(t *testing.T) {
	b := opened(t)
	b, slow, _, _ := b.Admit(apiKeyBreaker, after(30*time.Second))
	b, changed := b.Report(slow, good(c1), apiKeyBreaker, after(90*time.Second))
	require.True(t, changed)
	require.Equal(t, BreakerClosed, b.State(after(90*time.Second)))
}

// The reset timeout, doubled past the escalation count, capped by the multiplier (guide section 1).
func TestTheOpenTimeEscalatesAfterSomeCyclesUpToItsMultiplier(t *testing.T) {
	for _, c := range []struct {
		class models.Class
		want  []int // seconds in cycle 1, 2, ...
	}{
		{models.ClassAPIKey, []int{30, 30, 30, 60, 120, 120, 120}},
		{models.ClassOAuth, []int{60, 60, 120, 240, 480, 480}},
		{models.ClassLocal, []int{15, 15, 15, 30, 60, 120, 240, 240}},
	} {
		t.Run(string(c.class), func(t *testing.T) {
			p := Settings{}.BreakerPolicy(c.class)
			var b Breaker
			now := noon
			for i := range p.FailureThreshold {
				_, ticket, _, _ := b.Admit(p, now)
				b, _ = b.Report(ticket, unavailable([]models.ConnectionID{c1, c2}[i%2]), p, now)
			}
			for i, want := range c.want {
				require.Equal(t, i+1, b.Opening().Cycle)
				require.Equal(t, time.Duration(want)*time.Second, b.Opening().Until.Sub(now))
				now = b.Opening().Until
				next, probe, ok, _ := b.Admit(p, now)
				require.True(t, ok)
				b, _ = next.Report(probe, unavailable(c1), p, now)
			}
		})
	}
}

func TestAnOpeningFromAnotherReplicaOpensThisOne(t *testing.T) {
	elsewhere := opened(t)
	here := failing(t, Breaker{}, 5, noon)
	here, ticket, _, _ := here.Admit(apiKeyBreaker, noon)
	here = here.Merge(elsewhere.Opening())
	require.Equal(t, BreakerOpen, here.State(after(time.Second)))
	require.Zero(t, here.Failures(after(time.Second)))

	_, changed := here.Report(ticket, unavailable(c1), apiKeyBreaker, after(2*time.Second))
	require.False(t, changed, "what was sent before it opened says nothing now")

	require.Equal(t, here, here.Merge(elsewhere.Opening()), "again is nothing new")
}

func TestAClosingFromAnotherReplicaClosesThisOneAndEndsItsProbe(t *testing.T) {
	here := opened(t)
	elsewhere := Breaker{}.Merge(here.Opening())
	here, own, _, _ := here.Admit(apiKeyBreaker, after(30*time.Second))
	elsewhere, probe, _, _ := elsewhere.Admit(apiKeyBreaker, after(30*time.Second))
	elsewhere, _ = elsewhere.Report(probe, good(c2), apiKeyBreaker, after(31*time.Second))

	here = here.Merge(elsewhere.Opening())
	require.Equal(t, BreakerClosed, here.State(after(32*time.Second)))
	_, changed := here.Report(own, unavailable(c1), apiKeyBreaker, after(33*time.Second))
	require.False(t, changed)
}

func TestAProbeGivenToAnotherReplicaIsWaitedFor(t *testing.T) {
	b := opened(t)
	b, lost, _, _ := b.Admit(apiKeyBreaker, after(30*time.Second))
	b = b.YieldProbe(after(40 * time.Second))
	_, _, ok, retryAt := b.Admit(apiKeyBreaker, after(39*time.Second))
	require.False(t, ok)
	require.Equal(t, after(40*time.Second), retryAt)
	_, changed := b.Report(lost, good(c1), apiKeyBreaker, after(39*time.Second))
	require.False(t, changed)
	_, probe, ok, _ := b.Admit(apiKeyBreaker, after(40*time.Second))
	require.True(t, ok)
	require.True(t, probe.Probe)
}

func TestAResetClosesInANewEra(t *testing.T) {
	b := opened(t)
	reset := b.Opening().Enter(b.Opening().Era+1, after(time.Second))
	b = b.Merge(reset)
	require.Equal(t, BreakerClosed, b.State(after(time.Second)))
	require.True(t, b.Quiet())
	require.EqualValues(t, 1, b.Opening().Era)
	require.Equal(t, after(time.Second), b.Opening().Evidence())

	b = b.Merge(opened(t).Opening())
	require.Equal(t, BreakerClosed, b.State(after(2*time.Second)), "the old era's opening does not come back")
	b = failing(t, b, 12, after(3*time.Second))
	require.EqualValues(t, 1, b.Opening().Era)
	require.Equal(t, BreakerOpen, b.State(after(3*time.Second)))
}

// Replicas' clocks differ: an opening that comes after a close is open, and a close that comes
// after an opening is closed, whatever their instants.
func TestClocksThatDifferUndoNoOpeningAndNoClosing(t *testing.T) {
	closedAhead := Opening{OpenedAt: after(-time.Hour), Until: after(-59 * time.Minute), Cycle: 1, ClosedAt: after(time.Second)}
	b := failing(t, Breaker{}.Merge(closedAhead), 12, noon)
	require.Equal(t, BreakerOpen, b.State(noon))

	openedAhead := Opening{OpenedAt: after(time.Minute), Until: after(-time.Second), Cycle: 1}
	b, probe, _, _ := Breaker{}.Merge(openedAhead).Admit(apiKeyBreaker, noon)
	again, _ := b.Report(probe, unavailable(c1), apiKeyBreaker, noon)
	require.Equal(t, BreakerOpen, again.State(noon))
	require.True(t, JoinOpening(openedAhead, again.Opening()).Equal(again.Opening()), "opening again is not lost to the opening before")

	b, probe, ok, _ := Breaker{}.Merge(openedAhead).Admit(apiKeyBreaker, noon)
	require.True(t, ok)
	b, _ = b.Report(probe, good(c1), apiKeyBreaker, noon)
	require.Equal(t, BreakerClosed, b.State(noon))
}

func TestABreakerIsAValue(t *testing.T) {
	before := failing(t, Breaker{}, 5, noon)
	one := failing(t, before, 1, noon)
	other, _ := send(t, before, unavailable("c9"), noon)
	require.Equal(t, 5, before.Failures(noon))
	require.Equal(t, c1, one.failures[5].connection)
	require.Equal(t, models.ConnectionID("c9"), other.failures[5].connection)
}
