package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models/catalog"
	"omniroute/models/routing"
)

var environment = map[string]string{
	"OPENAI_API_KEY": "sk-from-the-environment", "CI_KEY": strings.Repeat("k", 32), "EMPTY": "",
	"TRAILING": "sk-x\n", "SPACED": "sk x\ty",
}

func lookup(name string) (string, bool) {
	value, set := environment[name]
	return value, set
}

func parse(t *testing.T, text string) *catalog.Document {
	t.Helper()
	doc, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", lookup)
	require.NoError(t, err)
	return doc
}

func problemsOf(t *testing.T, text string) []catalog.Problem {
	t.Helper()
	_, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", lookup)
	var document *catalog.DocumentError
	require.ErrorAs(t, err, &document)
	return document.Problems
}

func TestTheWholeFileIsRead(t *testing.T) {
	doc := parse(t, `
providers:   [{id: openai, class: api_key, dialect: openai, baseURL: https://api.openai.com/v1/, timeouts: {connectMs: 500}}]     # class: oauth | api_key | local
connections: [{id: openai-1, provider: openai, credential: {apiKey: "${OPENAI_API_KEY}"}, priority: 1, maxConcurrent: 4}, {id: b, provider: openai, disabled: true}]
models:      [{id: gpt-x, provider: openai, contextWindow: 128000, price: {input: 2.5, output: 10}, capabilities: [tools, vision]}]
combos:
  - name: best
    strategy: priority
    targets: [{model: openai/gpt-x}, {model: openai/gpt-x, connection: openai-1, weight: 30}]
    config: {maxRetries: 1}
apiKeys:     [{name: ci, key: "${CI_KEY}", scopes: [inference], allowedConnections: [], allowedModels: [], expiresAt: 2030-06-01}]
settings:    {resilience: {providerBreaker: {oauth: {failureThreshold: 3}}, comboCooldownWait: {enabled: true, maxWaitMs: 90000}}, limits: {maxAttempts: 4}}
`)

	require.Equal(t, "https://api.openai.com/v1", doc.Providers[0].BaseURL, "without the slash")
	require.EqualValues(t, 500, *doc.Providers[0].Timeouts.ConnectMs)
	require.Equal(t, "sk-from-the-environment", doc.Connections[0].Credential.APIKey.Reveal())
	require.Equal(t, "${OPENAI_API_KEY}", doc.Connections[0].Credential.APIKey.Placeholder)
	require.Equal(t, 4, doc.Connections[0].MaxConcurrent)
	require.Equal(t, catalog.DefaultPriority, doc.Connections[1].Priority)
	require.Nil(t, doc.Connections[1].Credential)
	require.Equal(t, &catalog.DocPrice{Input: 2.5, Output: 10}, doc.Models[0].Price)
	require.EqualValues(t, 30, doc.Combos[0].Targets[1].Weight)
	require.Equal(t, 1, *doc.Combos[0].Config.MaxRetries)
	require.Empty(t, doc.APIKeys[0].AllowedModels)
	require.Equal(t, time.Date(2030, 6, 1, 0, 0, 0, 0, time.UTC), doc.APIKeys[0].ExpiresAt)
	require.Equal(t, 3, *doc.Settings.Resilience.ProviderBreaker.OAuth.FailureThreshold)
	require.Equal(t, 4, *doc.Settings.Limits.MaxAttempts)
	require.Equal(t, 90*time.Second, doc.Settings.Resilience.ComboWait().Longest)
	require.Nil(t, doc.Settings.Timeouts)
}

func TestDefaultsFillWhatTheFileLeavesOut(t *testing.T) {
	doc := parse(t, `
providers: [{id: p, class: local, baseURL: "http://localhost:11434"}]
combos: [{name: c, targets: [{model: p/m}]}]
apiKeys: [{name: k, scopes: []}]`)

	require.Equal(t, "openai", doc.Providers[0].Dialect)
	require.Equal(t, "priority", doc.Combos[0].Strategy)
	require.Equal(t, []string{"inference"}, doc.APIKeys[0].Scopes)
	require.Nil(t, doc.Connections, "a section that is absent is nil")
	require.NotNil(t, parse(t, `connections: []`).Connections, "one that is empty is not")
}

func TestAnchorsAndAliasesStandForWhatTheyName(t *testing.T) {
	doc := parse(t, `
providers:
  - {id: a, class: api_key, baseURL: "http://a", timeouts: &slow {idleMs: 1000}}
  - {id: b, class: api_key, baseURL: "http://b", timeouts: *slow}`)

	require.EqualValues(t, 1000, *doc.Providers[1].Timeouts.IdleMs)
}

