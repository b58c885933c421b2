package catalog_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// Whatever rules an operator writes, those that are taken are within their bounds, read back as
// they were written, and judge an answer.
func FuzzRules(f *testing.F) {
	f.Add(`[{status: 400, match: "no more today", scope: connection, reason: quota_exhausted, cooldownMs: 60000}]`,
		`[{id: misstated, fromStatuses: [403, 400], toStatus: 429, textMarkers: [quota], excludeMarkers: [plan], defaultRetryAfterMs: 60000}]`,
		`[{id: busy, path: error.code, equals: "busy", status: 503, reason: model_capacity}, {id: sorry, contains: "come back later"}]`,
		`["account is closed", "合约终止"]`, `{"error":{"code":"busy","message":"no more today"}}`)
	f.Add(`[{status: 42, match: "", scope: planet, cooldownMs: 1e400}]`, `[{}]`, `[{path: "a.#(b==1)#|@reverse"}]`, `[""]`, `<html>`)
	f.Add(`&a [*a]`, `{}`, `x`, `null`, "\xff")
	f.Add(`[{status: 429, match: "$${x}", scope: provider}]`, `[]`, `[]`, `[]`, ``)
	f.Fuzz(func(t *testing.T, rules, restatements, predicates, signals, answer string) {
		text := "providers: [{id: p, class: local, baseURL: 'http://p'}]\nsettings:\n"
		for section, value := range map[string]string{
			"providerErrorRules: {p: ": rules, "statusRestatements: {p: ": restatements, "responsePredicates: {p: ": predicates, "customBannedSignals: ": signals,
		} {
			end := "}\n"
			if strings.HasPrefix(section, "custom") {
				end = "\n"
			}
			text += "  " + section + strings.NewReplacer("\n", " ", "\r", " ").Replace(value) + end
		}
		doc, err := catalog.ParseDocument(strings.NewReader(text), "f.yaml", lookup)
		if err != nil {
			var document *catalog.DocumentError
			require.ErrorAs(t, err, &document)
			require.NotEmpty(t, document.Problems)
			return
		}
		written, err := doc.YAML()
		require.NoError(t, err)
		again, err := catalog.ParseDocument(strings.NewReader(string(written)), "f.yaml", lookup)
		require.NoError(t, err, "%s", written)
		require.Equal(t, inForce(t, doc.Settings), inForce(t, again.Settings), "%s", written)
		if doc.Settings == nil {
			return
		}

		for _, rule := range doc.Settings.ProviderErrorRules["p"] {
			require.True(t, rule.Status >= 100 && rule.Status <= 599 && rule.Match != "", "%+v", rule)
			require.True(t, rule.CooldownMs >= 0 && rule.CooldownMs <= 86_400_000, "%+v", rule)
			require.Contains(t, []models.Scope{models.ScopeModel, models.ScopeConnection, models.ScopeProvider}, rule.Scope)
		}
		for _, r := range doc.Settings.StatusRestatements["p"] {
			require.True(t, r.ToStatus >= 400 && r.ToStatus <= 599 && len(r.TextMarkers) > 0, "%+v", r)
		}
		for _, p := range doc.Settings.ResponsePredicates["p"] {
			require.True(t, p.Contains != "" || p.Path != "", "%+v", p)
		}
		settings := doc.Settings.Over(catalog.Environment{})
		v := failure.Classify(failure.Signal{Kind: failure.KindHTTP, Status: 403, Body: []byte(answer), Rules: settings.Rules("p", "p")}, time.Unix(1_772_366_400, 0))
		require.True(t, v.Status >= 400 && v.Status <= 599, strconv.Itoa(v.Status))
	})
}

// A section that comes from the database is read or refused, and never more than it was.
func FuzzSection(f *testing.F) {
	for _, name := range catalog.SettingSections() {
		f.Add(name, []byte(`{}`))
		f.Add(name, []byte(`null`))
		f.Add(name, []byte(`{"p":[{"status":429,"match":"x","scope":"model"}]}`))
	}
	f.Add("limits", []byte(`{"maxAttempts":1e9}`))
	f.Add("resilience", []byte(`{"modelLockout":{"errorCodes":[1,2,3]},"providerBreaker":{"apikey":{"windowMs":-1}}}`))
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		var settings, again catalog.DocSettings
		if settings.SetSection(name, value) != nil {
			return
		}
		text, err := settings.Section(name)
		require.NoError(t, err)
		if text == nil {
			return
		}
		require.NoError(t, again.SetSection(name, text))
		require.Equal(t, inForce(t, &settings), inForce(t, &again))
	})
}

// inForce is what settings come to; an empty list is one that was not set.
func inForce(t *testing.T, stored *catalog.DocSettings) string {
	t.Helper()
	settings := stored.Over(catalog.Environment{})
	require.NotNil(t, settings.Rules("p", "p"))
	text, err := json.Marshal(settings.Effective())
	require.NoError(t, err)
	return string(text)
}
