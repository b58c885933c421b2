package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestARequestThatWasGivenUpLongAgoIsRefused(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	asked := contract.Asked{RequestID: "r", RequestedAt: morning.Add(time.Minute)}
	var refused error
	ask(w, 2*time.Minute+time.Second, contract.UpdateReset, contract.ResetRequest{Asked: asked}, func(_ contract.Answer, err error) { refused = err })
	w.at(3*time.Minute, func() { require.Equal(t, "banned", w.state().Phase) })
	asked = contract.Asked{RequestID: "s", RequestedAt: morning.Add(4 * time.Minute)}
	ask(w, 4*time.Minute+59*time.Second, contract.UpdateReset, contract.ResetRequest{Asked: asked}, func(_ contract.Answer, err error) { require.NoError(t, err) })
	runConnection(w, nil)

	require.ErrorContains(t, refused, "the request is 1m1s old and was not carried out")
	require.Equal(t, 4*time.Minute+59*time.Second, w.ranFor())
}

// A worker that comes up takes what was left for it: the database may still be away then.
func TestARequestDoesNotWaitForeverForARowThatCannotBeRead(t *testing.T) {
	w := connectionWorld(t)
	w.table.setAway(true)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	var refused error
	ask(w, time.Second, contract.UpdateReset, contract.ResetRequest{}, func(_ contract.Answer, err error) { refused = err })
	w.at(20*time.Second, func() {
		require.ErrorContains(t, refused, "nothing was done")
		w.table.setAway(false)
	})
	w.at(time.Hour, func() { require.Equal(t, "banned", w.state().Phase) })
	w.reset(2*time.Hour, "", func(_ contract.Answer, err error) { require.NoError(t, err) })
	runConnection(w, nil)
	require.Equal(t, 2*time.Hour, w.ranFor())
}

func TestRequestsWithoutAnIdAreEachCarriedOut(t *testing.T) {
	w := connectionWorld(t)
	var eras []int64
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	for i := range 3 {
		at := time.Duration(i+1) * time.Hour
		w.reset(at, "", func(a contract.Answer, err error) {
			require.NoError(t, err)
			eras = append(eras, a.Era)
		})
		if i < 2 { // banned again, before the workflow can end
			observe(w, at, terminated(inEra(int64(i)+1), at+time.Minute, models.PhaseBanned))
		}
	}
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, []int64{1, 2, 3}, eras)
}

func TestTheSameIdForAnotherKindOfRequestIsAnotherRequest(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failAgain(locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour), 0, time.Hour))
	same := contract.Asked{RequestID: "one"}
	ask(w, time.Minute, contract.UpdateClearCooldown, contract.ClearCooldownRequest{Asked: same}, func(_ contract.Answer, err error) { require.NoError(t, err) })
	ask(w, 2*time.Minute, contract.UpdateEnableModel, contract.EnableModelRequest{Asked: same, Models: []string{"gpt-x"}}, func(_ contract.Answer, err error) { require.NoError(t, err) })
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 2*time.Minute, w.ranFor())
}
