package workflows_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

var breakerPolicy = resilience.BreakerPolicy{
	FailureThreshold: 3, DegradationThreshold: 2, ResetTimeout: 30 * time.Second, Window: 2 * time.Minute,
	ProbeTimeout: 30 * time.Second, MaxBackoffMultiplier: 4, BackoffEscalationCount: 3,
}

// opened is a breaker that has just opened, after three failures.
func opened(after time.Duration) resilience.Breaker {
	var b resilience.Breaker
	now := morning.Add(after)
	for range breakerPolicy.FailureThreshold {
		next, ticket, _, _ := b.Admit(breakerPolicy, now)
		b, _ = next.Report(ticket, resilience.Result{
			Outcome: resilience.Failed, Connection: openai1, UsableConnections: 1, Reason: models.ReasonServerError, Status: 503,
		}, breakerPolicy, now)
	}
	return b
}

func openingSeen(w *world[resilience.Provider], after time.Duration, o resilience.Opening) {
	w.at(after, func() {
		name := contract.SignalFailureObserved
		if o.State(w.env.Now()) == resilience.BreakerClosed {
			name = contract.SignalRecoveryObserved
		}
		w.env.SignalWorkflow(name, contract.Observed[resilience.Provider]{
			Entity: contract.Entity{Provider: openai}, State: resilience.Provider{Opening: o},
		})
	})
}

func runProvider(w *world[resilience.Provider]) {
	w.env.ExecuteWorkflow(contract.WorkflowProvider, contract.Start[resilience.Provider]{Entity: contract.Entity{Provider: openai}})
	require.True(w.t, w.env.IsWorkflowCompleted())
}

func TestAnOpeningIsSharedOnceAndItsWorkflowEndsWhenProbingMayBegin(t *testing.T) {
	w := providerWorld(t)
	opening := opened(0).Opening()
	openingSeen(w, 0, opening)
	openingSeen(w, time.Second, opening) // another replica saw the same
	w.at(5*time.Second, func() {
		require.Equal(t, "open until 10:30:30 UTC after 3 failures, the last 503 server_error from openai, cycle 1", w.state().Sentence)
	})
	runProvider(w)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 30*time.Second, w.ranFor())
	require.Equal(t, []int64{1}, versions(w.table.writes()), "turning half-open is read from the row's deadline")
	require.Equal(t, "HALF_OPEN", w.shown[len(w.shown)-1][contract.AttributePhase])
}

func TestAClosingOverridesTheOpeningItFollowed(t *testing.T) {
	w := providerWorld(t)
	b := opened(0)
	probing, ticket, ok, _ := b.Admit(breakerPolicy, morning.Add(30*time.Second))
	require.True(t, ok)
	closed, _ := probing.Report(ticket, resilience.Result{Outcome: resilience.Succeeded}, breakerPolicy, morning.Add(31*time.Second))
	w.at(0, func() {})
	openingSeen(w, 0, closed.Opening()) // the closing overtakes the opening
	openingSeen(w, 0, b.Opening())
	runProvider(w)

	require.NoError(t, w.env.GetWorkflowError())
	require.Less(t, w.ranFor(), time.Second)
	require.Equal(t, resilience.BreakerClosed, w.table.standing().State.Opening.State(w.env.Now()))
}

func TestAResetClosesABreakerInANewEra(t *testing.T) {
	w := providerWorld(t)
	openingSeen(w, 0, opened(0).Opening())
	var answer contract.Answer
	w.reset(10*time.Second, "r", func(r contract.Answer, err error) {
		require.NoError(t, err)
		answer = r
	})
	runProvider(w)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, contract.Answer{Era: 1, Published: true}, answer)
	require.Less(t, w.ranFor(), 11*time.Second)
	require.Equal(t, models.Stamp{Era: 1, Version: 2}, w.table.standing().Stamp)
}

