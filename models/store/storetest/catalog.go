package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

var catalogTests = map[string]func(*testing.T, *world){
	"TheSameFileAppliedTwiceChangesNothingTheSecondTime": func(t *testing.T, w *world) {
		first := w.apply(t, basic)
		require.Len(t, first.Changes, 10)
		revision, trail := w.revision(t), w.count(t, "audit_log")
		require.EqualValues(t, 1, revision)
		require.Equal(t, 10, trail)

		second := w.apply(t, basic)

		require.Equal(t, "no changes", second.String())
		require.Equal(t, revision, w.revision(t))
		require.Equal(t, trail, w.count(t, "audit_log"))
	},

	"ADryRunTellsTheDiffAndChangesNothing": func(t *testing.T, w *world) {
		before := w.text(t)

		diff, err := w.store.Apply(t.Context(), w.parse(t, basic), store.ApplyOptions{DryRun: true})

		require.NoError(t, err)
		require.Len(t, diff.Changes, 10)
		require.Equal(t, before, w.text(t))
	},

	"AReferenceThatLeadsNowhereRefusesTheWholeFileByPathAndLine": func(t *testing.T, w *world) {
		w.apply(t, basic)
		before := w.text(t)
		doc := w.parse(t, `
providers: [{id: new, class: local, baseURL: "http://localhost:1"}]
connections:
  - {id: new-1, provider: new}
  - {id: new-2, provider: opnai, credential: {apiKey: "${OTHER_KEY}"}}
combos:
  - name: mixed
    targets: [{model: openai/gpt-x, connection: other-1}, {model: other/deep/z}]
apiKeys: [{name: k, key: "${CI_KEY}", allowedModels: [bset], allowedConnections: [nobody]}]
`)

		_, err := w.store.Apply(t.Context(), doc, store.ApplyOptions{})

		var problems *catalog.DocumentError
		require.ErrorAs(t, err, &problems)
		require.Equal(t, strings.Join([]string{
			`catalog.yaml:5: connections[1].provider: there is no provider "opnai"; did you mean "openai"?`,
			`catalog.yaml:8: combos[0].targets[0].connection: connection "other-1" belongs to provider "other", the model to "openai"`,
			`catalog.yaml:8: combos[0].targets[1].model: there is no model "other/deep/z"; did you mean "other/deep/y"?`,
			`catalog.yaml:9: apiKeys[0].key: is already the key of "ci"`,
			`catalog.yaml:9: apiKeys[0].allowedConnections[0]: there is no connection "nobody"`,
			`catalog.yaml:9: apiKeys[0].allowedModels[0]: there is no model or combo "bset"; did you mean "best"?`,
		}, "\n"), err.Error())
		require.Equal(t, before, w.text(t))
	},

	"AFileMayBuildOnWhatIsStored": func(t *testing.T, w *world) {
		w.apply(t, basic)

		diff := w.apply(t, `connections: [{id: openai-2, provider: openai, credential: {apiKey: "${OTHER_KEY}"}, disabled: true}]`)

		require.Equal(t, "+ connection openai-2: provider openai, disabled true\n1 to create, 0 to update, 0 to delete", diff.String())
		require.Len(t, w.snapshot(t).Providers["openai"].Connections, 2)
	},

	"AConnectionThatMustAuthenticateNeedsACredential": func(t *testing.T, w *world) {
		_, err := w.store.Apply(t.Context(), w.parse(t, `
providers: [{id: p, class: api_key, baseURL: "http://p"}, {id: l, class: local, baseURL: "http://l"}]
connections: [{id: a, provider: p}, {id: b, provider: l}]
`), store.ApplyOptions{})

		require.EqualError(t, err, "catalog.yaml:3: connections[0].credential: a connection of class api_key needs credential.apiKey")
	},

	"PruneDeletesWhatPresentSectionsDoNotNameAndLeavesAbsentOnes": func(t *testing.T, w *world) {
		w.apply(t, basic)

		diff, err := w.prune(t, `
providers:   [{id: openai, class: api_key, baseURL: "https://api.openai.com/v1"}]
connections: [{id: openai-1, provider: openai, priority: 2, maxConcurrent: 4}]
models:      [{id: gpt-x, provider: openai, contextWindow: 128000, price: {input: 2.5, output: 10}, capabilities: [tools]}]
combos:      []
apiKeys:     []
`)

		require.NoError(t, err)
		require.Equal(t, `- provider other
- connection other-1
- model other/deep/y
- combo best
- apiKey ci
0 to create, 0 to update, 5 to delete`, diff.String())
		snapshot := w.snapshot(t)
		require.Equal(t, []string{"openai/gpt-x"}, snapshot.Names)
		require.Empty(t, snapshot.Keys)
		require.Equal(t, 90*time.Second, snapshot.Providers["openai"].Timeouts.Idle, "settings were not named")
	},

	"PruneIsRefusedWhileSomethingThatStaysNeedsIt": func(t *testing.T, w *world) {
		w.apply(t, basic)
		before := w.text(t)

		_, err := w.prune(t, `models: [{id: gpt-x, provider: openai}]`)

		require.EqualError(t, err,
			`catalog.yaml: stored combo best.targets[1].model: there is no model "other/deep/y" after this change`)
		require.Equal(t, before, w.text(t))
	},

	"AnExportHoldsNoSecretAndAppliedAgainChangesNothing": func(t *testing.T, w *world) {
		w.apply(t, basic)
		w.apply(t, `models: [{id: "odd: $${x} #1", provider: other, capabilities: ["1", "yes"]}]`)

		doc, err := w.store.Export(t.Context())
		require.NoError(t, err)
		text, err := doc.YAML()
		require.NoError(t, err)

		for _, secret := range w.env {
			require.NotContains(t, string(text), secret)
		}
		w.env = map[string]string{"OPENAI_1_API_KEY": w.env["OPENAI_KEY"], "OTHER_1_API_KEY": w.env["OTHER_KEY"]}
		diff, err := w.prune(t, string(text))
		require.NoError(t, err)
		require.Equal(t, "no changes", diff.String(), string(text))
	},

	"AnEmptyCatalogExportsAndAppliesToo": func(t *testing.T, w *world) {
		doc, err := w.store.Export(t.Context())
		require.NoError(t, err)
		text, err := doc.YAML()
		require.NoError(t, err)

		diff, err := w.prune(t, string(text))

		require.NoError(t, err, string(text))
		require.True(t, diff.Empty())
	},

	"TheSnapshotIsWhatTheFileSays": func(t *testing.T, w *world) {
		w.apply(t, basic)

		s := w.snapshot(t)

		require.EqualValues(t, 1, s.Revision)
		require.Equal(t, []string{"best", "openai/gpt-x", "other/deep/y"}, s.Names)
		connection := s.Connections["openai-1"]
		require.Equal(t, "sk-openai-secret-one", connection.APIKey.Reveal())
		require.Equal(t, 2, connection.Priority)
		require.Equal(t, 4, connection.MaxConcurrent)
		require.Equal(t, models.ProviderID("openai"), connection.Provider.ID)
		require.Equal(t, 5*time.Second, connection.Provider.Cooldown.Base)
		require.Equal(t, 2*time.Second, s.Providers["other"].Timeouts.Connect)
		require.Equal(t, 90*time.Second, s.Providers["other"].Timeouts.Idle)
		model := s.Models[models.ModelRef{Provider: "openai", Model: "gpt-x"}]
		require.Equal(t, 128000, model.ContextWindow)
		require.Equal(t, []string{"tools"}, model.Capabilities)
		require.WithinDuration(t, time.Now(), model.CreatedAt, time.Minute)
		best := s.Routes["best"]
		require.Len(t, best.Legs, 2)
		require.Equal(t, 1, best.Legs[0].Policy.Retries)
		require.Equal(t, models.ConnectionID("other-1"), best.Legs[1].Connections[0].ID)
		require.EqualValues(t, 30, best.Legs[1].Weight)
		require.Same(t, s.Routes["openai/gpt-x"], s.Routes["gpt-x"])
		require.Len(t, s.Keys, 1)
		for _, key := range s.Keys {
			require.Equal(t, "ci", key.Name)
			require.True(t, key.Scopes[catalog.ScopeInference])
			require.Equal(t, map[string]bool{"best": true, "combo/best": true}, key.Models)
			require.Equal(t, map[models.ConnectionID]bool{"openai-1": true, "other-1": true}, key.Connections)
			require.Equal(t, 2030, key.ExpiresAt.Year())
		}
	},

	"EverythingOfACombosComesBackAsItWasApplied": func(t *testing.T, w *world) {
		doc := w.parse(t, whole)
		_, err := w.store.Apply(t.Context(), doc, store.ApplyOptions{})
		require.NoError(t, err)

		exported, err := w.store.Export(t.Context())
		require.NoError(t, err)

		require.ElementsMatch(t, doc.Combos, exported.Combos)
		require.Equal(t, doc.Connections[0].Plan, exported.Connections[0].Plan)
		require.Nil(t, exported.Connections[1].Plan)
		require.ElementsMatch(t, doc.Models, exported.Models)
		require.True(t, w.apply(t, whole).Empty())
		text, err := exported.YAML()
		require.NoError(t, err)
		again, err := w.prune(t, string(text))
		require.NoError(t, err, string(text))
		require.True(t, again.Empty(), "%v\n%s", again, text)
	},

	"CombosThatPointToEachOtherChangeAndGoTogether": func(t *testing.T, w *world) {
		w.apply(t, basic)
		w.apply(t, `combos: [{name: a, targets: [{combo: b}]}, {name: b, targets: [{model: openai/gpt-x}]}]`)

		w.apply(t, `combos: [{name: b, targets: [{combo: a}]}, {name: a, targets: [{model: openai/gpt-x}]}]`)
		require.Equal(t, "combo/a>openai/gpt-x", w.snapshot(t).Routes["b"].Legs[0].Key)
		_, err := w.prune(t, `combos: [{name: b, targets: [{combo: a}]}]`)
		require.ErrorContains(t, err, `combos[0].targets[0].combo: there is no combo "a"`)
		_, err = w.prune(t, `combos: []
apiKeys: []`)
		require.NoError(t, err)
		require.Empty(t, w.snapshot(t).Combos)
	},

	"UpdatesKeepWhatTheFileLeavesOutOnlyForSecrets": func(t *testing.T, w *world) {
		w.apply(t, basic)

		diff := w.apply(t, `connections: [{id: openai-1, provider: openai}]`)

		require.Equal(t, "~ connection openai-1: priority 2 -> (default), maxConcurrent 4 -> (default)\n0 to create, 1 to update, 0 to delete", diff.String())
		require.Equal(t, "sk-openai-secret-one", w.snapshot(t).Connections["openai-1"].APIKey.Reveal())
	},

	"SettingsSectionsAreReplacedEachAsAWhole": func(t *testing.T, w *world) {
		w.apply(t, basic)

		diff := w.apply(t, `settings: {timeouts: {connectMs: 1500}}`)

		require.Equal(t, "~ setting timeouts: connectMs (default) -> 1500, idleMs 90000 -> (default)\n0 to create, 1 to update, 0 to delete", diff.String())
		snapshot := w.snapshot(t)
		require.Equal(t, 1500*time.Millisecond, snapshot.Providers["openai"].Timeouts.Connect)
		require.Equal(t, 5*time.Second, snapshot.Providers["openai"].Cooldown.Base)
	},

	"AComboCanChangeItsTargetsWhileTheirModelsGo": func(t *testing.T, w *world) {
		w.apply(t, basic)

		_, err := w.prune(t, `
models: [{id: gpt-x, provider: openai}]
combos: [{name: best, targets: [{model: openai/gpt-x}]}]`)

		require.NoError(t, err)
		require.Len(t, w.snapshot(t).Routes["best"].Legs, 1)
	},

	"AComboThatTakesAModelsNameIsAppliedWithAWarning": func(t *testing.T, w *world) {
		w.apply(t, basic)

		diff := w.apply(t, `combos: [{name: gpt-x, targets: [{model: other/deep/y}]}]`)

		require.Equal(t, []string{`combo "gpt-x" has the name of a model; the name now means the combo`}, diff.Warnings)
		require.NotNil(t, w.snapshot(t).Routes["gpt-x"].Combo)
	},

	"ConcurrentAppliesTakeTurnsAndNoneIsLost": func(t *testing.T, w *world) {
		w.apply(t, basic)
		const writers = 8
		var group errgroup.Group
		for i := range writers {
			doc := w.parse(t, fmt.Sprintf(`connections: [{id: extra-%d, provider: openai, credential: {apiKey: "k%d"}}]`, i, i))
			group.Go(func() error {
				_, err := w.store.Apply(t.Context(), doc, store.ApplyOptions{})
				return err
			})
		}

		require.NoError(t, group.Wait())

		require.EqualValues(t, 1+writers, w.revision(t))
		require.Len(t, w.snapshot(t).Providers["openai"].Connections, 1+writers)
	},

	"AChangeIsToldToThisProcessOnceItIsCommitted": func(t *testing.T, w *world) {
		changes, stop := w.store.Watch()
		defer stop()

		w.apply(t, basic)
		require.Equal(t, catalog.ChangedCatalog, <-changes)
		w.apply(t, basic) // changes nothing
		w.apply(t, `connections: [{id: other-1, provider: other, credential: {apiKey: "changed"}}]`)

		require.Equal(t, catalog.ChangedCatalog, <-changes)
		require.Equal(t, catalog.ChangedState, <-changes, "the era")
	},

	"TheAuditTrailNamesWhoDidWhatAndNoSecret": func(t *testing.T, w *world) {
		w.apply(t, basic)
		w.apply(t, `connections: [{id: other-1, provider: other, credential: {apiKey: "sk-third"}}]`)

		var actor, action, detail string
		require.NoError(t, w.sql(t).QueryRow("SELECT actor, action, detail FROM audit_log ORDER BY id DESC LIMIT 1").Scan(&actor, &action, &detail))

		require.Equal(t, "test", actor)
		require.Equal(t, "update", action)
		require.Equal(t, "~ connection other-1: secret (changed)", detail)
	},
}

