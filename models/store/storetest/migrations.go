package storetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"omniroute/models"
	"omniroute/models/routing"
)

var migrationTests = map[string]func(*testing.T, *world){
	"EveryMigrationGoesDownAndUpAgain": func(t *testing.T, w *world) {
		w.apply(t, basic)
		list, err := w.store.MigrationStatus(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, list)
		for i, m := range list {
			require.EqualValues(t, i+1, m.Version)
			require.False(t, m.AppliedAt.IsZero(), m.Name)
		}

		for i := range list {
			require.NoError(t, w.store.MigrateDown(t.Context()))
			pending, err := w.store.PendingMigrations(t.Context())
			require.NoError(t, err)
			require.Equal(t, i+1, pending)
		}
		require.Equal(t, []string{"goose_db_version"}, w.tables(t, w.sql(t)))
		require.NoError(t, w.store.Migrate(t.Context()))

		require.Len(t, w.apply(t, basic).Changes, 10)
	},

	// What the version before cannot hold goes; what it can stays.
	"CombosGoDownToWhatTheVersionBeforeKnows": func(t *testing.T, w *world) {
		w.apply(t, basic)
		w.apply(t, `
combos:
  - {name: inner, targets: [{model: openai/gpt-x}]}
  - name: outer
    targets: [{model: "openai/*"}, {model: openai/gpt-x, weight: 2.6}, {model: openai/gpt-x, id: again}, {combo: inner}]`)

		w.migrateDownTo(t, 5)

		var targets, weight int
		require.NoError(t, w.sql(t).QueryRow("SELECT COUNT(*), MAX(weight) FROM combo_targets WHERE combo_name = 'outer'").Scan(&targets, &weight))
		require.Equal(t, []int{1, 3}, []int{targets, weight})
		require.NoError(t, w.store.Migrate(t.Context()))
		require.Len(t, w.snapshot(t).Routes["outer"].Legs, 1)
	},

	"ReplicasThatStartTogetherMigrateOnce": func(t *testing.T, w *world) {
		w.unmigrate(t)
		var group errgroup.Group
		for range 4 {
			replica := w.open(t, oldKey)
			group.Go(func() error { return replica.Migrate(t.Context()) })
		}

		require.NoError(t, group.Wait())

		pending, err := w.store.PendingMigrations(t.Context())
		require.NoError(t, err)
		require.Zero(t, pending)
	},

	"AnUnmigratedDatabaseOpensAndSaysWhatToDo": func(t *testing.T, w *world) {
		w.unmigrate(t)
		s := w.open(t, newKey)

		_, err := s.LoadSnapshot(t.Context())

		require.ErrorContains(t, err, "run omniroute migrate")
	},

	// A version that knows nothing of later columns writes its own while this one runs.
	"AnOlderVersionGoesOnWritingWhatItKnows": func(t *testing.T, w *world) {
		w.apply(t, basic)

		_, err := w.sql(t).Exec(connection("'older', 'openai', 7, ''"))
		require.NoError(t, err)
		_, err = w.sql(t).Exec("INSERT INTO providers (id, class, dialect, base_url, timeouts, created_at, updated_at) VALUES ('older', 'local', 'openai', 'http://x', '{}', 0, 0)")
		require.NoError(t, err)

		_, err = w.sql(t).Exec("INSERT INTO models (provider_id, id, context_window, price_input, price_output, capabilities, created_at, updated_at) VALUES ('openai', 'old', 0, 1, 0, '[]', 0, 0), ('openai', 'dark', 0, 0, 0, '[]', 0, 0)")
		require.NoError(t, err)
		_, err = w.sql(t).Exec("INSERT INTO combos (name, strategy, config, created_at, updated_at) VALUES ('older', 'priority', '{}', 0, 0)")
		require.NoError(t, err)
		for i, model := range []string{"old", "dark"} {
			_, err = w.sql(t).Exec(fmt.Sprintf("INSERT INTO combo_targets (combo_name, position, provider_id, model_id, connection_id, weight) VALUES ('older', %d, 'openai', '%s', NULL, 900)", i, model))
			require.NoError(t, err)
		}

		snapshot := w.snapshot(t)
		require.Equal(t, 7, snapshot.Connections["older"].Priority)
		require.Equal(t, routing.Price{Input: 1, Known: true}, snapshot.Models[models.ModelRef{Provider: "openai", Model: "old"}].Price)
		require.False(t, snapshot.Models[models.ModelRef{Provider: "openai", Model: "dark"}].Price.Known, "no price is not a price of zero")
		require.Len(t, snapshot.Routes["older"].Legs, 2)
		require.Equal(t, "openai/dark", snapshot.Routes["older"].Legs[1].Key)
		require.EqualValues(t, 900, snapshot.Routes["older"].Legs[1].Weight)
		require.Nil(t, snapshot.Providers["older"].OAuth)
		require.Equal(t, "older", snapshot.Providers["older"].Kind)
	},

	"TheSchemaRefusesWhatTheCatalogWouldNotWrite": func(t *testing.T, w *world) {
		w.apply(t, basic)
		db := w.sql(t)
		if strings.HasPrefix(w.url, "sqlite:") {
			db.SetMaxOpenConns(1)
			_, err := db.Exec("PRAGMA foreign_keys = 1")
			require.NoError(t, err)
		}
		for statement, why := range map[string]string{
			connection("'x', 'nobody', 1, ''"):                                                  "a provider that is not there",
			connection("'x', 'openai', 1, 'sk-in-clear'"):                                       "a credential in clear",
			connection("'x', 'openai', -1, ''"):                                                 "a negative priority",
			"UPDATE connections SET refresh_token = 'in-clear' WHERE id = 'openai-1'":           "a refresh token in clear",
			"UPDATE connections SET proxy = 'http://u:p@h:1' WHERE id = 'openai-1'":             "a proxy in clear",
			"UPDATE connections SET credential_form = 'magic' WHERE id = 'openai-1'":            "an unknown form of credential",
			"UPDATE providers SET oauth_client_secret = 'in-clear' WHERE id = 'openai'":         "a client secret in clear",
			tokens("'openai-1', 1, '{}'"):                                                       "tokens in clear",
			tokens("'nobody', 1, 'v1:'"):                                                        "tokens of a connection that is not there",
			tokens("'openai-1', 0, 'v1:'"):                                                      "a generation that nothing descends from",
			"UPDATE providers SET class = 'magic' WHERE id = 'openai'":                          "an unknown class",
			"DELETE FROM providers WHERE id = 'other'":                                          "a provider in use",
			"DELETE FROM models WHERE provider_id = 'other'":                                    "a model in use",
			"DELETE FROM connections WHERE id = 'other-1'":                                      "a pinned connection",
			target("'best', 5, 'openai', 'gpt-x', NULL, 0, 'openai/gpt-x'"):                     "a target twice",
			target("'best', 5, 'openai', 'gpt-x', 'other-1', 0, 'x'"):                           "a pin on another provider's connection",
			target("'best', 5, 'openai', NULL, NULL, 0, 'x'"):                                   "a target that is nothing",
			target("'best', 5, 'nobody', NULL, NULL, 0, 'x'"):                                   "a provider that is not there",
			target("'best', 5, 'openai', 'gpt-x', NULL, -0.5, 'x'"):                             "a negative weight",
			"UPDATE combo_targets SET inner_combo = 'best'":                                     "a target that is two things",
			"UPDATE combos SET context_length = -1":                                             "a negative context",
			"UPDATE models SET max_output = -1":                                                 "a negative output",
			"INSERT INTO catalog_meta VALUES (2, 0, '', '')":                                    "a second meta row",
			"UPDATE api_keys SET hash = 'short'":                                                "a hash that is none",
			"INSERT INTO connection_states VALUES ('c','p',0,0,'fine','',0,0,0,0,'{}',0)":       "an unknown phase",
			"INSERT INTO domain_circuit_breakers VALUES ('p',0,0,'AJAR',0,0,0,0,0,'{}','',0,0)": "an unknown breaker state",
		} {
			_, err := db.Exec(statement)
			require.Error(t, err, why)
		}
	},
}

// Rows as the first version wrote them, and targets and tokens.
func connection(values string) string {
	return "INSERT INTO connections (id, provider_id, priority, credential, max_concurrent, disabled, created_at, updated_at) VALUES (" + values + ", 0, FALSE, 0, 0)"
}

func target(values string) string {
	return "INSERT INTO combo_targets (combo_name, position, provider_id, model_id, connection_id, weight, step_id) VALUES (" + values + ")"
}

func tokens(values string) string {
	return "INSERT INTO connection_tokens (connection_id, generation, tokens, declared, expires_at, updated_at) VALUES (" + values + ", '" + strings.Repeat("0", 64) + "', 0, 0)"
}

// unmigrate takes every migration back.
func (w *world) unmigrate(t *testing.T) {
	t.Helper()
	w.migrateDownTo(t, 0)
}

// migrateDownTo takes back every migration after a version.
func (w *world) migrateDownTo(t *testing.T, version int) {
	t.Helper()
	list, err := w.store.MigrationStatus(t.Context())
	require.NoError(t, err)
	for range list[version:] {
		require.NoError(t, w.store.MigrateDown(t.Context()))
	}
}
