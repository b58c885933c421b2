package workflows_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestContinueAsNewCarriesTheCooldownAndItsPendingTimer(t *testing.T) {
	first := connectionWorld(t)
	cooling := failed(0, 30*time.Minute)
	observe(first, 0, cooling)
	first.at(10*time.Minute, func() {
		first.env.SetContinueAsNewSuggested(true)
		signalConnection(first, cooling) // nothing new, but a workflow task
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())
	require.True(t, carried.State.Equal(cooling))

	second := connectionWorld(t)
	second.env.SetStartTime(morning.Add(10 * time.Minute))
	second.table.put(first.table.standing())
	second.at(time.Minute, func() { require.Equal(t, "cooling", second.state().Phase) })
	runConnection(second, carried)

	require.NoError(t, second.env.GetWorkflowError())
	require.Equal(t, 30*time.Minute, second.ranFor(), "the deadline is the first run's")
	require.Zero(t, second.table.loads, "what was carried needs no reading")
	require.Equal(t, []int64{2}, versions(second.table.writes()), "only the end is news")
}

func TestContinueAsNewCarriesATerminalStateAndTheAnsweredResets(t *testing.T) {
	first := connectionWorld(t)
	observe(first, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	first.reset(time.Minute, "once", func(contract.Answer, error) {})
	first.at(time.Minute, func() { // banned again, before the workflow can end
		signalConnection(first, terminated(inEra(1), 2*time.Minute, models.PhaseBanned))
	})
	first.at(3*time.Minute, func() {
		first.env.SetContinueAsNewSuggested(true)
		signalConnection(first, resilience.Connection{})
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())

	second := connectionWorld(t)
	second.env.SetStartTime(morning.Add(3 * time.Minute))
	second.table.put(first.table.standing())
	var repeated contract.Answer
	second.reset(time.Minute, "once", func(r contract.Answer, err error) {
		require.NoError(t, err)
		repeated = r
	})
	second.at(2*time.Minute, func() { require.Equal(t, "banned", second.state().Phase) })
	second.reset(3*time.Minute, "twice", func(contract.Answer, error) {})
	runConnection(second, carried)

	require.NoError(t, second.env.GetWorkflowError())
	require.Equal(t, int64(1), repeated.Era)
	require.Equal(t, int64(2), second.table.standing().Era)
}

func TestContinueAsNewDoesNotWaitForADatabaseThatIsAway(t *testing.T) {
	first := connectionWorld(t)
	cooling := failed(0, 30*time.Minute)
	longer := failAgain(cooling, time.Minute, 40*time.Minute)
	observe(first, 0, cooling)
	first.at(time.Minute, func() { first.table.setAway(true) })
	observe(first, time.Minute, longer)
	first.at(70*time.Second, func() {
		first.env.SetContinueAsNewSuggested(true)
		signalConnection(first, longer)
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())

	second := connectionWorld(t)
	second.env.SetStartTime(morning.Add(70 * time.Second))
	// The publication that was left behind arrives after all, as the real one may.
	second.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 2}, State: longer, AppliedThrough: longer.Evidence()})
	runConnection(second, carried)

	require.NoError(t, second.env.GetWorkflowError())
	require.Equal(t, 41*time.Minute, second.ranFor())
	require.True(t, second.table.standing().State.Equal(longer))
}

func TestASignalThatArrivesWithTheHandoverIsNotLost(t *testing.T) {
	w := connectionWorld(t)
	cooling := failed(0, 30*time.Minute)
	longer := failAgain(cooling, time.Minute, 40*time.Minute)
	observe(w, 0, cooling)
	w.at(time.Minute, func() {
		w.env.SetContinueAsNewSuggested(true)
		w.env.SignalWorkflowSkippingWorkflowTask(contract.SignalFailureObserved,
			contract.Observed[resilience.Connection]{Entity: self, State: longer})
		signalConnection(w, cooling)
	})
	runConnection(w, nil)

	carried := carriedOver[resilience.Connection](t, w.env.GetWorkflowError())
	require.True(t, carried.State.Equal(longer))
}

// connectionsSecond is the run after the one of the first world, at a moment of the first.
func connectionsSecond(t *testing.T, first *world[resilience.Connection], at time.Duration) *world[resilience.Connection] {
	second := connectionWorld(t)
	second.env.SetStartTime(morning.Add(at))
	second.table.put(first.table.standing())
	return second
}

func TestContinueAsNewLosesNeitherLockoutsNorARunningRefreshNorAPendingRequest(t *testing.T) {
	first := connectionWorld(t)
	issues(first, 20*time.Second, refused(3))
	state := locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour)
	state = expired(locked(state, models.LockFamily, "spark", 0, 2*time.Hour), 0)
	observe(first, 0, state)
	var answers []contract.RefreshAnswer
	request := seen(0)
	request.RequestID = "once"
	ask(first, 5*time.Minute+5*time.Second, contract.UpdateRefreshCredentials, request, func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		answers = append(answers, a)
	})
	first.at(5*time.Minute+10*time.Second, func() { // the refresh runs, and the request has joined it
		first.env.SetContinueAsNewSuggested(true)
		signalConnection(first, state)
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())
	require.Equal(t, 5*time.Minute+20*time.Second, first.ranFor(), "two refreshes at once could lose the account")
	require.Len(t, first.issuer.asked, 1)
	require.Len(t, answers, 1)
	require.Equal(t, "invalid_grant", answers[0].Reason)
	require.Len(t, carried.State.Lockouts, 2)

	second := connectionsSecond(t, first, 5*time.Minute+20*time.Second)
	issues(second, time.Second, renewed(1))
	second.at(time.Second, func() {
		require.Equal(t, "expired credentials, retry 2 of 3 at 10:45:20 UTC, the last refresh failed: invalid_grant; 2 models locked: "+
			"gpt-x until 11:30:00 UTC (429 rate_limit_exceeded), family spark until 12:30:00 UTC (429 rate_limit_exceeded)", second.state().Sentence)
	})
	ask(second, 2*time.Second, contract.UpdateRefreshCredentials, request, func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		require.Equal(t, "invalid_grant", a.Reason, "the answer it has had")
	})
	runConnection(second, carried)

	require.NoError(t, second.env.GetWorkflowError())
	require.Len(t, second.issuer.asked, 1)
	require.Equal(t, 2*time.Hour, second.ranFor())
	require.Zero(t, second.table.standing().State.Expiries.Count)
}

