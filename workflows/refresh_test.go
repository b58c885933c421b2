package workflows_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func renewed(generation int64) contract.Refreshed {
	return contract.Refreshed{Outcome: contract.RefreshRenewed, Generation: generation}
}

func refused(retries int) contract.Refreshed {
	return contract.Refreshed{
		Outcome: contract.RefreshFailed, Reason: "invalid_grant",
		Retry: contract.ExpiredRetry{Retries: retries, BaseDelayMs: (5 * time.Minute).Milliseconds()},
	}
}

// seen is a request of a gateway whose attempt with tokens of that generation was refused.
func seen(generation int64) contract.RefreshRequest {
	return contract.RefreshRequest{Seen: &generation}
}

func TestExpiredCredentialsAreRenewedWhenTheirCooldownEnds(t *testing.T) {
	w := connectionWorld(t)
	issues(w, time.Second, renewed(7))
	observe(w, 0, expired(resilience.Connection{}, 0))
	w.at(time.Minute, func() {
		require.Equal(t, "expired credentials, retry 1 at 10:35:00 UTC", w.state().Sentence)
	})
	w.at(5*time.Minute+500*time.Millisecond, func() {
		require.Equal(t, "ready since 10:35:00 UTC, on trial after 401 expired from openai, refreshing the credentials", w.state().Sentence)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 5*time.Minute+time.Second, w.ranFor())
	require.Equal(t, []contract.Refresh{{Entity: self}}, w.issuer.asked)
	row := w.table.standing()
	require.True(t, row.State.Settled())
	require.Zero(t, row.Era, "the account is the same, and so is its era")
}

func TestRefreshesThatFailAreTriedAgainAfterTenAndTwentyMinutesAndThenNoMore(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, refused(3))
	observe(w, 0, expired(resilience.Connection{}, 0))
	for at, sentence := range map[time.Duration]string{
		6 * time.Minute:  "expired credentials, retry 2 of 3 at 10:45:00 UTC, the last refresh failed: invalid_grant",
		20 * time.Minute: "expired credentials, retry 3 of 3 at 11:05:00 UTC, the last refresh failed: invalid_grant",
		36 * time.Minute: "expired at openai since 2026-03-02 11:05 UTC, the last refresh failed: invalid_grant, out until a reset or new credentials",
	} {
		w.at(at, func() { require.Equal(t, sentence, w.state().Sentence) })
	}
	w.reset(time.Hour, "by hand", func(contract.Answer, error) {})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.issuer.asked, 3)
	require.Equal(t, int64(1), w.table.standing().Era)
}

func TestHowOftenARefreshIsTriedIsSaidByTheSettingsOfItsDay(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, refused(0))
	observe(w, 0, expired(resilience.Connection{}, 0)) // a gateway goes by three retries
	w.at(6*time.Minute, func() { require.Equal(t, "expired", w.state().Phase) })
	w.reset(time.Hour, "", func(contract.Answer, error) {})
	runConnection(w, nil)
	require.Len(t, w.issuer.asked, 1)
}

func TestWhereNothingCanBeRefreshedOrNobodyTakesTheWorkTheConnectionIsLeftOnTrial(t *testing.T) {
	for name, answer := range map[string]func(*world[resilience.Connection]){
		"impossible": func(w *world[resilience.Connection]) {
			issues(w, 0, contract.Refreshed{Outcome: contract.RefreshImpossible})
		},
		"untried": func(w *world[resilience.Connection]) {
			w.issuer.err = errors.New("the database is away: password=hunter2")
		},
	} {
		w := connectionWorld(t)
		answer(w)
		observe(w, 0, expired(resilience.Connection{}, 0))
		runConnection(w, nil)

		require.NoError(t, w.env.GetWorkflowError(), name)
		require.Equal(t, 5*time.Minute, w.ranFor(), name)
		require.Len(t, w.issuer.asked, 1, name)
		row := w.table.standing()
		require.True(t, row.State.Cooldown.Standing(w.env.Now()).Trial, name)
		require.Equal(t, 1, row.State.Expiries.Count, name)
	}
}

func TestACrowdThatAsksForNewCredentialsCausesOneRefresh(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 2*time.Second, renewed(4))
	w.at(0, func() { signalConnection(w, failed(0, time.Minute)) })
	var answers []contract.RefreshAnswer
	answered := func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		answers = append(answers, a)
	}
	for i := range 6 { // while it runs, and after it
		ask(w, time.Duration(i)*600*time.Millisecond, contract.UpdateRefreshCredentials, seen(3), answered)
	}
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, answers, 6)
	for _, a := range answers {
		require.Equal(t, contract.RefreshRenewed, a.Outcome)
		require.Equal(t, int64(4), a.Generation)
		require.True(t, a.Published)
	}
	require.Equal(t, []contract.Refresh{{Entity: self, Seen: 3}}, w.issuer.asked)
	require.Equal(t, time.Minute, w.ranFor(), "the rate limit is the account's and stays")
}

