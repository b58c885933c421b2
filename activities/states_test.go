package activities_test

import (
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/activities"
	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/models/store"
	"omniroute/workflows/contract"
)

var (
	self    = contract.Entity{Provider: "openai", Connection: "openai-1"}
	morning = time.Date(2026, 3, 2, 10, 30, 0, 0, time.UTC)
	policy  = resilience.ConnectionPolicy{Cooldown: resilience.Settings{}.CooldownPolicy(models.ClassAPIKey)}
)

// states are the activities on a real database.
func states(t *testing.T) activities.States {
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "omniroute.db"), nil, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return activities.States{Store: s}
}

func failedAt(after time.Duration, from resilience.Connection) resilience.Connection {
	next, _ := from.Fail(resilience.Failure{
		At: morning.Add(after), Reason: models.ReasonRateLimited, Status: 429, Jitter: 0.37,
	}, policy)
	return next
}

func TestAPublishedConnectionIsLoadedExactlyAsItWas(t *testing.T) {
	a := states(t)
	none, err := a.LoadConnection(t.Context(), self)
	require.NoError(t, err)
	require.Zero(t, none)

	state := failedAt(0, resilience.Connection{Cooldown: resilience.Cooldown{Era: 4}})
	state, _ = state.Succeed("gpt-x", "", morning.Add(time.Second))
	state = failedAt(time.Minute, state)
	state, _ = state.Fail(resilience.Failure{At: morning.Add(time.Hour), Terminal: models.PhaseBanned, Status: 403}, policy)
	row := contract.Row[resilience.Connection]{Stamp: models.Stamp{Era: 4, Version: 9}, State: state, AppliedThrough: morning.Add(time.Hour)}
	stored, err := a.PublishConnection(t.Context(), contract.Publish[resilience.Connection]{Entity: self, Row: row})
	require.NoError(t, err)
	require.Nil(t, stored.State, "who sent it knows it")
	loaded, err := a.LoadConnection(t.Context(), self)
	require.NoError(t, err)
	for _, got := range []contract.Row[resilience.Connection]{stored.Row(row.State), loaded} {
		require.Equal(t, row.Stamp, got.Stamp)
		require.True(t, got.State.Equal(row.State), "a workflow that compares must not publish for ever: %+v", got.State)
		require.True(t, got.AppliedThrough.Equal(row.AppliedThrough))
	}
}

func TestAnOlderRowIsAnsweredWithTheOneThatStands(t *testing.T) {
	a := states(t)
	publish := func(stamp models.Stamp, state resilience.Connection) contract.Stood[resilience.Connection] {
		row, err := a.PublishConnection(t.Context(), contract.Publish[resilience.Connection]{
			Entity: self, Row: contract.Row[resilience.Connection]{Stamp: stamp, State: state, AppliedThrough: state.Evidence()},
		})
		require.NoError(t, err)
		return row
	}
	first, second := failedAt(0, resilience.Connection{}), failedAt(time.Hour, resilience.Connection{})
	publish(models.Stamp{Version: 5}, first)
	for _, stamp := range []models.Stamp{{Version: 4}, {Version: 5}} {
		row := publish(stamp, second)
		require.Equal(t, models.Stamp{Version: 5}, row.Stamp)
		require.NotNil(t, row.State)
		require.True(t, row.State.Equal(first))
	}
	inNewEra := second
	inNewEra.Cooldown.Era = 1
	require.Equal(t, models.Stamp{Era: 1, Version: 1}, publish(models.Stamp{Era: 1, Version: 1}, inNewEra).Stamp)
}

func TestAPublishedOpeningIsLoadedExactlyAsItWas(t *testing.T) {
	a := states(t)
	none, err := a.LoadProvider(t.Context(), contract.Entity{Provider: "openai"})
	require.NoError(t, err)
	require.Zero(t, none)

	row := contract.Row[resilience.Provider]{
		Stamp: models.Stamp{Era: 1, Version: 3},
		State: resilience.Provider{Opening: resilience.Opening{
			Era: 1, OpenedAt: morning, Until: morning.Add(33 * time.Millisecond), Cycle: 3, Reason: models.ReasonServerError,
			Status: 503, Failures: 12, ClosedAt: morning.Add(-time.Hour),
		}},
		AppliedThrough: morning,
	}
	stored, err := a.PublishProvider(t.Context(), contract.Publish[resilience.Provider]{Entity: contract.Entity{Provider: "openai"}, Row: row})
	require.NoError(t, err)
	require.Nil(t, stored.State, "who sent it knows it")
	loaded, err := a.LoadProvider(t.Context(), contract.Entity{Provider: "openai"})
	require.NoError(t, err)
	for _, got := range []contract.Row[resilience.Provider]{stored.Row(row.State), loaded} {
		require.Equal(t, row.Stamp, got.Stamp)
		require.True(t, got.State.Equal(row.State), "%+v", got.State)
		require.True(t, got.AppliedThrough.Equal(row.AppliedThrough))
	}
}

func TestADatabaseThatIsAwayIsAnErrorOfTheActivity(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "omniroute.db"), nil, log)
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	a := activities.States{Store: s}
	_, err = a.LoadConnection(t.Context(), self)
	require.Error(t, err)
	_, err = a.PublishProvider(t.Context(), contract.Publish[resilience.Provider]{Entity: self})
	require.Error(t, err)
}
