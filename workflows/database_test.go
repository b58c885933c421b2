package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// The test environment gives an activity ten tries, which our back-off spreads over half a
// minute; that a real server is asked to try without end is checked on the recorded histories.

func TestADatabaseThatIsAwayFailsNothingAndLosesNothing(t *testing.T) {
	w := connectionWorld(t)
	first := failed(0, 10*time.Minute)
	observe(w, 0, first)
	w.at(time.Minute, func() { w.table.setAway(true) })
	second := failAgain(first, 61*time.Second, 12*time.Minute)
	third := failAgain(second, 65*time.Second, 14*time.Minute)
	observe(w, 61*time.Second, second)
	observe(w, 65*time.Second, third)
	w.at(85*time.Second, func() {
		require.True(t, w.state().State.Equal(third), "the workflow listens while it cannot publish")
		require.True(t, w.table.standing().State.Equal(first))
		w.table.setAway(false)
	})
	w.at(96*time.Second, func() { // the longest wait between two tries has passed
		require.True(t, w.table.standing().State.Equal(third))
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 14*time.Minute+65*time.Second, w.ranFor())
	require.Len(t, w.table.writes(), 4, "first, second with its try, third, and the end")
}

func TestAWorkflowThatStartsWhileTheDatabaseIsAwayWaitsAndThenPublishes(t *testing.T) {
	w := connectionWorld(t)
	w.table.setAway(true)
	observe(w, 0, failed(0, 2*time.Hour))
	w.at(25*time.Second, func() { w.table.setAway(false) })
	w.at(36*time.Second, func() {
		require.Equal(t, models.PhaseCooling, w.table.standing().State.Cooldown.Standing(w.env.Now()).Phase)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 2*time.Hour, w.ranFor())
}

func TestANewerRowIsJoinedNotOverwritten(t *testing.T) {
	w := connectionWorld(t)
	stored := failed(0, time.Minute)
	w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 40}, State: stored, AppliedThrough: stored.Evidence()})
	mine := failAgain(stored, time.Second, 2*time.Minute)
	observe(w, 0, mine)
	w.at(10*time.Second, func() { // somebody else writes behind the workflow's back
		other := failAgain(mine, 9*time.Second, 3*time.Minute)
		w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 90}, State: other, AppliedThrough: other.Evidence()})
		signalConnection(w, terminated(mine, 10*time.Second, models.PhaseBanned))
	})
	w.reset(time.Hour, "free it", func(contract.Answer, error) {})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	writes := w.table.writes()
	require.Equal(t, int64(41), writes[0].Version)
	require.Equal(t, int64(91), writes[1].Version, "it lost to 90, joined it and published what was still missing")
	require.Equal(t, models.PhaseBanned, writes[1].State.Cooldown.Terminal)
	require.True(t, writes[1].State.Cooldown.Until.Equal(morning.Add(3*time.Minute+9*time.Second)))
}

func TestARowOfANewEraFreesARunningWorkflow(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failed(0, time.Hour))
	w.at(time.Minute, func() { // new credentials: apply writes the row
		w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Era: 1}, State: inEra(1)})
	})
	observe(w, 2*time.Minute, failAgain(failed(0, time.Hour), 2*time.Minute, 2*time.Hour)) // of the old era
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Less(t, w.ranFor(), 2*time.Minute+time.Second)
	row := w.table.standing()
	require.Equal(t, int64(1), row.Era)
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(w.env.Now()).Phase)
}

func TestAResetOutranksTheRowThatIsStillBeingRead(t *testing.T) {
	w := connectionWorld(t)
	w.table.put(contract.Row[resilience.Connection]{
		Stamp: models.Stamp{Era: 5, Version: 9}, State: terminated(inEra(5), -time.Hour, models.PhaseExpired),
	})
	var answer contract.Answer
	w.reset(0, "r", func(r contract.Answer, err error) {
		require.NoError(t, err)
		answer = r
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, contract.Answer{Era: 6, Published: true}, answer)
	require.Equal(t, models.PhaseReady, w.table.standing().State.Cooldown.Standing(w.env.Now()).Phase)
}

func TestAResetIsAnsweredWhileTheDatabaseIsAwayAndPublishedLater(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	w.at(time.Minute, func() { w.table.setAway(true) })
	var answers []contract.Answer
	answered := func(r contract.Answer, err error) {
		require.NoError(t, err)
		answers = append(answers, r)
	}
	w.reset(2*time.Minute, "r", answered)
	w.at(2*time.Minute+20*time.Second, func() { w.table.setAway(false) })
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []contract.Answer{{Era: 1, Published: false}}, answers)
	require.Equal(t, int64(1), w.table.standing().Era)
}

func TestARepeatedResetRequestIsAnsweredAndNotDoneAgain(t *testing.T) {
	w := connectionWorld(t)
	var eras []int64
	answered := func(r contract.Answer, err error) {
		require.NoError(t, err)
		eras = append(eras, r.Era)
	}
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	w.reset(time.Minute, "once", answered)
	w.reset(time.Minute, "once", answered) // at the same moment
	w.at(time.Minute, func() {
		signalConnection(w, terminated(inEra(1), 2*time.Minute, models.PhaseBanned))
	})
	w.reset(5*time.Minute, "once", answered) // a late retry must not free the new ban
	w.at(6*time.Minute, func() { require.Equal(t, "banned", w.state().Phase) })
	w.reset(7*time.Minute, "twice", answered)
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []int64{1, 1, 1, 2}, eras)
}