// whole has everything a combo, and what it is made of, can have.
const whole = `
providers:
  - {id: p, class: local, baseURL: "http://p"}
  - {id: q, class: local, baseURL: "http://q"}
connections:
  - {id: p-1, provider: p, plan: {tier: pro, windows: [{name: session, unit: requests, limit: 100}, {name: hour, lengthMs: 3600000, unit: tokens, limit: 5}]}}
  - {id: p-2, provider: p}
  - {id: q-1, provider: q}
models:
  - {id: big, provider: p, contextWindow: 1000, maxOutput: 100, price: {input: 0.5, output: 2}, capabilities: [tools]}
  - {id: free, provider: p, price: {input: 0, output: 0}}
  - {id: dark, provider: q}
combos:
  - name: first
    description: "Two lines.\nOf text."
    targets:
      - {model: p/big, connection: p-1, id: main, label: The big one, weight: 12.5, tags: [eu, fast], fallbackOnlyOnQuotaExhaustion: true}
      - {model: p/big, allowedConnections: [p-2, p-1]}
      - {model: "p/*", weight: 7}
      - {combo: second, weight: 30, label: rest}
    allowedProviders: [p, q]
    contextLength: 200000
    config:
      maxRetries: 0
      failoverBeforeRetry: true
      fusionTuning: {minPanel: 3}
      contextRequirements: {contextFilterMode: strict, minContextWindow: 10}
      weights: {quota: 0.5, health: 0}
      resetWindowWindows: [weekly, session]
      compositeTiers: {defaultTier: top, tiers: {top: {stepId: combo/second, fallbackTier: next}, next: {stepId: main}}}
  - {name: second, strategy: priority, targets: [{model: q/dark}], disabled: true}
`

func (w *world) count(t *testing.T, table string) int {
	t.Helper()
	var n int
	require.NoError(t, w.sql(t).QueryRow("SELECT COUNT(*) FROM "+table).Scan(&n))
	return n
}