func TestEveryProblemOfAFileIsToldAtOnceByPathAndLine(t *testing.T) {
	_, err := catalog.ParseDocument(strings.NewReader(`
providers:
  - id: openai
    class: api-key
    baseURL: ftp://x
connections:
  - id: a
    provider: opnai
    credential: {apiKey: "${NOPE}"}
    priority: high
  - id: a
    provider: openai
    credential: {apikey: "sk-123"}
models: 3
combos:
  - name: x
    strategy: prioritee
    targets: []
  - name: y
    targets: [{model: openai/m}, {model: openai/m}, {model: zz}]
apiKeys: [{name: 12, key: short}]
settings: {timeouts: {connectMs: 0}}
`), "bad.yaml", lookup)

	require.Equal(t, strings.TrimSpace(`
bad.yaml:4: providers[0].class: "api-key" is not known; did you mean "api_key"? valid are oauth, api_key, local
bad.yaml:5: providers[0].baseURL: must begin with http:// or https://
bad.yaml:8: connections[0].provider: there is no provider "opnai" in this file (the stored catalog may have it); did you mean "openai"?
bad.yaml:9: connections[0].credential.apiKey: the environment variable NOPE is not set
bad.yaml:10: connections[0].priority: want a whole number, not text
bad.yaml:11: connections[1].id: "a" is already at connections[0].id, line 7
bad.yaml:13: connections[1].credential.apikey: unknown field; did you mean "apiKey"?
bad.yaml:14: models: want a list, not a number
bad.yaml:17: combos[0].strategy: "prioritee" is not known; did you mean "priority"? valid are `+strings.Join(routing.Strategies(), ", ")+`
bad.yaml:18: combos[0].targets: a combo needs at least one target, at most 200
bad.yaml:20: combos[1].targets[1]: "openai/m" is already at combos[1].targets[0], line 20; give one of them an id
bad.yaml:20: combos[1].targets[2].model: must be written provider/model
bad.yaml:20: combos[1].targets[0].model: there is no model "openai/m" in this file (the stored catalog may have it)
bad.yaml:20: combos[1].targets[1].model: there is no model "openai/m" in this file (the stored catalog may have it)
bad.yaml:21: apiKeys[0].name: want text, not a number; write "12" in quotes
bad.yaml:21: apiKeys[0].key: must have 32 to 1024 characters, this one has 5
bad.yaml:22: settings.timeouts.connectMs: must be from 1 to 86400000, not 0`), err.Error())
}

