package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestAConnectionCoolsAndItsWorkflowEndsAtTheDeadline(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failed(0, 30*time.Second))
	w.at(10*time.Second, func() {
		s := w.state()
		require.Equal(t, "cooling", s.Phase)
		require.Equal(t, "cooling until 10:30:30 UTC, 429 rate_limit_exceeded from openai, level 1", s.Sentence)
		require.Equal(t, int64(1), s.Row.Version)
		require.True(t, s.Row.State.Cooldown.Until.Equal(morning.Add(30*time.Second)))
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 30*time.Second, w.ranFor())
	writes := w.table.writes()
	require.Len(t, writes, 2) // cooling, then ready
	require.Equal(t, models.Stamp{Version: 2}, writes[1].Stamp)
	require.Equal(t, 1, writes[1].State.Cooldown.Level, "the level is kept for the next failure")
	require.True(t, writes[1].AppliedThrough.Equal(morning))
}

func TestTheListInTheWebUIFollowsThePhase(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failed(0, 30*time.Second))
	runConnection(w, nil)

	require.Equal(t, map[string]any{
		contract.AttributeProvider: "openai", contract.AttributeConnection: "openai-1",
		contract.AttributePhase: "cooling", contract.AttributeReason: "rate_limit_exceeded",
		contract.AttributeUntil: morning.Add(30 * time.Second),
	}, w.shown[0])
	require.Equal(t, map[string]any{contract.AttributePhase: "ready"}, w.shown[1], "an unset attribute has no value here")
	require.Len(t, w.shown, 2)
}

func TestALongerHintExtendsAndAShorterOneNeverShortens(t *testing.T) {
	w := connectionWorld(t)
	first := failed(0, 10*time.Second)
	longer := failAgain(first, 2*time.Second, 20*time.Second)
	observe(w, 0, first)
	observe(w, 2*time.Second, longer)
	observe(w, 4*time.Second, failed(4*time.Second, 5*time.Second)) // of a replica that knows no better
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 22*time.Second, w.ranFor())
}

func TestARecoveryEndsTheWorkflowBeforeTheDeadline(t *testing.T) {
	w := connectionWorld(t)
	cooling := failed(0, 10*time.Minute)
	observe(w, 0, cooling)
	observe(w, time.Minute, succeeded(cooling, 50*time.Second))
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Less(t, w.ranFor(), 61*time.Second)
	row := w.table.standing()
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(morning.Add(time.Minute)).Phase)
	require.True(t, row.AppliedThrough.Equal(morning.Add(50*time.Second)))
}

func TestARecoveryAfterTheCooldownClearsTheRowInAShortLife(t *testing.T) {
	w := connectionWorld(t)
	cooled := failed(-time.Minute, 10*time.Second)
	w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 2}, State: cooled, AppliedThrough: cooled.Evidence()})
	observe(w, 0, succeeded(cooled, -time.Second))
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Less(t, w.ranFor(), time.Second)
	row := w.table.standing()
	require.Equal(t, models.Stamp{Version: 3}, row.Stamp)
	require.False(t, row.State.Cooldown.Standing(morning).Trial)
}

func TestATerminalConnectionStaysVisibleUntilAReset(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	w.at(72*time.Hour, func() {
		require.Equal(t, "banned at openai since 2026-03-02 10:30 UTC, out until a reset or new credentials", w.state().Sentence)
	})
	observe(w, 73*time.Hour, failed(73*time.Hour, time.Minute)) // a cooldown never overwrites it
	w.at(74*time.Hour, func() { require.Equal(t, "banned", w.state().Phase) })
	var answer contract.Answer
	w.reset(96*time.Hour, "r-1", func(r contract.Answer, err error) {
		require.NoError(t, err)
		answer = r
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, contract.Answer{Era: 1, Published: true}, answer)
	require.InDelta(t, (96 * time.Hour).Seconds(), w.ranFor().Seconds(), 1)
	row := w.table.standing()
	require.Equal(t, int64(1), row.Era)
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(w.env.Now()).Phase)
}

func TestNewCredentialsFreeATerminalConnectionAndAnOlderEraDoesNot(t *testing.T) {
	w := connectionWorld(t)
	w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Era: 2, Version: 7}, State: inEra(2)})
	observe(w, 0, terminated(inEra(2), 0, models.PhaseExpired))
	w.at(time.Hour, func() {
		w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: self, Era: 2, ChangedAt: w.env.Now()})
	})
	w.at(2*time.Hour, func() {
		require.Equal(t, "expired", w.state().Phase)
		w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: self, Era: 3, ChangedAt: w.env.Now().Add(-time.Second)})
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	row := w.table.standing()
	require.Equal(t, int64(3), row.Era)
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(w.env.Now()).Phase)
	require.True(t, row.State.Cooldown.ClearedAt.Equal(morning.Add(2*time.Hour-time.Second)), "the row says when the era began")
}

