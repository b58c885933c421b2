package workflows_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestLockedModelsAreListedUntilTheLastOfThemIsFree(t *testing.T) {
	w := connectionWorld(t)
	state := locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, 64*time.Second)
	state = locked(state, models.LockFamily, "spark", 0, 10*time.Minute)
	observe(w, 0, state)
	w.at(time.Second, func() {
		s := w.state()
		require.Equal(t, "locked", s.Phase)
		require.Equal(t, "ready; 2 models locked: gpt-x until 10:31:04 UTC (429 rate_limit_exceeded), "+
			"family spark until 10:40:00 UTC (429 rate_limit_exceeded)", s.Sentence)
	})
	w.at(2*time.Minute, func() {
		require.Equal(t, "ready; 1 model locked: family spark until 10:40:00 UTC (429 rate_limit_exceeded)", w.state().Sentence)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 10*time.Minute, w.ranFor())
	require.Equal(t, []int64{1, 2}, versions(w.table.writes()), "that one of two is free is read from its deadline")
	require.Equal(t, map[string]any{
		contract.AttributeProvider: "openai", contract.AttributeConnection: "openai-1",
		contract.AttributePhase: "locked", contract.AttributeReason: "rate_limit_exceeded",
		contract.AttributeModel: []string{"spark", "gpt-x"}, contract.AttributeUntil: morning.Add(64 * time.Second),
	}, w.shown[0])
	require.Equal(t, []string{"spark"}, w.shown[1][contract.AttributeModel])
	require.Equal(t, map[string]any{contract.AttributePhase: "ready"}, w.shown[2], "an unset attribute has no value here")
}

func TestACooldownAndALockoutAreToldTogetherAndTheTimerFollowsTheNearer(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, failAgain(locked(resilience.Connection{}, models.LockExact, "gpt-x", 0, 20*time.Second), 0, time.Minute))
	w.at(time.Second, func() {
		require.Equal(t, "cooling until 10:31:00 UTC, 429 rate_limit_exceeded from openai, level 1; "+
			"1 model locked: gpt-x until 10:30:20 UTC (429 rate_limit_exceeded)", w.state().Sentence)
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, morning.Add(20*time.Second), w.shown[0][contract.AttributeUntil])
	require.Equal(t, morning.Add(time.Minute), w.shown[1][contract.AttributeUntil])
	require.Equal(t, time.Minute, w.ranFor())
}

func TestASentenceAndAListStayShortHoweverManyModelsAreLocked(t *testing.T) {
	w := connectionWorld(t)
	state := resilience.Connection{}
	for i := range resilience.MaxLockouts {
		state = locked(state, models.LockModel, fmt.Sprintf("%03d-%s", i, strings.Repeat("long<name>", 12)), 0, time.Hour)
	}
	observe(w, 0, state)
	w.at(time.Second, func() {
		s := w.state().Sentence
		require.Less(t, len(s), 700)
		require.Contains(t, s, "128 models locked: 000-long<name>")
		require.Contains(t, s, "and 123 more until 11:30:00 UTC")
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	listed := w.shown[0][contract.AttributeModel].([]string)
	require.NotEmpty(t, listed)
	size := 0
	for _, name := range listed {
		size += len(name) + 2*12*5 + 3 // < and > are six bytes each in JSON
	}
	require.Less(t, size, 2048, "the server takes 2 KB of an attribute")
}

func TestLockoutsOfNoUseAreForgottenAndThatAloneIsNoReasonToPublish(t *testing.T) {
	w := connectionWorld(t)
	old := locked(resilience.Connection{}, models.LockModel, "gpt-x", -3*time.Hour, time.Minute)
	w.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 4}, State: old, AppliedThrough: old.Evidence()})
	observe(w, 0, resilience.Connection{Cooldown: resilience.Cooldown{ClearedAt: morning.Add(-4 * time.Hour)}})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.table.writes(), 1, "the clear is news")
	require.Empty(t, w.table.standing().State.Lockouts)

	again := connectionWorld(t)
	again.table.put(contract.Row[resilience.Connection]{Stamp: models.Stamp{Version: 4}, State: old, AppliedThrough: old.Evidence()})
	observe(again, 0, old)
	runConnection(again, nil)
	require.NoError(t, again.env.GetWorkflowError())
	require.Empty(t, again.table.writes())
}

