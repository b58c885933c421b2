package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/models/store"
)

var secretTests = map[string]func(*testing.T, *world){
	"NoSecretIsInAnyColumnInClear": func(t *testing.T, w *world) {
		w.apply(t, basic)
		_, clear, err := w.store.CreateKey(t.Context(), store.NewKey{Name: "made"})
		require.NoError(t, err)

		text := w.text(t)

		require.Contains(t, text, "connections.credential=v1:old:")
		require.NotContains(t, text, clear)
		for _, secret := range w.env {
			require.NotContains(t, text, secret)
		}
	},

	"AStartWithOtherKeysIsRefused": func(t *testing.T, w *world) {
		_, err := w.tryOpen(t, newKey)
		require.ErrorContains(t, err, "the encryption keys are not the ones this database was made with")

		_, err = w.tryOpen(t, "old:QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI=")
		require.ErrorContains(t, err, "the encryption keys are not the ones", "another key under the same id")

		_, err = w.tryOpen(t, oldKey+","+newKey)
		require.ErrorContains(t, err, "list the original key last")
	},

	"AfterARotationOldCredentialsOpenAndResealingMakesThemNew": func(t *testing.T, w *world) {
		w.apply(t, basic)
		rotated := w.open(t, newKey+","+oldKey)
		before := w.snapshot(t)

		resealed, err := rotated.Reseal(t.Context())
		require.NoError(t, err)
		again, err := rotated.Reseal(t.Context())
		require.NoError(t, err)

		require.Equal(t, 2, resealed)
		require.Zero(t, again)
		require.NotContains(t, w.text(t), "v1:old:")
		after, err := rotated.LoadSnapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, before.Connections["openai-1"].APIKey.Reveal(), after.Connections["openai-1"].APIKey.Reveal())
		require.Equal(t, before.Keys, after.Keys, "API keys still hash the same")
	},

	"ACredentialThatDoesNotOpenDisablesItsConnectionOnly": func(t *testing.T, w *world) {
		w.apply(t, basic)
		// Somebody copied one row's credential into another.
		_, err := w.sql(t).Exec("UPDATE connections SET credential = (SELECT credential FROM connections WHERE id = 'other-1') WHERE id = 'openai-1'")
		require.NoError(t, err)

		snapshot := w.snapshot(t)

		require.True(t, snapshot.Connections["openai-1"].Disabled)
		require.True(t, snapshot.Connections["openai-1"].APIKey.Empty())
		require.Equal(t, "sk-other-secret-two", snapshot.Connections["other-1"].APIKey.Reveal())
		require.Contains(t, w.log.LastEntry().Message, "does not open")
		_, err = w.store.CheckSecrets(t.Context())
		require.ErrorContains(t, err, `the first is connection "openai-1"`)
		require.Len(t, w.apply(t, basic).Changes, 1, "applying the file heals it")
		require.False(t, w.snapshot(t).Connections["openai-1"].Disabled)
	},

	"EveryCredentialIsChecked": func(t *testing.T, w *world) {
		w.apply(t, basic)

		count, err := w.store.CheckSecrets(t.Context())

		require.NoError(t, err)
		require.Equal(t, 2, count)
	},

	"WithoutAKeyRingNothingSecretCanBeWritten": func(t *testing.T, w *world) {
		s := w.open(t, "")

		_, err := s.Apply(t.Context(), w.parse(t, basic), store.ApplyOptions{})
		require.ErrorContains(t, err, "no encryption keys")
		_, _, err = s.CreateKey(t.Context(), store.NewKey{Name: "k"})
		require.ErrorContains(t, err, "no encryption keys")
	},

	"ANewCredentialBeginsANewEraAndTheSameOneDoesNot": func(t *testing.T, w *world) {
		w.apply(t, basic)
		banned := connectionState("openai-1", 0, 3)
		banned.State.Cooldown.Terminal = models.PhaseBanned
		_, err := w.store.PublishConnection(t.Context(), banned)
		require.NoError(t, err)

		w.apply(t, basic)
		same, _, err := w.store.LoadConnectionState(t.Context(), "openai-1")
		require.NoError(t, err)
		require.Equal(t, models.PhaseBanned, same.State.Cooldown.Terminal)

		w.env["OPENAI_KEY"] = "sk-openai-renewed"
		diff := w.apply(t, basic)

		require.Equal(t, "~ connection openai-1: secret (changed)\n0 to create, 1 to update, 0 to delete", diff.String())
		renewed, _, err := w.store.LoadConnectionState(t.Context(), "openai-1")
		require.NoError(t, err)
		require.Equal(t, models.Stamp{Era: 1}, renewed.Stamp)
		require.EqualValues(t, 1, renewed.State.Era())
		require.Empty(t, renewed.State.Cooldown.Terminal)
		require.True(t, renewed.State.Cooldown.Until.IsZero())

		late := banned
		late.Version = 99
		stored, err := w.store.PublishConnection(t.Context(), late)
		require.NoError(t, err)
		require.EqualValues(t, 1, stored.Era, "a workflow of the old era gets the new one back")
	},

	"AConnectionThatComesBackIsNotHauntedByItsOldState": func(t *testing.T, w *world) {
		w.apply(t, basic)
		_, err := w.store.PublishConnection(t.Context(), connectionState("other-1", 4, 2))
		require.NoError(t, err)
		_, err = w.prune(t, `
connections: [{id: openai-1, provider: openai, priority: 2, maxConcurrent: 4}]
combos: []
apiKeys: []`)
		require.NoError(t, err)
		late, err := w.store.PublishConnection(t.Context(), connectionState("other-1", 4, 9))
		require.NoError(t, err, "a workflow may outlive its connection")
		require.EqualValues(t, 5, late.Era)
		states, err := w.store.States(t.Context(), 0)
		require.NoError(t, err)
		require.Empty(t, states.Connections, "replicas hear of what the catalog holds only")

		w.apply(t, basic)

		back, found, err := w.store.LoadConnectionState(t.Context(), "other-1")
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 6, back.Era)
		require.True(t, back.State.Equal(resilience.Connection{}.Enter(6, back.State.Cooldown.ClearedAt)))
	},

	"AProviderThatComesBackIsNotHauntedByItsOldState": func(t *testing.T, w *world) {
		w.apply(t, basic)
		published, err := w.store.PublishProvider(t.Context(), providerState("other", 4, 2, time.Now().Add(time.Hour)))
		require.NoError(t, err)
		require.Equal(t, resilience.BreakerOpen, published.State.Opening.State(time.Now()))
		_, err = w.prune(t, `
providers: [{id: openai, class: api_key, dialect: openai, baseURL: "https://api.openai.com/v1"}]
connections: [{id: openai-1, provider: openai}]
models: []
combos: []
apiKeys: []`)
		require.NoError(t, err)

		w.apply(t, basic)

		back, found, err := w.store.LoadProviderState(t.Context(), "other")
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 5, back.Era)
		require.True(t, back.State.Dormant(time.Now()))
	},

	"AMoveToAnotherProviderBeginsANewEra": func(t *testing.T, w *world) {
		w.apply(t, basic)

		w.apply(t, `connections: [{id: openai-1, provider: other}]`)

		state, found, err := w.store.LoadConnectionState(t.Context(), "openai-1")
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 1, state.Era)
		require.Equal(t, models.ProviderID("other"), state.Provider)
	},

	"AKeyThatIsNotWrittenIsLeftAloneAndARenamedOneKeepsWorking": func(t *testing.T, w *world) {
		w.apply(t, basic)
		before := w.snapshot(t)

		diff := w.apply(t, `apiKeys: [{name: ci, scopes: [manage, inference]}]`)
		require.Contains(t, diff.String(), "~ apiKey ci: scopes [inference] -> [manage, inference]")
		for hash := range before.Keys {
			require.Contains(t, w.snapshot(t).Keys, hash)
		}

		_, err := w.prune(t, `apiKeys: [{name: renamed, key: "${CI_KEY}"}]`)
		require.NoError(t, err)
		for hash := range before.Keys {
			require.Equal(t, "renamed", w.snapshot(t).Keys[hash].Name)
		}
	},

	"TwoNamesCanSwapTheirKeys": func(t *testing.T, w *world) {
		w.env["A"], w.env["B"] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
		w.apply(t, `apiKeys: [{name: one, key: "${A}"}, {name: two, key: "${B}"}]`)
		before := w.snapshot(t).Keys

		diff := w.apply(t, `apiKeys: [{name: one, key: "${B}"}, {name: two, key: "${A}"}]`)

		require.Len(t, diff.Changes, 2)
		for hash, key := range w.snapshot(t).Keys {
			require.NotEqual(t, before[hash].Name, key.Name)
			require.NotEqual(t, before[hash].ID, key.ID)
		}
	},
}