// The row alone knows of new credentials, and of a connection that is gone, when no replica ran
// to tell.
func TestATerminalConnectionLooksAtItsRowEveryHourAndEndsWhenItsEraIsOver(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseExpired))
	w.at(150*time.Minute, func() {
		require.Equal(t, 3, w.table.loads, "at the start and after one hour and two")
		w.table.put(contract.Row[resilience.Connection]{
			Stamp: models.Stamp{Era: 1}, State: resilience.Connection{}.Enter(1, w.env.Now()),
		})
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 3*time.Hour, w.ranFor())
	require.Equal(t, []int64{1}, versions(w.table.writes()), "there is nothing to correct in the row")
	require.Equal(t, models.Stamp{Era: 1}, w.table.standing().Stamp)
}

func TestALookAtTheRowWhileTheDatabaseIsAwayHoldsNothingUp(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseExpired))
	w.at(59*time.Minute, func() { w.table.setAway(true) })
	w.at(time.Hour+10*time.Second, func() {
		require.Equal(t, "expired", w.state().Phase)
		w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: self, Era: 1, ChangedAt: w.env.Now()})
	})
	w.at(time.Hour+11*time.Second, func() {
		require.Equal(t, "ready", w.state().Phase)
		w.table.setAway(false)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, int64(1), w.table.standing().Era)
}

func TestAConnectionThatMovedIsFollowedToItsNewProvider(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseExpired))
	elsewhere := contract.Entity{Provider: "azure", Connection: openai1}
	w.at(time.Minute, func() {
		w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: elsewhere, Era: 1, ChangedAt: w.env.Now()})
		w.env.SignalWorkflow(contract.SignalFailureObserved, contract.Observed[resilience.Connection]{
			Entity: elsewhere, State: failAgain(inEra(1), time.Minute, time.Hour),
		})
	})
	w.at(2*time.Minute, func() { // a replica that has not heard of the move
		w.env.SignalWorkflow(contract.SignalFailureObserved, contract.Observed[resilience.Connection]{
			Entity: self, State: failed(time.Minute, 2*time.Hour),
		})
	})
	w.at(3*time.Minute, func() {
		require.Equal(t, "cooling until 11:31:00 UTC, 429 rate_limit_exceeded from azure, level 1", w.state().Sentence)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, time.Hour+time.Minute, w.ranFor())
	require.Contains(t, w.shown, map[string]any{contract.AttributePhase: "ready", contract.AttributeProvider: "azure"})
}

func TestADamagedRowIsReplacedByTheNextPublication(t *testing.T) {
	w := connectionWorld(t)
	w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Era: 3, Version: 8}, State: inEra(3)})
	observe(w, 0, failAgain(inEra(3), 0, 30*time.Second))
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, models.Stamp{Era: 3, Version: 9}, w.table.writes()[0].Stamp)
}

func TestObservationsInAnyOrderAndRepeatedEndInOneRow(t *testing.T) {
	first := failed(0, 10*time.Second)
	second := failAgain(first, 11*time.Second, 30*time.Second)
	cleared := succeeded(second, 12*time.Second)
	third := failAgain(cleared, 13*time.Second, 20*time.Second)
	states := []resilience.Connection{first, second, cleared, third}
	var want resilience.Connection
	for _, s := range states {
		want = resilience.JoinConnection(want, s)
	}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 1, 3, 0, 2, 3}} {
		w := connectionWorld(t)
		w.at(0, func() {
			for _, which := range order {
				signalConnection(w, states[which])
			}
		})
		runConnection(w, nil)

		require.NoError(t, w.env.GetWorkflowError())
		require.True(t, w.table.standing().State.Equal(want), "order %v", order)
		require.Equal(t, 33*time.Second, w.ranFor(), "order %v", order)
	}
}

func TestACrowdOfSignalsIsPublishedOnce(t *testing.T) {
	w := connectionWorld(t)
	w.at(0, func() {
		state := failed(0, 10*time.Second)
		for i := range 200 {
			state = failAgain(state, time.Duration(i+1)*time.Millisecond, 11*time.Second)
			signalConnection(w, state)
		}
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.LessOrEqual(t, len(w.table.writes()), 3) // at most one while they came in, one after, and the end
}

func TestWhatCannotBeReadOrIsAboutAnotherIsIgnored(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failed(0, 10*time.Second))
	w.at(time.Second, func() {
		w.env.SignalWorkflow(contract.SignalFailureObserved, "not an observation")
		w.env.SignalWorkflow(contract.SignalFailureObserved, contract.Observed[resilience.Connection]{
			Entity: contract.Entity{Provider: openai, Connection: "openai-2"}, State: failed(time.Second, time.Hour),
		})
		w.env.SignalWorkflow("FromAnotherRelease", 42)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 10*time.Second, w.ranFor())
}
