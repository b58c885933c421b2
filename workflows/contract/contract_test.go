package contract_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

var (
	morning = time.Date(2026, 3, 2, 10, 30, 0, 0, time.UTC)
	policy  = resilience.Settings{}.CooldownPolicy(models.ClassAPIKey)
)

func TestEveryEntityHasAWorkflowIdOfItsOwn(t *testing.T) {
	ids := map[string]bool{}
	for _, id := range []string{"openai-1", "a/b", "connection/x", "provider/x", "x"} {
		ids[contract.ConnectionWorkflowID(models.ConnectionID(id))] = true
		ids[contract.ProviderWorkflowID(models.ProviderID(id))] = true
	}
	require.Len(t, ids, 10)
	require.True(t, ids["connection/openai-1"] && ids["provider/openai-1"], "the ids that operators search for")
}

func TestSeverityFollowsWhatAChangeSays(t *testing.T) {
	cooling, _ := resilience.Cooldown{}.Fail(resilience.Failure{At: morning, Reason: models.ReasonRateLimited}, policy)
	banned, _ := cooling.Fail(resilience.Failure{At: morning, Terminal: models.PhaseBanned}, policy)
	cleared, _ := cooling.Succeed(morning.Add(time.Second))
	open := resilience.Opening{OpenedAt: morning, Until: morning.Add(time.Minute), Cycle: 1}
	closed := open
	closed.ClosedAt = morning.Add(time.Second)
	for _, c := range []struct {
		change contract.Change
		want   string
	}{
		{contract.Change{Kind: contract.KindConnection, Health: in(banned)}, "terminal"},
		{contract.Change{Kind: contract.KindConnection, Health: in(cooling)}, "cooldown"},
		{contract.Change{Kind: contract.KindProvider, Breaker: resilience.Provider{Opening: open}}, "breaker"},
		{contract.Change{Kind: contract.KindConnection, Health: in(cleared)}, "recovery"},
		{contract.Change{Kind: contract.KindConnection, Health: in(resilience.Cooldown{Era: 1})}, "recovery"},
		{contract.Change{Kind: contract.KindProvider, Breaker: resilience.Provider{Opening: closed}}, "recovery"},
	} {
		c.change.At = morning
		require.Equal(t, c.want, c.change.Severity().String())
	}
	require.True(t, contract.SeverityTerminal > contract.SeverityCooldown && contract.SeverityCooldown > contract.SeverityBreaker &&
		contract.SeverityBreaker > contract.SeverityRecovery)
}

// What waits may be merged in any order and more than once; the outcome is the same.
func TestMergingChangesIsFreeOfOrderAndRepetition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes := rapid.SliceOfN(rapid.Custom(change), 1, 6).Draw(t, "changes")
		want := changes[0]
		for _, c := range changes[1:] {
			want = want.Merge(c)
		}
		order := rapid.Permutation(append(changes, changes...)).Draw(t, "order")
		got := order[0]
		for _, c := range order[1:] {
			got = got.Merge(c)
		}
		require.True(t, got.Health.Equal(want.Health))
		require.True(t, got.Breaker.Equal(want.Breaker))
		require.True(t, got.At.Equal(want.At), "the latest observation dates the whole")
		require.Equal(t, want.Key(), got.Key())
	})
}

// What has been delivered is left out of the next message, and nothing is lost by that.
func TestTheNewsOfAChangeJoinedWithWhatWasDeliveredAreTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delivered, next := change(t), change(t)
		whole := delivered.Merge(next)
		news, found := next.News(delivered)
		if !found {
			require.True(t, whole.Health.Equal(delivered.Health))
			require.True(t, whole.Breaker.Equal(delivered.Breaker))
		}
		got := delivered.Merge(news)
		require.True(t, got.Health.Equal(whole.Health), "%+v and %+v", delivered.Health, news.Health)
		require.True(t, got.Breaker.Equal(whole.Breaker))
		_, again := whole.News(whole)
		require.False(t, again)
	})
}

func TestNewsAreWhatIsNewAndTheFirstChangeAndAMoveAreWhole(t *testing.T) {
	policy := resilience.CooldownPolicy{Base: time.Minute, Max: time.Hour}
	lock := func(c resilience.Connection, name string) resilience.Connection {
		next, changed := c.FailModel(resilience.LockKey{Scope: models.LockModel, Name: name}, resilience.Failure{At: morning}, policy)
		require.True(t, changed)
		return next
	}
	one := contract.Change{Kind: contract.KindConnection, Connection: "openai-1", Provider: "openai", Health: lock(resilience.Connection{}, "gpt-x"), At: morning}
	two := one
	two.Health = lock(one.Health, "gpt-y")

	first, _ := two.News(contract.Change{})
	require.Len(t, first.Health.Lockouts, 2)
	next, _ := two.News(one)
	require.Len(t, next.Health.Lockouts, 1)
	require.Equal(t, "gpt-y", next.Health.Lockouts[0].Name)
	moved := two
	moved.Provider = "azure"
	whole, found := moved.News(two)
	require.True(t, found)
	require.Len(t, whole.Health.Lockouts, 2)
}

func change(t *rapid.T) contract.Change {
	at := morning.Add(time.Duration(rapid.Int64Range(0, 3_600_000).Draw(t, "ms")) * time.Millisecond)
	state, _ := resilience.Cooldown{Era: rapid.Int64Range(0, 2).Draw(t, "era")}.Fail(resilience.Failure{
		At: at, Reason: models.ReasonRateLimited, Hint: time.Duration(rapid.IntRange(0, 100).Draw(t, "hint")) * time.Second,
	}, policy)
	if rapid.Bool().Draw(t, "cleared") {
		state, _ = state.Succeed(at.Add(time.Second))
	}
	health := in(state)
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"gpt-x", "gpt-y", "gpt-z"}), 0, 3, rapid.ID[string]).Draw(t, "locked") {
		health, _ = health.FailModel(resilience.LockKey{Scope: models.LockExact, Name: name}, resilience.Failure{At: at, Reason: models.ReasonServerError}, policy)
	}
	return contract.Change{
		Kind: contract.KindConnection, Connection: "openai-1", Provider: "openai", Health: health, At: at,
		Breaker: resilience.Provider{
			Opening: resilience.Opening{OpenedAt: at, Until: at.Add(time.Minute), Cycle: rapid.IntRange(1, 3).Draw(t, "cycle")},
		},
	}
}

// in is a connection of which only the cooldown is known.
func in(c resilience.Cooldown) resilience.Connection { return resilience.Connection{Cooldown: c} }
