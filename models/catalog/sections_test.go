package catalog_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

const ruled = twoProviders + `
settings:
  resilience:
    modelLockout: {enabled: true, errorCodes: [429, 503]}
    providerCooldown: {oauth: {cooldownMs: 90000}}
  providerErrorRules:
    a:
      - {status: 400, match: "no more today", scope: connection, reason: quota_exhausted, cooldownMs: 60000}
      - {status: 503, match: "price is $${x}", scope: model}
  statusRestatements:
    a: [{id: misstated, fromStatuses: [403, 400], toStatus: 429, textMarkers: [quota], excludeMarkers: [plan], defaultRetryAfterMs: 60000}]
  responsePredicates:
    a: [{id: busy, path: error.code, equals: "busy", status: 503, reason: model_capacity}, {id: sorry, contains: "come back later"}]
  customBannedSignals: ["account is closed", "合约终止"]
`

func TestTheOperatorsRulesAreReadAndReachTheSnapshot(t *testing.T) {
	doc := parse(t, ruled)
	require.Equal(t, []failure.OperatorRule{
		{Status: 400, Match: "no more today", Scope: models.ScopeConnection, Reason: models.ReasonQuotaExhausted, CooldownMs: 60_000},
		{Status: 503, Match: "price is ${x}", Scope: models.ScopeModel},
	}, doc.Settings.ProviderErrorRules["a"])
	require.Equal(t, []failure.Restatement{{
		ID: "misstated", FromStatuses: []int{403, 400}, ToStatus: 429, TextMarkers: []string{"quota"}, ExcludeMarkers: []string{"plan"}, DefaultRetryAfterMs: 60_000,
	}}, doc.Settings.StatusRestatements["a"])
	require.Equal(t, "busy", doc.Settings.ResponsePredicates["a"][0].Equals)

	s := snapshotOf(t, ruled)
	require.Equal(t, doc.Settings.ProviderErrorRules, s.Settings.ProviderErrorRules)
	require.Equal(t, doc.Settings.StatusRestatements, s.Settings.StatusRestatements)
	require.Equal(t, doc.Settings.ResponsePredicates, s.Settings.ResponsePredicates)
	require.Equal(t, doc.Settings.CustomBannedSignals, s.Settings.CustomBannedSignals)
	require.True(t, s.Providers["a"].Lockout.Enabled)

	// The compiled rules decide.
	verdict := func(provider models.ProviderID) failure.Verdict {
		return failure.Classify(failure.Signal{
			Kind: failure.KindHTTP, Status: 400, Headers: http.Header{}, Class: models.ClassAPIKey, Rules: s.Providers[provider].Rules,
			Body: []byte(`{"error":{"message":"There is No More Today of it"}}`),
		}, time.Now())
	}
	require.Equal(t, []any{models.ReasonQuotaExhausted, models.ScopeConnection}, []any{verdict("a").Reason, verdict("a").Scope})
	require.Equal(t, models.ScopeNone, verdict("b").Scope, "the rules of another provider are not its own")
}

func TestRulesForAKindHoldForEveryProviderOfIt(t *testing.T) {
	settings := catalog.Settings{ProviderErrorRules: map[string][]failure.OperatorRule{
		"mine": {{Status: 400, Match: "first", Scope: models.ScopeConnection}},
		"kind": {{Status: 400, Match: "first", Scope: models.ScopeModel}, {Status: 400, Match: "second", Scope: models.ScopeModel}},
	}}
	scope := func(provider models.ProviderID, kind, text string) models.Scope {
		return failure.Classify(failure.Signal{
			Kind: failure.KindHTTP, Status: 400, Class: models.ClassAPIKey, Rules: settings.Rules(provider, kind),
			Body: []byte(`{"error":{"message":"` + text + `"}}`),
		}, time.Now()).Scope
	}
	require.Equal(t, models.ScopeConnection, scope("mine", "kind", "first"), "the provider's own go first")
	require.Equal(t, models.ScopeModel, scope("mine", "kind", "second"))
	require.Equal(t, models.ScopeModel, scope("other", "kind", "first"))
	require.Equal(t, models.ScopeConnection, scope("mine", "mine", "first"))
	require.Equal(t, models.ScopeNone, scope("other", "other", "first"))
}

