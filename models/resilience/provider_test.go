package resilience

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

var apiKeyGate = gatePolicies[models.ClassAPIKey]

func TestTheGateStaysShutForItsCooldownAndFailuresThatGoOnExtendNothing(t *testing.T) {
	f := Failure{At: noon, Reason: models.ReasonServerError, Status: 503, Hint: time.Hour}
	p, changed := Provider{}.Trip(f, apiKeyGate)
	require.True(t, changed)
	require.Equal(t, Standing{
		Phase: models.PhaseCooling, Reason: models.ReasonServerError, Status: 503, Level: 1, Until: after(10 * time.Minute),
	}, p.Gate.Standing(noon))
	require.True(t, p.Hold.Settled())
	require.False(t, p.Dormant(noon))

	f.At = after(9 * time.Minute)
	same, changed := p.Trip(f, apiKeyGate)
	require.False(t, changed)
	require.True(t, same.Equal(p))

	f.At = after(10 * time.Minute)
	require.True(t, p.Dormant(f.At), "it opens by itself")
	p, changed = p.Trip(f, apiKeyGate)
	require.True(t, changed)
	require.Equal(t, after(20*time.Minute), p.Next(f.At), "for the same time again")

	t.Run("a success sent after it was shut opens it", func(t *testing.T) {
		_, changed := p.Succeed(after(10 * time.Minute))
		require.False(t, changed)
		p, changed := p.Succeed(after(10*time.Minute + time.Millisecond))
		require.True(t, changed)
		require.True(t, p.Dormant(after(11*time.Minute)) && p.Settled())
	})
	t.Run("by a replica that has not heard of it, for little longer", func(t *testing.T) {
		other, _ := Provider{}.Trip(Failure{At: after(time.Second)}, apiKeyGate)
		first, _ := Provider{}.Trip(Failure{At: noon}, apiKeyGate)
		require.Equal(t, after(10*time.Minute+time.Second), JoinProvider(first, other).Next(noon))
	})
}

func TestARuleHoldsAWholeProviderAndNothingIsForGood(t *testing.T) {
	f := rateLimited(noon)
	f.Fixed, f.Terminal = time.Minute, models.PhaseBanned
	p, changed := Provider{}.Fail(f, apiKey)
	require.True(t, changed)
	require.Equal(t, after(time.Minute), p.Next(noon))
	require.True(t, p.Gate.Settled())
	require.Empty(t, p.Hold.Terminal)
	p, changed = p.Succeed(after(time.Second))
	require.True(t, changed)
	require.True(t, p.Settled())
}

func TestAProvidersResetBeginsAnEraForAllItsParts(t *testing.T) {
	p, _ := Provider{}.Fail(rateLimited(noon), apiKey)
	p, _ = p.Trip(rateLimited(noon), apiKeyGate)
	p.Opening = opened(t).Opening()
	require.Equal(t, after(3*time.Second), p.Next(noon))
	require.Equal(t, after(30*time.Second), p.Next(after(3*time.Second)), "then the breaker is half open")
	require.False(t, p.Dormant(after(time.Hour)), "a breaker that nobody has tried is not closed")
	require.False(t, p.Settled())

	for _, part := range []Provider{{Hold: p.Hold}, {Gate: p.Gate}, {Opening: p.Opening}} {
		require.False(t, part.Settled() || part.Dormant(noon))
	}

	fresh := p.Reset(after(time.Second))
	require.EqualValues(t, 1, fresh.Era())
	require.True(t, fresh.Settled() && fresh.Dormant(after(time.Second)))
	require.True(t, JoinProvider(p, fresh).Equal(fresh))
	require.True(t, fresh.Enter(1, after(time.Hour)).Equal(fresh))
	require.Equal(t, after(time.Second), fresh.Evidence())

	before := rateLimited(after(2 * time.Second))
	before.Dispatched, before.Hint = noon, time.Hour
	_, changed := fresh.Fail(before, apiKey)
	require.False(t, changed, "what was sent before it is not counted in it")
	next, changed := fresh.Fail(rateLimited(after(2*time.Second)), apiKey)
	require.True(t, changed)
	require.True(t, JoinProvider(fresh, next).Equal(next))
}

func TestProvidersJoinAndNothingIsLostOnTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := make([]Provider, 3)
		now := noon
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			i := rapid.IntRange(0, 2).Draw(t, "replica")
			f := anyFailure.Draw(t, "failure")
			f.At, f.Dispatched = now, now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "ago"))*time.Second)
			before := replicas[i]
			next, changed := before, true
			switch rapid.SampledFrom([]string{"fail", "trip", "succeed", "open", "hear", "hear", "reset"}).Draw(t, "event") {
			case "fail":
				next, changed = before.Fail(f, anyPolicy.Draw(t, "policy"))
				require.False(t, outUntil(next.Hold, now).Before(outUntil(before.Hold, now)))
			case "trip":
				next, changed = before.Trip(f, WindowPolicy{Cooldown: 3 * time.Second})
				require.False(t, !before.Gate.Dormant(now) && changed, "its end is fixed")
				require.False(t, outUntil(next.Gate, now).After(now.Add(3*time.Second)))
			case "succeed":
				next, changed = before.Succeed(f.Dispatched)
			case "open":
				b, ticket, ok, _ := Breaker{}.Merge(before.Opening).Admit(BreakerPolicy{}, now)
				if !ok {
					continue
				}
				b, changed = b.Report(ticket, Result{Outcome: Failed}, BreakerPolicy{FailureThreshold: 1, ResetTimeout: time.Second}, now)
				next.Opening = b.Opening()
			case "hear":
				next = JoinProvider(before, replicas[rapid.IntRange(0, 2).Draw(t, "from")])
				changed = !next.Equal(before)
			case "reset":
				next = before.Reset(now)
			}
			require.Equal(t, !next.Equal(before), changed)
			require.True(t, JoinProvider(before, next).Equal(next), "what is known is not lost on the way")
			require.True(t, SeenProvider(next, before))
			replicas[i] = next
		}
		a, b, c := replicas[0], replicas[1], replicas[2]
		require.True(t, JoinProvider(a, a).Equal(a))
		require.True(t, JoinProvider(a, b).Equal(JoinProvider(b, a)))
		require.True(t, JoinProvider(JoinProvider(a, b), c).Equal(JoinProvider(a, JoinProvider(b, c))))
		require.True(t, JoinProvider(Provider{}, a).Equal(a))
		require.True(t, a.Shift(time.Hour).Shift(-time.Hour).Equal(a))
		if next := a.Next(now); !next.IsZero() {
			require.True(t, next.After(now))
			require.False(t, a.Dormant(now))
		}
		text, err := json.Marshal(a)
		require.NoError(t, err)
		var back Provider
		require.NoError(t, json.Unmarshal(text, &back))
		require.True(t, back.Equal(a), "a state survives storage unchanged")
	})
}
