package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

func TestAReplicasOwnMemoryMovesWithItsClock(t *testing.T) {
	const step = -time.Hour
	p := apiKeyBreaker
	b := failing(t, Breaker{}, 11, noon)
	moved := b.Shift(step)
	end := after(p.Window)
	require.Equal(t, b.Failures(end.Add(-1)), moved.Failures(end.Add(step-1)))
	require.Zero(t, moved.Failures(end.Add(step)))
	require.Equal(t, 11, b.Failures(end.Add(-1)), "a breaker is a value")

	open := opened(t)
	open, probe, _, _ := open.Admit(p, after(30*time.Second))
	moved = open.Shift(step)
	_, _, ok, retryAt := moved.Admit(p, after(30*time.Second+step))
	require.False(t, ok, "the probe keeps its place")
	require.Equal(t, after(time.Minute+step), retryAt)
	moved, changed := moved.Report(probe, good(c1), p, after(31*time.Second+step))
	require.True(t, changed)
	require.Equal(t, BreakerClosed, moved.State(after(31*time.Second+step)))

	gate := WindowPolicy{Enabled: true, Failures: 3, Within: time.Minute}
	w, _ := Window{}.Fail(noon, gate)
	require.Equal(t, 1, w.Shift(step).Failures(after(step+59*time.Second), gate))
	require.Zero(t, w.Shift(step).Failures(after(step+time.Minute), gate))
	require.Equal(t, 1, w.Failures(after(59*time.Second), gate))
}

func TestABreakerThatForgetsIsNewAndWhatIsUnderWayIsLate(t *testing.T) {
	b, ticket, _, _ := failing(t, Breaker{}, 11, noon).Admit(apiKeyBreaker, noon)
	b = b.Forget()
	require.True(t, b.Quiet())
	b, changed := b.Report(ticket, unavailable(c1), apiKeyBreaker, noon)
	require.False(t, changed)
	require.True(t, b.Quiet())
	require.Zero(t, opened(t).Forget().Opening())
}

func TestAConnectionIsLockedWhenNothingButModelsAreOut(t *testing.T) {
	require.Equal(t, models.PhaseReady, Connection{}.Phase(noon))
	c := failModel(t, Connection{}, m1, rateLimited(noon), apiKey)
	require.Equal(t, models.PhaseLocked, c.Phase(noon))
	require.Equal(t, models.PhaseReady, c.Phase(after(3*time.Second)))
	require.Equal(t, models.PhaseCooling, failConnection(t, c, rateLimited(noon), accountPolicy).Phase(noon))
}

func TestTheEvidenceOfAConnectionIsTheLatestOfAllItsParts(t *testing.T) {
	require.True(t, Connection{}.Evidence().IsZero())
	c := failConnection(t, Connection{}, rateLimited(noon), accountPolicy)
	require.Equal(t, noon, c.Evidence())
	c = failModel(t, c, m1, rateLimited(after(time.Second)), apiKey)
	require.Equal(t, after(time.Second), c.Evidence())
	p := accountPolicy
	p.NoCooldown = true
	c = failConnection(t, c, rejected(after(2*time.Second)), p)
	require.Equal(t, after(2*time.Second), c.Evidence())
	c = failConnection(t, c, unauthorized(after(3*time.Second)), p)
	require.Equal(t, after(3*time.Second), c.Evidence())
	c, _ = c.ClearCooldown(after(4 * time.Second))
	require.Equal(t, after(4*time.Second), c.Evidence())
	c, _ = c.Enable([]LockKey{m1}, after(5*time.Second))
	require.Equal(t, after(5*time.Second), c.Evidence())
}