func TestARequestThatWaitsForTheRowIsAnsweredBeforeTheHandover(t *testing.T) {
	first := connectionWorld(t)
	observe(first, 0, locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour))
	first.at(time.Minute, func() { first.table.setAway(true) })
	enable := contract.EnableModelRequest{Asked: contract.Asked{RequestID: "once"}, Models: []string{"gpt-x"}}
	var answer contract.Answer
	ask(first, time.Minute, contract.UpdateEnableModel, enable, func(a contract.Answer, err error) {
		require.NoError(t, err)
		answer = a
	})
	first.at(time.Minute+500*time.Millisecond, func() {
		first.env.SetCurrentHistoryLength(1501)
		signalConnection(first, failed(time.Minute, 30*time.Minute))
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())
	require.Equal(t, contract.Answer{Published: false}, answer)
	require.Equal(t, time.Minute+500*time.Millisecond, first.ranFor())

	second := connectionsSecond(t, first, time.Minute+500*time.Millisecond)
	second.at(time.Second, func() {
		require.Equal(t, "cooling until 11:01:00 UTC, 429 rate_limit_exceeded from openai, level 1", second.state().Sentence)
		signalConnection(second, locked(resilience.Connection{}, models.LockModel, "gpt-x", 2*time.Minute, time.Hour))
	})
	ask(second, 2*time.Second, contract.UpdateEnableModel, enable, func(_ contract.Answer, err error) { require.NoError(t, err) })
	second.at(3*time.Second, func() {
		require.Len(t, second.state().State.Out(second.env.Now()), 1, "a late retry must not free the new lockout")
	})
	runConnection(second, carried)
	require.NoError(t, second.env.GetWorkflowError())
}