func TestRejectionsInARowAreToldAndTheThirdBans(t *testing.T) {
	var state resilience.Connection
	for _, c := range []struct {
		after    time.Duration
		sentence string
	}{
		{0, "cooling until 10:35:00 UTC, 400 request_rejected from openai, level 1"},
		{10 * time.Minute, "cooling until 10:55:00 UTC, 400 request_rejected from openai, level 1, 2 times in a row"},
		{30 * time.Minute, "banned at openai since 2026-03-02 11:00 UTC, out until a reset or new credentials"},
	} {
		next, changed := state.Fail(resilience.Failure{
			At: morning.Add(c.after), Dispatched: morning.Add(c.after), Reason: models.ReasonRequestRejected, Status: 400,
		}, policy)
		require.True(t, changed)
		state = next
		w := connectionWorld(t)
		w.env.SetStartTime(morning.Add(c.after))
		observe(w, 0, state)
		w.at(time.Second, func() { require.Equal(t, c.sentence, w.state().Sentence) })
		w.reset(time.Minute, "", func(contract.Answer, error) {})
		runConnection(w, nil)
		require.NoError(t, w.env.GetWorkflowError())
	}
}

func TestEnablingAModelEndsItsLockoutsByKeyOrByName(t *testing.T) {
	state := locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour)
	state = locked(state, models.LockExact, "gpt-x", 0, time.Hour)
	state = locked(state, models.LockFamily, "spark", 0, 2*time.Hour)
	for name, c := range map[string]struct {
		request contract.EnableModelRequest
		lasts   time.Duration
	}{
		"one key":      {contract.EnableModelRequest{Keys: []resilience.LockKey{{Scope: models.LockFamily, Name: "spark"}}}, time.Hour},
		"a model":      {contract.EnableModelRequest{Models: []string{"gpt-x"}}, 2 * time.Hour},
		"all by name":  {contract.EnableModelRequest{Models: []string{"gpt-x", "spark"}}, time.Minute},
		"another name": {contract.EnableModelRequest{Models: []string{"gpt-z"}}, 2 * time.Hour},
	} {
		w := connectionWorld(t)
		observe(w, 0, state)
		var answer contract.Answer
		ask(w, time.Minute, contract.UpdateEnableModel, c.request, func(a contract.Answer, err error) {
			require.NoError(t, err)
			answer = a
		})
		observe(w, time.Minute+time.Second, state) // evidence from before that was still under way
		runConnection(w, nil)
		require.NoError(t, w.env.GetWorkflowError(), name)
		require.Equal(t, contract.Answer{Published: true}, answer, name)
		require.InDelta(t, c.lasts.Seconds(), w.ranFor().Seconds(), 2, name)
	}
}

func TestAnEnableThatNamesNothingOrNonsenseIsRefusedAndSaysWhatIsValid(t *testing.T) {
	for want, request := range map[string]contract.EnableModelRequest{
		`{"models": ["gpt-x"]}`: {},
		`keys[1].scope is "everything", not one of exact, model, family`: {Keys: []resilience.LockKey{{Scope: "model", Name: "a"}, {Scope: "everything", Name: "b"}}},
		`models[0] must have 1 to 300 characters`:                        {Models: []string{""}},
		`keys[0] must have 1 to 300 characters, this one has 301`:        {Keys: []resilience.LockKey{{Scope: "model", Name: strings.Repeat("x", 301)}}},
		`129 keys and models are more than 128`:                          {Models: make([]string, 129)},
		`requestId has more than 128 characters`:                         {Asked: contract.Asked{RequestID: strings.Repeat("r", 129)}, Models: []string{"a"}},
	} {
		w := connectionWorld(t)
		observe(w, 0, failed(0, time.Minute))
		var refused error
		ask(w, time.Second, contract.UpdateEnableModel, request, func(_ contract.Answer, err error) { refused = err })
		runConnection(w, nil)
		require.ErrorContains(t, refused, want)
	}
}

func TestClearingACooldownLeavesLockoutsAloneAndForgetsStrikes(t *testing.T) {
	w := connectionWorld(t)
	state := expired(locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour), 0)
	observe(w, 0, state)
	ask(w, time.Minute, contract.UpdateClearCooldown, contract.ClearCooldownRequest{}, func(a contract.Answer, err error) {
		require.NoError(t, err)
		require.Equal(t, contract.Answer{Published: true}, a)
	})
	w.at(2*time.Minute, func() {
		s := w.state()
		require.Equal(t, "locked", s.Phase)
		require.Zero(t, s.State.Expiries.Count)
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, time.Hour, w.ranFor())
	require.Empty(t, w.issuer.asked, "what was cleared is not retried")
}

func TestATerminalStateIsNoneOfAClearedCooldowns(t *testing.T) {
	w := connectionWorld(t)
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	var refused error
	ask(w, time.Minute, contract.UpdateClearCooldown, contract.ClearCooldownRequest{}, func(_ contract.Answer, err error) { refused = err })
	w.reset(time.Hour, "", func(contract.Answer, error) {})
	runConnection(w, nil)
	require.ErrorContains(t, refused, "openai-1 is banned, which ends by a reset or by new credentials only")
}
