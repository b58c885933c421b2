package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

// world is one breaker, the attempts under way, and what must be true of them, kept by a
// bookkeeping that knows nothing of the breaker's inside.
type world struct {
	policy  BreakerPolicy
	breaker Breaker
	now     time.Time
	sent    []Ticket
	// probe is the ticket that holds the half-open place and its deadline.
	probe    Ticket
	deadline time.Time
}

func (w *world) admit(t *rapid.T) {
	state := w.breaker.State(w.now)
	next, ticket, ok, retryAt := w.breaker.Admit(w.policy, w.now)
	switch state {
	case BreakerClosed, BreakerDegraded:
		require.True(t, ok)
		require.False(t, ticket.Probe)
	case BreakerOpen:
		require.False(t, ok, "open lets nothing through")
		require.Equal(t, w.breaker.Opening().Until, retryAt)
	case BreakerHalfOpen:
		require.Equal(t, !w.now.Before(w.deadline), ok, "exactly one probe at a time, and never none for ever")
		require.Equal(t, ok, ticket.Probe)
		if ok {
			w.probe, w.deadline = ticket, w.now.Add(w.policy.ProbeTimeout)
		} else {
			require.Equal(t, w.deadline, retryAt)
		}
	}
	if ok {
		w.sent = append(w.sent, ticket)
	} else {
		require.True(t, retryAt.After(w.now))
	}
	w.breaker = next
	require.Equal(t, state, w.breaker.State(w.now), "asking moves nothing")
}

func (w *world) report(t *rapid.T) {
	if len(w.sent) == 0 {
		return
	}
	i := rapid.IntRange(0, len(w.sent)-1).Draw(t, "which")
	ticket := w.sent[i]
	w.sent = append(w.sent[:i:i], w.sent[i+1:]...)
	r := Result{
		Outcome:           rapid.SampledFrom([]Outcome{Succeeded, Failed, Failed, Failed, Ignored}).Draw(t, "outcome"),
		Connection:        rapid.SampledFrom([]models.ConnectionID{"c1", "c2", "c3"}).Draw(t, "connection"),
		UsableConnections: rapid.IntRange(1, 3).Draw(t, "usable"),
	}
	before, opening := w.breaker.State(w.now), w.breaker.Opening()
	next, changed := w.breaker.Report(ticket, r, w.policy, w.now)
	after := next.State(w.now)
	require.Equal(t, !next.Opening().Equal(opening), changed, "changed says so exactly when the shared part moved")
	require.True(t, JoinOpening(opening, next.Opening()).Equal(next.Opening()), "what is known is never taken back")

	current := ticket.Probe && ticket == w.probe
	switch {
	case before == BreakerOpen:
		require.False(t, changed, "nothing moves an open breaker's end")
	case before == BreakerHalfOpen && !current:
		require.False(t, changed, "only the probe that holds the place decides")
	case before == BreakerHalfOpen && r.Outcome == Succeeded:
		require.Equal(t, BreakerClosed, after)
		require.True(t, next.Quiet())
	case before == BreakerHalfOpen && r.Outcome == Failed:
		require.Equal(t, BreakerOpen, after)
		require.Equal(t, opening.Cycle+1, next.Opening().Cycle)
	case changed:
		require.Equal(t, BreakerOpen, after)
		require.Equal(t, 1, next.Opening().Cycle)
		require.GreaterOrEqual(t, next.Opening().Failures, w.policy.FailureThreshold)
	}
	if after == BreakerOpen {
		open := next.Opening().Until.Sub(next.Opening().OpenedAt)
		require.GreaterOrEqual(t, open, w.policy.ResetTimeout)
		require.LessOrEqual(t, open, w.policy.ResetTimeout*time.Duration(w.policy.MaxBackoffMultiplier)+time.Millisecond)
	}
	if current {
		w.probe, w.deadline = Ticket{}, time.Time{}
	}
	w.breaker = next
	require.LessOrEqual(t, len(w.breaker.failures), w.policy.FailureThreshold, "the window is bounded")
}

// hear takes in what another replica says: its opening, its closing, or an operator's reset.
func (w *world) hear(t *rapid.T) {
	other := w.breaker.Opening()
	switch rapid.SampledFrom([]string{"opened", "closed", "reset", "old"}).Draw(t, "news") {
	case "opened":
		other.OpenedAt, other.Cycle = w.now, 1
		other.Until = w.now.Add(w.policy.ResetTimeout)
	case "closed":
		other.ClosedAt = w.now
	case "reset":
		other = other.Enter(other.Era+1, w.now)
	case "old":
		other = Opening{}
	}
	before := w.breaker.Opening()
	w.breaker = w.breaker.Merge(other)
	require.True(t, w.breaker.Opening().Equal(JoinOpening(before, other)))
	if !w.breaker.Opening().Equal(before) && (before.opened() != other.opened() || !before.OpenedAt.Equal(other.OpenedAt) || before.Era != other.Era) {
		w.probe, w.deadline = Ticket{}, time.Time{}
	}
}

func TestNoSequenceOfEventsBreaksTheBreaker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{now: noon, policy: BreakerPolicy{
			FailureThreshold: rapid.IntRange(1, 6).Draw(t, "threshold"), DegradationThreshold: rapid.IntRange(1, 5).Draw(t, "degradation"),
			ResetTimeout: 3 * time.Second, Window: 5 * time.Second, ProbeTimeout: 2 * time.Second,
			MaxBackoffMultiplier: rapid.IntRange(1, 8).Draw(t, "multiplier"), BackoffEscalationCount: rapid.IntRange(0, 3).Draw(t, "escalation"),
		}}
		t.Repeat(map[string]func(*rapid.T){
			"admit":  w.admit,
			"report": w.report,
			"hear":   w.hear,
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 2500).Draw(t, "ms")) * time.Millisecond)
			},
		})
	})
}