func TestOneWhoHasSeenTheNewestCredentialsFailGetsNewerOnes(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, renewed(4), renewed(5))
	w.at(0, func() { signalConnection(w, failed(0, time.Minute)) })
	var got []int64
	for i, generation := range []int64{3, 4, 2} {
		ask(w, time.Duration(i+1)*time.Second, contract.UpdateRefreshCredentials, seen(generation), func(a contract.RefreshAnswer, err error) {
			require.NoError(t, err)
			got = append(got, a.Generation)
		})
	}
	runConnection(w, nil)
	require.Equal(t, []int64{4, 5, 5}, got)
	require.Len(t, w.issuer.asked, 2)
}

func TestARefreshThatFailsForAGatewayCountsAndIsNotRepeatedForTheCrowdBehindIt(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, refused(3))
	var answers []contract.RefreshAnswer
	for _, at := range []time.Duration{0, time.Second, 9 * time.Second} {
		ask(w, at, contract.UpdateRefreshCredentials, seen(3), func(a contract.RefreshAnswer, err error) {
			require.NoError(t, err)
			answers = append(answers, a)
		})
	}
	w.at(10*time.Second, func() {
		require.Len(t, w.issuer.asked, 1)
		require.Equal(t, 1, w.state().State.Expiries.Count)
		signalConnection(w, expired(resilience.Connection{}, time.Second)) // the gateway counts the same failure
	})
	w.at(11*time.Second, func() {
		require.Equal(t, 1, w.state().State.Expiries.Count)
		w.issuer.answers = []contract.Refreshed{renewed(4)}
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, answers, 3)
	require.Equal(t, "invalid_grant", answers[0].Reason)
	require.Equal(t, []contract.Refresh{{Entity: self, Seen: 3}, {Entity: self, Seen: 3}}, w.issuer.asked, "the retry knows what has failed")
	require.True(t, w.table.standing().State.Settled())
}

func TestAnOperatorsRefreshInGoodHealthMakesNothingWorse(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, refused(3))
	var answer contract.RefreshAnswer
	ask(w, 0, contract.UpdateRefreshCredentials, contract.RefreshRequest{}, func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		answer = a
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, contract.RefreshFailed, answer.Outcome)
	require.Empty(t, w.table.writes())
}

func TestARefreshFreesAConnectionThatWasExpiredForGoodInANewEra(t *testing.T) {
	w := connectionWorld(t)
	issues(w, time.Second, renewed(9))
	state := locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, 3*time.Hour)
	state, _ = state.Fail(resilience.Failure{At: morning, Reason: models.ReasonExpired, Terminal: models.PhaseExpired}, policy)
	observe(w, 0, state)
	var answer contract.RefreshAnswer
	ask(w, time.Hour, contract.UpdateRefreshCredentials, contract.RefreshRequest{}, func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		answer = a
	})
	w.at(time.Hour+2*time.Second, func() {
		require.Equal(t, "ready; 1 model locked: gpt-x until 13:30:00 UTC (429 rate_limit_exceeded)", w.state().Sentence)
	})
	runConnection(w, nil)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, int64(1), answer.Era)
	require.True(t, answer.Published)
	require.Equal(t, int64(1), w.table.standing().Era)
	require.Equal(t, 3*time.Hour, w.ranFor())
}

func TestARefreshDoesNotFreeABannedAccount(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, renewed(9))
	observe(w, 0, terminated(resilience.Connection{}, 0, models.PhaseBanned))
	ask(w, time.Hour, contract.UpdateRefreshCredentials, contract.RefreshRequest{}, func(contract.RefreshAnswer, error) {})
	w.at(2*time.Hour, func() { require.Equal(t, "banned", w.state().Phase) })
	w.reset(3*time.Hour, "", func(contract.Answer, error) {})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.issuer.asked, 1)
}

func TestTheWorkflowPublishesWhileARefreshRuns(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 25*time.Second, renewed(1))
	first := expired(resilience.Connection{}, 0)
	observe(w, 0, first)
	observe(w, 5*time.Minute+time.Second, locked(first, models.LockFamily, "spark", 5*time.Minute+time.Second, time.Hour))
	w.at(5*time.Minute+2*time.Second, func() {
		require.Contains(t, w.state().Sentence, "refreshing the credentials")
		require.Len(t, w.table.standing().State.Lockouts, 1)
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.issuer.asked, 1)
	require.Equal(t, time.Hour+5*time.Minute+time.Second, w.ranFor())
}

