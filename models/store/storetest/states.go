package storetest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/store"
)

var stateTests = map[string]func(*testing.T, *world){
	"WhateverTheOrderOfPublicationsTheNewestStampStays": func(t *testing.T, w *world) {
		rapid.Check(t, func(rt *rapid.T) {
			id := models.ConnectionID(rapid.StringMatching(`c-[a-z0-9]{12}`).Draw(rt, "connection"))
			stamps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) models.Stamp {
				return models.Stamp{Era: rapid.Int64Range(0, 2).Draw(rt, "era"), Version: rapid.Int64Range(0, 4).Draw(rt, "version")}
			}), 1, 6).Draw(rt, "stamps")
			previous, found, err := w.store.LoadConnectionState(t.Context(), id)
			if err != nil {
				rt.Fatal(err)
			}
			newest := previous.Stamp
			for _, stamp := range stamps {
				if !found || stamp.After(newest) {
					newest, found = stamp, true
				}
				stored, err := w.store.PublishConnection(t.Context(), connectionState(id, stamp.Era, stamp.Version))
				if err != nil {
					rt.Fatal(err)
				}
				if stored.Stamp != newest {
					rt.Fatalf("after %v the row is %v, the newest is %v", stamps, stored.Stamp, newest)
				}
			}
		})
	},

	"ConcurrentPublicationsLeaveTheNewest": func(t *testing.T, w *world) {
		var group errgroup.Group
		for _, version := range rand.Perm(40) {
			group.Go(func() error {
				stored, err := w.store.PublishConnection(t.Context(), connectionState("c", 1, int64(version)))
				if err == nil && stored.Version < int64(version) {
					t.Errorf("published %d and got back the older %d", version, stored.Version)
				}
				return err
			})
		}
		require.NoError(t, group.Wait())

		stored, _, err := w.store.LoadConnectionState(t.Context(), "c")
		require.NoError(t, err)
		require.EqualValues(t, 39, stored.Version)
	},

	"ARegisterComesBackExactly": func(t *testing.T, w *world) {
		now := time.Now().Round(0)
		published := connectionState("c", 2, 7)
		published.State.Cooldown = resilience.Cooldown{
			Era: 2, SetAt: now, Level: 3, ClearedAt: now.Add(-time.Hour), Deadline: resilience.Deadline{
				FailedAt: now.Add(1), Until: now.Add(time.Minute), Reason: models.ReasonRateLimited, Status: 429, Hinted: true,
			},
		}
		published.AppliedThrough = now.Add(1)

		stored, err := w.store.PublishConnection(t.Context(), published)

		require.NoError(t, err)
		require.True(t, stored.State.Equal(published.State), "%+v", stored.State)
		require.True(t, stored.AppliedThrough.Equal(published.AppliedThrough))
		require.Equal(t, models.ProviderID("openai"), stored.Provider)
		var phase, reason string
		var level, until int64
		require.NoError(t, w.sql(t).QueryRow("SELECT phase, reason, level, until_at FROM connection_states").Scan(&phase, &reason, &level, &until))
		require.Equal(t, "cooling", phase)
		require.Equal(t, "rate_limit_exceeded", reason)
		require.EqualValues(t, 3, level)
		require.Equal(t, now.Add(time.Minute).UnixMilli(), until)
	},

	"LockedModelsComeBackExactlyAndAreAPhaseOfTheirOwn": func(t *testing.T, w *world) {
		now := time.Now()
		published := connectionState("c", 0, 1)
		published.State = resilience.Connection{Expiries: resilience.Strikes{Count: 2, At: now.UTC().Truncate(time.Millisecond)}}
		for i, scope := range []models.LockScope{models.LockExact, models.LockModel, models.LockFamily} {
			published.State, _ = published.State.FailModel(resilience.LockKey{Scope: scope, Name: "gpt-x"}, resilience.Failure{
				At: now, Reason: models.ReasonRateLimited, Status: 429, Hint: time.Duration(i+1) * time.Minute,
			}, resilience.CooldownPolicy{Base: time.Second, Max: time.Hour, UseHints: true})
		}

		stored, err := w.store.PublishConnection(t.Context(), published)

		require.NoError(t, err)
		require.Len(t, stored.State.Lockouts, 3)
		require.True(t, stored.State.Equal(published.State), "%+v", stored.State)
		var phase string
		require.NoError(t, w.sql(t).QueryRow("SELECT phase FROM connection_states").Scan(&phase))
		require.Equal(t, "locked", phase)
		w.migrateDownTo(t, 4)
		require.NoError(t, w.sql(t).QueryRow("SELECT phase FROM connection_states").Scan(&phase))
		require.Equal(t, "ready", phase, "what the version before knows")
	},

	"AProvidersCooldownsComeBackExactlyAndLeaveItsProbeAlone": func(t *testing.T, w *world) {
		before := time.Now().Add(-time.Minute)
		_, err := w.store.PublishProvider(t.Context(), providerState("p", 0, 1, before))
		require.NoError(t, err)
		won, _, err := w.store.ClaimProbe(t.Context(), "p", "prober", expired(), time.Minute)
		require.NoError(t, err)
		require.True(t, won)

		published := providerState("p", 0, 2, before)
		failure := resilience.Failure{At: time.Now(), Reason: models.ReasonQuotaExhausted, Status: 429, Hint: time.Hour}
		published.State, _ = published.State.Fail(failure, resilience.CooldownPolicy{UseHints: true})
		published.State, _ = published.State.Trip(failure, resilience.WindowPolicy{Enabled: true, Failures: 1, Cooldown: time.Minute})
		stored, err := w.store.PublishProvider(t.Context(), published)

		require.NoError(t, err)
		require.True(t, stored.State.Equal(published.State), "%+v", stored.State)
		require.False(t, stored.State.Hold.Dormant(time.Now()))
		won, _, err = w.store.ClaimProbe(t.Context(), "p", "another", expired(), time.Minute)
		require.NoError(t, err)
		require.False(t, won)
	},

	"TheTimeLeftIsByTheDatabasesClock": func(t *testing.T, w *world) {
		state := connectionState("c", 0, 1)
		state.State.Cooldown.Until = w.databaseNow(t).Add(30 * time.Second)
		stored, err := w.store.PublishConnection(t.Context(), state)
		require.NoError(t, err)
		require.InDelta(t, 30, stored.Remaining.Seconds(), 5)

		// Half a minute passes for the database only.
		_, err = w.sql(t).Exec("UPDATE connection_states SET until_at = until_at - 40000")
		require.NoError(t, err)

		later, _, err := w.store.LoadConnectionState(t.Context(), "c")
		require.NoError(t, err)
		require.InDelta(t, -10, later.Remaining.Seconds(), 5)
	},

	"StatesAreAllOfTheCatalogsOrThoseThatChangedLately": func(t *testing.T, w *world) {
		w.apply(t, basic)
		for _, id := range []models.ConnectionID{"openai-1", "other-1", "not-in-the-catalog"} {
			_, err := w.store.PublishConnection(t.Context(), connectionState(id, 0, 1))
			require.NoError(t, err)
		}
		_, err := w.store.PublishProvider(t.Context(), providerState("openai", 0, 1, time.Now()))
		require.NoError(t, err)
		_, err = w.sql(t).Exec("UPDATE connection_states SET updated_at = updated_at - 60000 WHERE connection_id = 'other-1'")
		require.NoError(t, err)

		all, err := w.store.States(t.Context(), 0)
		require.NoError(t, err)
		lately, err := w.store.States(t.Context(), 30*time.Second)
		require.NoError(t, err)

		require.True(t, all.Complete)
		require.ElementsMatch(t, []models.ConnectionID{"openai-1", "other-1"}, connectionsOf(all))
		require.Len(t, all.Providers, 1)
		require.False(t, lately.Complete)
		require.Equal(t, []models.ConnectionID{"openai-1"}, connectionsOf(lately))
		require.Len(t, lately.Providers, 1)
	},

	"APublishedStateIsToldOnlyWhenItWasNewer": func(t *testing.T, w *world) {
		changes, stop := w.store.Watch()
		defer stop()

		for range 3 {
			_, err := w.store.PublishConnection(t.Context(), connectionState("c", 0, 1))
			require.NoError(t, err)
		}

		require.Len(t, changes, 1)
		require.Equal(t, catalog.ChangedState, <-changes)
	},

	"AnOpeningComesBackExactlyAndAnOlderOneDoesNotReplaceIt": func(t *testing.T, w *world) {
		now := time.Now().Round(0)
		published := providerState("openai", 1, 5, now)

		stored, err := w.store.PublishProvider(t.Context(), published)
		require.NoError(t, err)
		require.True(t, stored.State.Equal(published.State))
		require.InDelta(t, 30, stored.Remaining.Seconds(), 5)

		older, err := w.store.PublishProvider(t.Context(), providerState("openai", 1, 4, now.Add(time.Hour)))
		require.NoError(t, err)
		require.Equal(t, models.Stamp{Era: 1, Version: 5}, older.Stamp)
		require.True(t, older.State.Equal(published.State))
		var state string
		var failures, lastFailure int64
		require.NoError(t, w.sql(t).QueryRow("SELECT state, failure_count, last_failure_time FROM domain_circuit_breakers").Scan(&state, &failures, &lastFailure))
		require.Equal(t, "OPEN", state)
		require.EqualValues(t, 12, failures)
		require.Equal(t, now.UnixMilli(), lastFailure)
	},

	"ADamagedRowCountsAsHealthyInItsEraAndTheNextPublicationHealsIt": func(t *testing.T, w *world) {
		w.apply(t, basic)
		damage := func() {
			_, err := w.store.PublishConnection(t.Context(), connectionState("other-1", 3, 8))
			require.NoError(t, err)
			_, err = w.store.PublishProvider(t.Context(), providerState("openai", 2, 5, time.Now()))
			require.NoError(t, err)
			_, err = w.sql(t).Exec("UPDATE connection_states SET state = '{'")
			require.NoError(t, err)
			_, err = w.sql(t).Exec("UPDATE domain_circuit_breakers SET opening = '[]'")
			require.NoError(t, err)
		}
		damage()

		row, found, err := w.store.LoadConnectionState(t.Context(), "other-1")
		require.NoError(t, err, "a workflow that reads it must not wait for ever")
		require.True(t, found)
		require.Equal(t, models.Stamp{Era: 3, Version: 8}, row.Stamp)
		require.Equal(t, resilience.Connection{Cooldown: resilience.Cooldown{Era: 3}}, row.State)
		require.Contains(t, w.log.LastEntry().Message, "damaged")
		opening, found, err := w.store.LoadProviderState(t.Context(), "openai")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, models.Stamp{Era: 2, Version: 5}, opening.Stamp)
		require.Equal(t, resilience.Provider{Opening: resilience.Opening{Era: 2}}, opening.State)
		states, err := w.store.States(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []models.ConnectionID{"other-1"}, connectionsOf(states), "and every replica learns of the era")

		healed := connectionState("other-1", 3, 9)
		stored, err := w.store.PublishConnection(t.Context(), healed)
		require.NoError(t, err)
		require.True(t, stored.State.Equal(healed.State))
	},

	"NewCredentialsReplaceADamagedRow": func(t *testing.T, w *world) {
		w.apply(t, basic)
		_, err := w.store.PublishConnection(t.Context(), connectionState("openai-1", 3, 8))
		require.NoError(t, err)
		_, err = w.sql(t).Exec("UPDATE connection_states SET state = 'null {'")
		require.NoError(t, err)

		w.apply(t, strings.ReplaceAll(basic, "${OPENAI_KEY}", "${OTHER_KEY}"))

		row, _, err := w.store.LoadConnectionState(t.Context(), "openai-1")
		require.NoError(t, err)
		require.Equal(t, models.Stamp{Era: 4}, row.Stamp)
		require.False(t, row.State.Cooldown.ClearedAt.IsZero(), "it says when the era began")
	},

	"AReadSaysWhatTimeTheDatabaseHas": func(t *testing.T, w *world) {
		states, err := w.store.States(t.Context(), time.Second)
		require.NoError(t, err)
		require.WithinDuration(t, w.databaseNow(t), states.Now, 5*time.Second)
	},

	"AStateThatNamesNothingIsRefused": func(t *testing.T, w *world) {
		_, err := w.store.PublishConnection(t.Context(), catalog.ConnectionState{})
		require.Error(t, err)
		_, err = w.store.PublishProvider(t.Context(), catalog.ProviderState{})
		require.Error(t, err)
		_, found, err := w.store.LoadConnectionState(t.Context(), "never")
		require.NoError(t, err)
		require.False(t, found)
	},
}