func TestTheExportOfTheRulesReadsBackAsTheSame(t *testing.T) {
	doc := parse(t, ruled)
	text, err := stored(t, doc).Export().YAML()
	require.NoError(t, err)
	// What needs a credential is not the point here.
	again := parse(t, string(text[strings.Index(string(text), "settings:"):]))
	require.Equal(t, doc.Settings, again.Settings)
	require.NotContains(t, string(text), "{}", "what is not set is not written")
}

func TestADiffNamesTheFieldOfARuleThatChanged(t *testing.T) {
	from := stored(t, parse(t, ruled))
	outcome, err := catalog.PlanApply(from, parse(t, strings.Replace(ruled, "cooldownMs: 60000", "cooldownMs: 90000", 1)), false, hash)
	require.NoError(t, err)
	require.Equal(t, "~ setting providerErrorRules: a[0].cooldownMs 60000 -> 90000\n0 to create, 1 to update, 0 to delete", outcome.Diff.String())

	outcome, err = catalog.PlanApply(from, parse(t, "settings: {customBannedSignals: [], providerErrorRules: {}}"), false, hash)
	require.NoError(t, err)
	require.Equal(t, "- setting providerErrorRules\n- setting customBannedSignals\n0 to create, 0 to update, 2 to delete", outcome.Diff.String())
	require.Nil(t, outcome.Result.Settings.ProviderErrorRules)
	require.NotNil(t, outcome.Result.Settings.StatusRestatements, "a section that is not named stays")

	outcome, err = catalog.PlanApply(from, parse(t, "settings: {}"), true, hash)
	require.NoError(t, err)
	require.Len(t, outcome.Diff.Changes, 5, "pruning takes away what is not named")
}

func TestEveryMistakeInTheRulesIsNamedWithItsPathAndLine(t *testing.T) {
	problems := problemsOf(t, `settings:
  providerErrorRules:
    a:
      - {status: 42, match: "x", scope: model}
      - {match: "", scope: planet, reason: hunger, cooldownMs: -1}
      - {status: 400, match: "x", scope: model, colour: red}
      - {status: "400", match: 7, scope: model}
    "": [{status: 400, match: x, scope: model}]
  statusRestatements:
    a:
      - {fromStatuses: [403, 1000], toStatus: 429, textMarkers: [""]}
      - {id: r, fromStatuses: 403, toStatus: 399, textMarkers: [x]}
  responsePredicates:
    a:
      - {id: p, equals: x}
      - {id: q, status: 200, contains: y}
  customBannedSignals: closed
  resilience: {modelLockout: {errorCodes: [429, "x", 99]}}
`)
	var lines []string
	for _, p := range problems {
		lines = append(lines, fmt.Sprintf("%d %s: %s", p.Line, strings.TrimPrefix(p.Path, "settings."), p.Message))
	}
	require.Equal(t, []string{
		"4 providerErrorRules.a[0].status: must be from 100 to 599, not 42",
		"5 providerErrorRules.a[1].status: is required, from 100 to 599",
		"5 providerErrorRules.a[1].match: is empty; it would be found in everything",
		`5 providerErrorRules.a[1].scope: "planet" is not known; valid are model, connection, provider`,
		`5 providerErrorRules.a[1].reason: "hunger" is not known; valid are quota_exhausted, rate_limit_exceeded, model_capacity, server_error, auth_error, unknown`,
		"5 providerErrorRules.a[1].cooldownMs: must be from 0 to 86400000, not -1",
		"6 providerErrorRules.a[2].colour: unknown field; valid are cooldownMs, match, reason, scope, status",
		"7 providerErrorRules.a[3].status: want a whole number, not text",
		`7 providerErrorRules.a[3].match: want text, not a number; write "7" in quotes`,
		"8 providerErrorRules.: the name of a provider is empty",
		"11 statusRestatements.a[0].id: is required",
		"11 statusRestatements.a[0].fromStatuses[1]: must be from 100 to 599, not 1000",
		"11 statusRestatements.a[0].textMarkers[0]: is empty; it would be found in everything",
		"12 statusRestatements.a[1].fromStatuses: want a list, not a number",
		"12 statusRestatements.a[1].toStatus: must be from 400 to 599, not 399",
		"15 responsePredicates.a[0]: needs contains or path",
		"16 responsePredicates.a[1].status: must be from 400 to 599, not 200",
		"17 customBannedSignals: want a list, not text",
		"18 resilience.modelLockout.errorCodes[1]: want a whole number, not text",
		"18 resilience.modelLockout.errorCodes[2]: 99 is not between 100 and 599",
	}, lines)
}

