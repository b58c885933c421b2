package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/store"
)

var settingTests = map[string]func(*testing.T, *world){
	"EverySectionComesBackAsItWasApplied": func(t *testing.T, w *world) {
		doc := w.parse(t, `
settings:
  resilience: {modelLockout: {enabled: true, errorCodes: [429]}, providerCooldown: {local: {cooldownMs: 5000}}}
  timeouts: {connectMs: 5}
  limits: {maxAttempts: 3}
  providerErrorRules: {openai: [{status: 400, match: "额度不足", scope: connection}]}
  statusRestatements: {openai: [{id: r, fromStatuses: [403], toStatus: 429, textMarkers: [quota]}]}
  responsePredicates: {openai: [{id: p, contains: sorry}]}
  customBannedSignals: ["closed"]
  comboDefaults: {maxRetries: 0, weights: {quota: 1}, resetWindowWindows: [session]}
  providerOverrides: {openai: {queueDepth: 0, targetTimeoutMs: 5000}}
  modelMappings: [{pattern: "gpt-4*", combo: c}]
  emergencyFallback: {model: p/m, enabled: false, maxOutputTokens: 100}
providers: [{id: p, class: local, baseURL: "http://p"}]
models: [{id: m, provider: p}]
combos: [{name: c, targets: [{model: p/m}]}]
`)
		_, err := w.store.Apply(t.Context(), doc, store.ApplyOptions{})
		require.NoError(t, err)
		settings, err := w.store.Settings(t.Context())
		require.NoError(t, err)
		require.Equal(t, doc.Settings, settings)
		require.Equal(t, len(catalog.SettingSections()), w.count(t, "settings"), "a row for each section")
	},

	"AChangeOfSettingsIsOneRevisionAndInTheAuditLog": func(t *testing.T, w *world) {
		w.apply(t, basic)
		revision := w.revision(t)
		diff, err := w.store.ChangeSettings(t.Context(), "somebody", func(stored *catalog.DocSettings) (*catalog.DocSettings, error) {
			next := *stored
			next.CustomBannedSignals = []string{"closed"}
			next.ProviderErrorRules = map[string][]failure.OperatorRule{"openai": {{Status: 400, Match: "x", Scope: "model"}}}
			return &next, nil
		})
		require.NoError(t, err)
		require.Len(t, diff.Changes, 2)
		require.Equal(t, revision+1, w.revision(t))
		trail, err := w.store.AuditLog(t.Context(), 2, 0)
		require.NoError(t, err)
		require.Equal(t, []string{"somebody", "customBannedSignals"}, []string{trail[0].Actor, trail[0].Entity})

		again, err := w.store.ChangeSettings(t.Context(), "somebody", func(stored *catalog.DocSettings) (*catalog.DocSettings, error) { return stored, nil })
		require.NoError(t, err)
		require.True(t, again.Empty())
		require.Equal(t, revision+1, w.revision(t), "what changes nothing is no revision")

		_, err = w.store.ChangeSettings(t.Context(), "somebody", func(*catalog.DocSettings) (*catalog.DocSettings, error) { return &catalog.DocSettings{}, nil })
		require.NoError(t, err)
		require.Zero(t, w.count(t, "settings"), "an absent section goes")
	},

	"ARefusedChangeChangesNothing": func(t *testing.T, w *world) {
		w.apply(t, basic)
		before := w.text(t)
		refusal := errors.New("no")
		_, err := w.store.ChangeSettings(t.Context(), "somebody", func(stored *catalog.DocSettings) (*catalog.DocSettings, error) {
			stored.Limits = nil
			return nil, refusal
		})
		require.ErrorIs(t, err, refusal)
		require.Equal(t, before, w.text(t))
	},

	"ConcurrentChangesSeeEachOther": func(t *testing.T, w *world) {
		const changes = 8
		var group errgroup.Group
		for range changes {
			group.Go(func() error {
				_, err := w.store.ChangeSettings(t.Context(), "somebody", func(stored *catalog.DocSettings) (*catalog.DocSettings, error) {
					next := *stored
					next.CustomBannedSignals = append(next.CustomBannedSignals, fmt.Sprint("signal ", len(next.CustomBannedSignals)))
					return &next, nil
				})
				return err
			})
		}
		require.NoError(t, group.Wait())
		settings, err := w.store.Settings(t.Context())
		require.NoError(t, err)
		require.Len(t, settings.CustomBannedSignals, changes)
	},

	"TheEnvironmentStandsBehindTheStoredSettings": func(t *testing.T, w *world) {
		w.apply(t, basic)
		enabled := true
		w.store.SetEnvironment(catalog.Environment{Resilience: resilience.Settings{ProviderCooldown: resilience.GateSettings{Enabled: &enabled}}})
		snapshot, err := w.store.LoadSnapshot(t.Context())
		require.NoError(t, err)
		require.True(t, snapshot.Providers["openai"].Gate.Enabled)
	},

	"TheAuditLogIsPagedFromTheNewest": func(t *testing.T, w *world) {
		entries := make([]catalog.Audit, 600)
		for i := range entries {
			entries[i] = catalog.Audit{ID: 7, At: 7, Actor: "somebody", Action: "reset", Kind: catalog.KindConnection, Entity: fmt.Sprint(i), Detail: "d"}
		}
		require.NoError(t, w.store.Audit(t.Context(), nil))
		require.NoError(t, w.store.Audit(t.Context(), entries))
		var seen []string
		for before := int64(0); ; {
			page, err := w.store.AuditLog(t.Context(), 250, before)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				require.WithinDuration(t, time.Now(), time.UnixMilli(e.At), time.Minute, "the database's clock")
				seen = append(seen, e.Entity)
			}
			before = page[len(page)-1].ID
		}
		require.Len(t, seen, 600)
		require.Equal(t, []string{"599", "0"}, []string{seen[0], seen[599]})
	},
}