// connectionState is a cooldown of 30 s; what tells two of them apart is the stamp.
func connectionState(id models.ConnectionID, era, version int64) catalog.ConnectionState {
	now := time.Now()
	return catalog.ConnectionState{
		Connection: id, Provider: "openai", Stamp: models.Stamp{Era: era, Version: version},
		State: resilience.Connection{Cooldown: resilience.Cooldown{
			Era: era, SetAt: now, Level: 1, Deadline: resilience.Deadline{
				FailedAt: now, Until: now.Add(30 * time.Second), Reason: models.ReasonRateLimited, Status: 429,
			},
		}},
		AppliedThrough: now,
	}
}

// providerState is an opening at a moment, for 30 s.
func providerState(id models.ProviderID, era, version int64, openedAt time.Time) catalog.ProviderState {
	return catalog.ProviderState{
		Provider: id, Stamp: models.Stamp{Era: era, Version: version},
		State: resilience.Provider{Opening: resilience.Opening{
			Era: era, OpenedAt: openedAt, Until: openedAt.Add(30 * time.Second), Cycle: 1,
			Reason: models.ReasonServerError, Status: 503, Failures: 12,
		}},
		AppliedThrough: openedAt,
	}
}

func connectionsOf(states *catalog.States) []models.ConnectionID {
	var ids []models.ConnectionID
	for _, s := range states.Connections {
		ids = append(ids, s.Connection)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) databaseNow(t *testing.T) time.Time {
	t.Helper()
	query := "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
	if w.store.Dialect() == store.SQLite {
		query = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)"
	}
	var now int64
	require.NoError(t, w.sql(t).QueryRow(query).Scan(&now))
	return time.UnixMilli(now)
}