func TestEachProblem(t *testing.T) {
	targets := make([]string, 201)
	for i := range targets {
		targets[i] = fmt.Sprintf("{model: p/m%d}", i)
	}
	for text, want := range map[string]string{
		``:                               "is empty",
		"# only a comment":               "is empty",
		"providers: []\n---\na: 1":       "more than one YAML document",
		`[1, 2]`:                         "want fields, not a list",
		`just text`:                      "want fields, not text",
		`provider: []`:                   `unknown field; did you mean "providers"?`,
		`providers: {id: x}`:             "want a list, not fields",
		`providers: `:                    "has no value",
		`providers: [x]`:                 "want fields, not text",
		"a: [\n":                         "is not valid YAML",
		"providers: []\nproviders: []\n": "is given twice",
		`connections: [{id: a, id: b, provider: p}]`:                               "is given twice",
		`providers: [{id: "a/b", class: local, baseURL: "http://x"}]`:              "must be 1 to 100 letters",
		`providers: [{class: local, baseURL: "http://x"}]`:                         "is required",
		`providers: [{id: a, class: local, baseURL: "http://u:p@x"}]`:              "must not contain a user or password",
		`providers: [{id: a, class: local, baseURL: "http://x?key=1"}]`:            "must not contain a query",
		`providers: [{id: a, class: local, baseURL: "https://"}]`:                  "has no host",
		`providers: [{id: a, class: local, baseURL: "${OPENAI_API_KEY}"}]`:         "is replaced in credential and key fields only",
		`providers: [{id: a, class: local, dialect: openia, baseURL: "http://x"}]`: `did you mean "openai"?`,
		`connections: [{id: a, provider: p, priority: -1}]`:                        "must be from 0 to 100000, not -1",
		`connections: [{id: a, provider: p, priority: 1.5}]`:                       "want a whole number",
		`connections: [{id: a, provider: p, priority: 99999999999999999999}]`:      "want a whole number",
		`connections: [{id: a, provider: p, disabled: "yes"}]`:                     "want true or false, not text",
		`connections: [{id: a, provider: p, credential: {apiKey: "${EMPTY}"}}]`:    "EMPTY is empty",
		`connections: [{id: a, provider: p, credential: {apiKey: "${TRAILING}"}}]`: "white space",
		`connections: [{id: a, provider: p, credential: {apiKey: "${SPACED}"}}]`:   "control character",
		`connections: [{id: a, provider: p, credential: {apiKey: ""}}]`:            "is empty",
		`connections: [{id: a, provider: p, credential: {apiKey: "${OPENAI"}}]`:    "a placeholder is written ${NAME}",
		`connections: [{id: a, provider: p, credential: {apiKey: 12345}}]`:         "want text in quotes, not a number",
		`connections: [{id: a, provider: p, credential: sk-12345}]`:                "want fields, not text",
		`models: [{id: m, provider: p, price: {input: -1}}]`:                       "must be from 0 to 1000000000, not -1",
		`models: [{id: m, provider: p, price: {input: .inf}}]`:                     "want a number",
		`models: [{id: m, provider: p, price: {input: .nan}}]`:                     "want a number",
		`models: [{id: m, provider: p}, {id: m, provider: p}]`:                     `"p/m" is already at models[0].id`,
		`models: [{id: m, provider: p, capabilities: [Tools]}]`:                    "lower-case word",
		`models: [{id: " m", provider: p}]`:                                        "white space",
		`combos: [{name: "a\tb", targets: [{model: p/m}]}]`:                        "must be 1 to 100 letters",
		`combos: [{name: c, targets: [{model: p/m}], config: {maxRetries: 11}}]`:   "must be from 0 to 10, not 11",
		`combos: [{name: c, targets: [{model: p/m, weight: -1}]}]`:                 "must be from 0 to 100, not -1",
		`combos: [{name: c, targets: [` + strings.Join(targets, ",") + `]}]`:       "at most 200 targets, this one has 201",
		`combos: [{name: c}]`: "needs at least one target",
		`apiKeys: [{name: a, key: "${CI_KEY}"}, {name: b, key: "${CI_KEY}"}]`:             "is the same key as apiKeys[0].key",
		`apiKeys: [{name: a, scopes: [mange]}]`:                                           `did you mean "manage"?`,
		`apiKeys: [{name: a, expiresAt: soon}]`:                                           "want a time such as",
		`settings: {resilience: {providerBreaker: {apikey: {failureThreshold: 0}}}}`:      "",
		`settings: {resilience: {providerBreaker: {api_key: {}}}}`:                        `did you mean "apikey"?`,
		`settings: {resilience: {comboCooldownWait: {maxWaitMs: 300001}}}`:                "300001 is not between 0 and 300000",
		`settings: {resilience: {waitForCooldown: {maxWaitMs: 1}}}`:                       `maxRetryWaitSec`,
		`settings: {limits: {maxBodyBytes: 10}}`:                                          "must be from 1024",
		`settings: {limits: {maxAttempts: 0}}`:                                            "must be from 1 to 100",
		"providers:\n  - <<: {id: a}\n    class: local\n    baseURL: http://x\n    id: a": "merge keys",
		`providers: [{id: *nowhere, class: local, baseURL: "http://x"}]`:                  "no anchor named",
		`providers: [{id: !!str a, class: local, baseURL: "http://x"}]`:                   "tags are not supported",
		strings.Repeat("[", 5000):                                                         "nested deeper than",
		strings.Repeat("a: b\n", 101):                                                     "more than 100 fields",
		"{" + strings.Repeat("a: b,", 101) + "}":                                          "more than 100 fields",
		strings.Repeat("? a\n", 101):                                                      "more than 100 fields",
		strings.Repeat("- ", 5000):                                                        "nested deeper than",
	} {
		problems := problemsOf(t, text)
		require.Condition(t, func() bool {
			for _, p := range problems {
				if strings.Contains(p.Message, want) {
					return true
				}
			}
			return false
		}, "%.80s: want %q in %v", text, want, problems)
	}
}

func TestASettingOutOfTheGuidesBoundsIsNamedByItsPath(t *testing.T) {
	problems := problemsOf(t, "settings:\n  resilience:\n    providerBreaker:\n      apikey:\n        failureThreshold: 0\n")

	require.Len(t, problems, 1)
	require.Equal(t, "settings.resilience.providerBreaker.apikey.failureThreshold", problems[0].Path)
	require.Equal(t, 5, problems[0].Line)
}