func TestRulesAndSignalsAreBounded(t *testing.T) {
	rule := `{status: 400, match: x, scope: model}`
	many := strings.TrimSuffix(strings.Repeat(rule+", ", 26), ", ")
	problems := problemsOf(t, "settings: {providerErrorRules: {a: ["+many+"], b: ["+many+"]}}")
	require.Len(t, problems, 1)
	require.Equal(t, "has 52 rules, at most 50 are allowed", problems[0].Message)

	for text, want := range map[string]string{
		`customBannedSignals: ["` + strings.Repeat("x", 201) + `"]`:                                                                "must have 1 to 200 characters, this one has 201",
		`customBannedSignals: [` + strings.Repeat("x, ", 101) + `]`:                                                                "has 101 entries, at most 100 are allowed",
		`providerErrorRules: {a: [{status: 400, scope: model, match: "` + strings.Repeat("界", 201) + `"}]}`:                        "must have 1 to 200 characters, this one has 201",
		`providerErrorRules: {` + strings.Repeat("p", 101) + `: []}`:                                                               "the name of a provider must have at most 100 characters",
		`statusRestatements: {a: [{id: r, fromStatuses: [403], toStatus: 429, textMarkers: [` + strings.Repeat("x, ", 21) + `]}]}`: "has 21 entries, at most 20 are allowed",
	} {
		problems := problemsOf(t, "settings: {"+text+"}")
		require.Len(t, problems, 1, "%.40s", text)
		require.Equal(t, want, problems[0].Message)
	}
	parse(t, `settings: {providerErrorRules: {a: [{status: 400, scope: model, match: "`+strings.Repeat("界", 200)+`"}]}}`)
}

func TestRulesForAProviderThatIsNotThereAreWarnedAbout(t *testing.T) {
	outcome, err := catalog.PlanApply(stored(t, parse(t, twoProviders)),
		parse(t, "settings: {providerErrorRules: {aa: [{status: 400, match: x, scope: model}], a: [{status: 400, match: x, scope: model}]}}"), false, hash)
	require.NoError(t, err)
	require.Equal(t, []string{`settings.providerErrorRules: "aa" is neither a provider nor the kind of one; its rules have no effect`}, outcome.Diff.Warnings)
}

func TestTheEnvironmentsDefaultsStandBehindTheStoredSettings(t *testing.T) {
	threshold, window := 20, int64(5000)
	s := catalog.BuildSnapshot(stored(t, parse(t, twoProviders+"settings: {resilience: {providerBreaker: {apikey: {windowMs: 7000}}}}")), catalog.Environment{
		Resilience: resilience.Settings{ProviderBreaker: resilience.ByClass[resilience.BreakerSettings]{
			APIKey: resilience.BreakerSettings{FailureThreshold: &threshold, WindowMs: &window},
		}},
	})
	require.Equal(t, 20, s.Providers["a"].Breaker.FailureThreshold)
	require.EqualValues(t, 7000, s.Providers["a"].Breaker.Window.Milliseconds())
	require.Equal(t, 20, *s.Settings.Resilience.ProviderBreaker.APIKey.FailureThreshold)
}

func TestASectionOfANewerVersionIsLeftAlone(t *testing.T) {
	var settings catalog.DocSettings
	require.NoError(t, settings.SetSection("fromTheFuture", []byte(`{"x":1}`)))
	require.NoError(t, settings.SetSection("limits", []byte(`{"maxAttempts":3,"new":true}`)))
	require.Equal(t, 3, *settings.Limits.MaxAttempts)
	require.ErrorContains(t, settings.SetSection("limits", []byte(`[]`)), `settings section "limits"`)
	text, err := settings.Section("fromTheFuture")
	require.NoError(t, err)
	require.Nil(t, text)
}