// New credentials are counted anew, also where an old refresh is still under way.
func TestNewCredentialsEndWhatWasKnownOfTheOldOnes(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, renewed(8), renewed(2))
	w.at(0, func() { signalConnection(w, failed(0, time.Hour)) })
	ask(w, time.Second, contract.UpdateRefreshCredentials, seen(7), func(contract.RefreshAnswer, error) {})
	w.at(time.Minute, func() {
		w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: self, Era: 1, ChangedAt: w.env.Now()})
		signalConnection(w, failAgain(inEra(1), 2*time.Minute, time.Hour))
	})
	var answer contract.RefreshAnswer
	ask(w, 3*time.Minute, contract.UpdateRefreshCredentials, seen(1), func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		answer = a
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, int64(2), answer.Generation)
	require.Equal(t, int64(1), w.issuer.asked[1].Seen)
}

// What an old refresh token was refused for says nothing of the credentials that came after it.
func TestARefusedRefreshOfAnEndedEraIsNotCountedInTheNewOne(t *testing.T) {
	for name, begin := range map[string]func(w *world[resilience.Connection]){
		"new credentials": func(w *world[resilience.Connection]) {
			w.at(3*time.Second, func() {
				w.env.SignalWorkflow(contract.SignalCredentialsChanged, contract.CredentialsChanged{Entity: self, Era: 1, ChangedAt: w.env.Now()})
			})
		},
		"a reset": func(w *world[resilience.Connection]) {
			w.reset(3*time.Second, "by hand", func(contract.Answer, error) {})
		},
	} {
		w := connectionWorld(t)
		issues(w, 5*time.Second, refused(0)) // the first failure is for good
		observe(w, 0, failed(0, time.Minute))
		var answer contract.RefreshAnswer
		ask(w, time.Second, contract.UpdateRefreshCredentials, seen(3), func(a contract.RefreshAnswer, err error) {
			require.NoError(t, err, name)
			answer = a
		})
		begin(w)
		runConnection(w, nil)

		require.NoError(t, w.env.GetWorkflowError(), name)
		require.Less(t, w.ranFor(), time.Minute, name)
		require.Equal(t, contract.RefreshUntried, answer.Outcome, name)
		require.Equal(t, "the credentials were replaced or reset meanwhile", answer.Reason, name)
		require.Equal(t, int64(1), w.table.standing().Era, name)
		require.True(t, w.table.standing().State.Settled(), name)
	}
}

// Why nobody could try is shown, and counted against nobody: it is not the account's fault.
func TestARefreshThatCouldNotBeTriedIsToldAndNotCounted(t *testing.T) {
	w := connectionWorld(t)
	issues(w, 0, contract.Refreshed{Outcome: contract.RefreshUntried, Reason: "the token endpoint refused the provider's client: invalid_client"})
	state := expired(resilience.Connection{}, 0)
	observe(w, 0, locked(state, models.LockModel, "gpt-x", 0, time.Hour)) // so that the workflow lives on
	w.at(10*time.Minute, func() {
		require.Contains(t, w.state().Sentence, "ready since 10:35:00 UTC, on trial after 401 expired from openai, "+
			"the last refresh failed: the token endpoint refused the provider's client: invalid_client; 1 model locked")
		require.Equal(t, 1, w.state().State.Expiries.Count)
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	require.Len(t, w.issuer.asked, 1)
}

// A replica that polls goes on sending the old token for a while, and its refusal comes after
// the renewal. The workflow may have ended by then: the row remembers what was renewed.
func TestARefusalOfATokenThatHasBeenRenewedSinceIsAnsweredAtOnce(t *testing.T) {
	lags := func(c resilience.Connection, after time.Duration) resilience.Connection {
		next, changed := c.Fail(resilience.Failure{
			At: morning.Add(after), Dispatched: morning.Add(after), Reason: models.ReasonExpired, Status: 401, Token: 3,
		}, policy)
		require.True(t, changed)
		return next
	}
	w := connectionWorld(t)
	issues(w, time.Second, renewed(4))
	ask(w, 0, contract.UpdateRefreshCredentials, seen(3), func(a contract.RefreshAnswer, err error) {
		require.NoError(t, err)
		require.True(t, a.Published)
	})
	runConnection(w, nil)
	require.NoError(t, w.env.GetWorkflowError())
	row := w.table.standing()
	require.Equal(t, int64(4), row.State.Renewed)
	require.Less(t, w.ranFor(), 10*time.Second, "the workflow has ended")

	late := connectionWorld(t)
	late.table.put(row)
	observe(late, 0, locked(resilience.Connection{}, models.LockModel, "gpt-x", 0, time.Hour))
	observe(late, 4*time.Second, lags(resilience.Connection{}, 4*time.Second))
	late.at(5*time.Second, func() {
		require.Equal(t, "ready; 1 model locked: gpt-x until 11:30:00 UTC (429 rate_limit_exceeded)", late.state().Sentence)
		heard := resilience.JoinConnection(lags(resilience.Connection{}, 4*time.Second), late.table.standing().State)
		require.True(t, heard.Cooldown.Settled(), "the replica hears that it was nothing")
		require.Zero(t, heard.Expiries.Count)
	})
	runConnection(late, nil)
	require.NoError(t, late.env.GetWorkflowError())
	require.Empty(t, late.issuer.asked)
}