func TestALargeFileIsReadAndACircleOfAliasesIsNot(t *testing.T) {
	var large strings.Builder
	large.WriteString("combos:\n")
	for i := range 3_000 {
		fmt.Fprintf(&large, "  - {name: c%d, targets: [{model: p/m}]}\n", i)
	}
	require.Len(t, parse(t, large.String()).Combos, 3_000, "a large honest file is read")

	circle := problemsOf(t, "providers: &a [*a, *a, *a]\n")
	require.NotEmpty(t, circle)
}

func TestNoProblemShowsASecret(t *testing.T) {
	environment["LEAK"] = "sk-must-not-show " // a trailing space makes it a problem
	for _, text := range []string{
		`connections: [{id: a, provider: p, credential: {apiKey: "${LEAK}"}}]`,
		"connections: [{id: a, provider: p, credential: {apiKey: 'sk-must-not-show}}]",
		"connections:\n  - id: a\n    credential:\n      apiKey: sk-must-not-show: x: y\n     bad",
		`connections: [{id: a, provider: p, credential: {apikey: sk-must-not-show}}]`,
		`connections: [{id: a, provider: p, credential: sk-must-not-show}]`,
		`apiKeys: [{name: a, key: sk-must-not-show}, {name: b, key: sk-must-not-show}]`,
	} {
		_, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", lookup)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "must-not-show", text)
	}
}

func TestADollarBraceCanBeWritten(t *testing.T) {
	doc := parse(t, `
connections: [{id: a, provider: p, credential: {apiKey: "x$${OPENAI_API_KEY}y${OPENAI_API_KEY}"}}]
models: [{id: "m$${x}", provider: p}]`)

	require.Equal(t, "x${OPENAI_API_KEY}ysk-from-the-environment", doc.Connections[0].Credential.APIKey.Reveal())
	require.Empty(t, doc.Connections[0].Credential.APIKey.Placeholder)
	require.Equal(t, "m${x}", doc.Models[0].ID)
}

func TestAFileThatIsTooLargeOrCannotBeReadSaysSo(t *testing.T) {
	_, err := catalog.ParseDocument(strings.NewReader(strings.Repeat("#", 9<<20)), "c.yaml", lookup)
	require.EqualError(t, err, "c.yaml: is larger than 8 MiB")
	_, err = catalog.ParseDocument(failing{}, "c.yaml", lookup)
	require.EqualError(t, err, "c.yaml: cannot be read: broken pipe")
}

func TestAHopelessFileIsToldWithinBounds(t *testing.T) {
	problems := problemsOf(t, "combos: ["+strings.Repeat("{},", 5000)+"]")
	require.Len(t, problems, 101)
	require.Equal(t, "and 9900 more problems", problems[100].Message)

	problems = problemsOf(t, "providers: [{id: x, class: "+strings.Repeat("y", 1<<20)+", baseURL: 'http://x'}]")
	require.Less(t, len(problems[0].Message), 500)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("broken pipe") }

func FuzzParseDocumentNeverPanicsAndWhatItAcceptsRoundTrips(f *testing.F) {
	for _, seed := range []string{
		"", "a", "{}", "providers: [{id: a, class: local, baseURL: 'http://x'}]",
		"connections: [{id: a, provider: p, credential: {apiKey: \"${OPENAI_API_KEY}\"}}]",
		"models: [{id: 'm: #$${', provider: p, price: {input: 1e3}}]", "combos: &a [*a]", "? a : b", "- - -", "!!x", "a: |\n  b",
		"apiKeys: [{name: a, expiresAt: 2030-01-01T00:00:00Z}]", "settings: {limits: {maxAttempts: 2}, resilience: {connectionCooldown: {oauth: {baseCooldownMs: 0, useUpstreamRetryHints: false}}}}",
		`providers: [{id: p, class: oauth, baseURL: "http://p", quota: {families: {"odd $${": [a*], "1": [b]}}, oauth: {tokenURL: "http://t", clientId: c, clientSecret: "${CI_KEY}"}}]`,
		`connections: [{id: a, provider: p, proxy: "socks5://u:p@h", localAddress: "::1", credential: {accessToken: a, refreshToken: "${CI_KEY}", expiresAt: 2030-01-01}}]`,
		"connections: [{id: a, provider: p, priority: 0}]", "combos: []", "\xff", "%YAML 1.2\n---\n{}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
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
		rewritten, err := again.YAML()
		require.NoError(t, err)
		require.Equal(t, string(written), string(rewritten))
	})
}