// held is a provider that a rule keeps away, gated one that the window gate keeps combos from.
func held(p resilience.Provider, after, lasts time.Duration) resilience.Provider {
	next, changed := p.Fail(resilience.Failure{
		At: morning.Add(after), Reason: models.ReasonQuotaExhausted, Status: 429, Fixed: lasts,
	}, policy.Cooldown)
	if !changed {
		panic("the failure changes nothing: the test's world is wrong")
	}
	return next
}

func gated(p resilience.Provider, after, lasts time.Duration) resilience.Provider {
	next, changed := p.Trip(resilience.Failure{At: morning.Add(after), Reason: models.ReasonServerError, Status: 503},
		resilience.WindowPolicy{Enabled: true, Failures: 1, Within: time.Minute, Cooldown: lasts})
	if !changed {
		panic("the failure changes nothing: the test's world is wrong")
	}
	return next
}

func providerSeen(w *world[resilience.Provider], after time.Duration, p resilience.Provider) {
	w.at(after, func() {
		w.env.SignalWorkflow(contract.SignalFailureObserved, contract.Observed[resilience.Provider]{
			Entity: contract.Entity{Provider: openai}, State: p,
		})
	})
}

func TestWhatKeepsAProviderAwayIsToldTogetherAndEachEndsByItself(t *testing.T) {
	w := providerWorld(t)
	providerSeen(w, 0, gated(held(resilience.Provider{Opening: opened(0).Opening()}, 0, 2*time.Minute), 0, 5*time.Minute))
	for at, want := range map[time.Duration][2]string{
		time.Second: {"OPEN", "open until 10:30:30 UTC after 3 failures, the last 503 server_error from openai, cycle 1; " +
			"every request held until 10:32:00 UTC, 429 quota_exhausted from openai; combos stay away until 10:35:00 UTC, 503 server_error from openai"},
		time.Minute: {"HELD", "half-open since 10:30:30 UTC, waiting for a probe to succeed; " +
			"every request held until 10:32:00 UTC, 429 quota_exhausted from openai; combos stay away until 10:35:00 UTC, 503 server_error from openai"},
		3 * time.Minute: {"GATED", "half-open since 10:30:30 UTC, waiting for a probe to succeed; combos stay away until 10:35:00 UTC, 503 server_error from openai"},
	} {
		w.at(at, func() {
			s := w.state()
			require.Equal(t, want, [2]string{s.Phase, s.Sentence})
		})
	}
	runProvider(w)

	require.NoError(t, w.env.GetWorkflowError())
	require.Equal(t, 5*time.Minute, w.ranFor())
	require.Equal(t, []int64{1}, versions(w.table.writes()), "the ends are read from the deadlines")
	var until []any
	for _, shown := range w.shown {
		until = append(until, shown[contract.AttributeUntil])
	}
	require.Equal(t, []any{morning.Add(30 * time.Second), morning.Add(2 * time.Minute), morning.Add(5 * time.Minute), nil}, until)
	require.Equal(t, "quota_exhausted", w.shown[1][contract.AttributeReason])
}

func TestAResetOfAProviderEndsItsHoldAndItsGate(t *testing.T) {
	w := providerWorld(t)
	providerSeen(w, 0, gated(held(resilience.Provider{}, 0, time.Hour), 0, time.Hour))
	w.at(time.Second, func() {
		require.Equal(t, "every request held until 11:30:00 UTC, 429 quota_exhausted from openai; combos stay away until 11:30:00 UTC, 503 server_error from openai", w.state().Sentence)
	})
	w.reset(time.Minute, "", func(a contract.Answer, err error) {
		require.NoError(t, err)
		require.Equal(t, contract.Answer{Era: 1, Published: true}, a)
	})
	runProvider(w)
	require.NoError(t, w.env.GetWorkflowError())
	require.Less(t, w.ranFor(), 61*time.Second)
	require.True(t, w.table.standing().State.Settled())
}