func TestARunHandsOverByTheLengthAndTheSizeOfItsHistory(t *testing.T) {
	many := resilience.Connection{}
	for i := range 100 {
		many = locked(many, models.LockModel, fmt.Sprintf("openai/some-model-of-a-usual-name-%03d", i), 0, time.Hour)
	}
	for name, c := range map[string]struct {
		state resilience.Connection
		grow  func(*world[resilience.Connection])
		over  bool
	}{
		"1500 events":             {failed(0, time.Hour), func(w *world[resilience.Connection]) { w.env.SetCurrentHistoryLength(1500) }, false},
		"1501 events":             {failed(0, time.Hour), func(w *world[resilience.Connection]) { w.env.SetCurrentHistoryLength(1501) }, true},
		"145 KB":                  {failed(0, time.Hour), size(145 << 10), false},
		"151 KB":                  {failed(0, time.Hour), size(151 << 10), true},
		"70 KB with a long state": {many, size(70 << 10), true},
		"60 KB with a long state": {many, size(60 << 10), false},
	} {
		w := connectionWorld(t)
		observe(w, 0, c.state)
		w.at(time.Minute, func() {
			c.grow(w)
			signalConnection(w, c.state)
		})
		runConnection(w, nil)
		if c.over {
			require.ErrorContains(t, w.env.GetWorkflowError(), "continue as new", name)
		} else {
			require.NoError(t, w.env.GetWorkflowError(), name)
		}
	}
}

func size(bytes int) func(*world[resilience.Connection]) {
	return func(w *world[resilience.Connection]) { w.env.SetCurrentHistorySize(bytes) }
}

// A long state fills a run with its beginning and one publication: that one is done.
func TestARunThatBeginsLongGetsItsPublicationDone(t *testing.T) {
	first := connectionWorld(t)
	many := resilience.Connection{}
	for i := range resilience.MaxLockouts {
		many = locked(many, models.LockModel, fmt.Sprintf("openai/some-model-of-a-usual-name-%03d", i), 0, time.Hour)
	}
	observe(first, 0, many)
	first.at(time.Minute, func() {
		first.env.SetCurrentHistorySize(100 << 10)
		signalConnection(first, failAgain(many, time.Minute, time.Hour))
	})
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())
	require.False(t, carried.PublishedAll)
	require.Len(t, first.table.writes(), 1)

	second := connectionsSecond(t, first, time.Minute)
	second.env.SetCurrentHistorySize(100 << 10)
	runConnection(second, carried)
	again := carriedOver[resilience.Connection](t, second.env.GetWorkflowError())
	require.Equal(t, []int64{2}, versions(second.table.writes()))
	require.True(t, again.PublishedAll)
	require.True(t, second.table.standing().State.Equal(again.State))
}

func TestAWorkflowThatCannotReadItsRowHandsOverWhatItHasHeard(t *testing.T) {
	first := connectionWorld(t)
	first.table.setAway(true)
	cooling := failed(0, 2*time.Hour)
	observe(first, 0, cooling)
	observe(first, 10*time.Second, locked(cooling, models.LockModel, "gpt-x", 0, time.Hour))
	first.at(20*time.Second, func() { first.env.SetCurrentHistoryLength(1501) })
	runConnection(first, nil)
	carried := carriedOver[resilience.Connection](t, first.env.GetWorkflowError())
	require.Zero(t, carried.SeenAt)

	second := connectionWorld(t)
	second.env.SetStartTime(morning.Add(20 * time.Second))
	second.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 6}})
	runConnection(second, carried)
	require.NoError(t, second.env.GetWorkflowError())
	require.Equal(t, 1, second.table.loads)
	require.Equal(t, 2*time.Hour, second.ranFor())
	require.Equal(t, int64(7), second.table.writes()[0].Version)
	require.Len(t, second.table.writes()[0].State.Lockouts, 1)
}

func TestARunKnowsFromTheOneBeforeWhatTheRowSays(t *testing.T) {
	w := connectionWorld(t)
	cooling := failed(0, time.Hour)
	observe(w, 0, cooling)
	w.at(time.Minute, func() {
		w.env.SetContinueAsNewSuggested(true)
		signalConnection(w, cooling)
	})
	runConnection(w, nil)
	carried := carriedOver[resilience.Connection](t, w.env.GetWorkflowError())
	require.True(t, carried.PublishedAll)
	require.Equal(t, models.Stamp{Version: 1}, carried.Published)
}

func versions[S any](rows []contract.Row[S]) []int64 {
	var v []int64
	for _, row := range rows {
		v = append(v, row.Version)
	}
	return v
}
