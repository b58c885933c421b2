package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models/catalog"
)

// Whatever is stored and whatever file comes: applying it a second time changes nothing, and
// neither does applying the export of the result with the same secrets.
func TestApplyingIsIdempotentAndAnExportRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, err := catalog.PlanApply(&catalog.Stored{}, mustParse(t, drawDocument(t, "before")), false, hash)
		if err != nil {
			return // tokens without an endpoint to refresh them
		}
		before := storedFrom(first.Result, map[string]catalog.StoredKey{})
		text := drawDocument(t, "file")
		prune := rapid.Bool().Draw(t, "prune")
		outcome, err := catalog.PlanApply(before, mustParse(t, text), prune, hash)
		if err != nil {
			return // a reference of what stays, or a new connection without a credential
		}
		after := storedFrom(outcome.Result, before.Keys)

		again, err := catalog.PlanApply(after, mustParse(t, text), prune, hash)
		if err != nil || !again.Diff.Empty() {
			t.Fatalf("applied again: %v\n%v\n%s", err, again.Diff, text)
		}
		exported := after.Export()
		written, err := exported.YAML()
		if err != nil {
			t.Fatal(err)
		}
		env := map[string]string{}
		remember := func(exported, stored catalog.Sealable) {
			env[strings.Trim(exported.Placeholder, "${}")] = stored.Reveal()
		}
		for i, p := range exported.Providers {
			if p.OAuth != nil {
				remember(p.OAuth.ClientSecret, after.Providers[i].OAuth.ClientSecret)
			}
		}
		for i, c := range exported.Connections {
			remember(c.Proxy, after.Connections[i].Proxy)
			if c.Credential != nil {
				remember(c.Credential.APIKey, after.Connections[i].Credential.APIKey)
				remember(c.Credential.AccessToken, after.Connections[i].Credential.AccessToken)
				remember(c.Credential.RefreshToken, after.Connections[i].Credential.RefreshToken)
			}
		}
		reread, err := catalog.ParseDocument(strings.NewReader(string(written)), "export", func(name string) (string, bool) {
			value, set := env[name]
			return value, set
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, written)
		}
		same, err := catalog.PlanApply(after, reread, true, hash)
		if err != nil || !same.Diff.Empty() {
			t.Fatalf("the export changes something: %v\n%v\n%s", err, same.Diff, written)
		}
	})
}

func TestASecretIsComparedByItsValueAndNeverShown(t *testing.T) {
	before := stored(t, parse(t, `
providers: [{id: p, class: api_key, baseURL: "http://p"}]
connections: [{id: c, provider: p, credential: {apiKey: sk-one}}]
apiKeys: [{name: k, key: "11111111111111111111111111111111"}]`))

	same, err := catalog.PlanApply(before, parse(t, `connections: [{id: c, provider: p, credential: {apiKey: sk-one}}]
apiKeys: [{name: k, key: "11111111111111111111111111111111"}]`), false, hash)
	require.NoError(t, err)
	require.True(t, same.Diff.Empty())

	changed, err := catalog.PlanApply(before, parse(t, `connections: [{id: c, provider: p, credential: {apiKey: sk-two}}]
apiKeys: [{name: k, key: "22222222222222222222222222222222"}]`), false, hash)
	require.NoError(t, err)
	require.Equal(t, "~ connection c: secret (changed)\n~ apiKey k: secret (changed)\n0 to create, 2 to update, 0 to delete", changed.Diff.String())
	require.True(t, changed.Diff.Changes[0].NewCredential)
}

func TestALocalConnectionCanDropItsCredentialAndOthersCannot(t *testing.T) {
	before := stored(t, parse(t, `
providers: [{id: p, class: api_key, baseURL: "http://p"}, {id: l, class: local, baseURL: "http://l"}]
connections: [{id: c, provider: p, credential: {apiKey: sk-one}}, {id: d, provider: l, credential: {apiKey: sk-two}}]`))

	dropped, err := catalog.PlanApply(before, parse(t, `connections: [{id: d, provider: l, credential: {}}]`), false, hash)
	require.NoError(t, err)
	require.True(t, dropped.Diff.Changes[0].NewCredential)

	_, err = catalog.PlanApply(before, parse(t, `connections: [{id: c, provider: p, credential: {}}]`), false, hash)
	require.EqualError(t, err, "c.yaml:1: connections[0].credential: a connection of class api_key needs credential.apiKey")

	_, err = catalog.PlanApply(before, parse(t, `providers: [{id: l, class: oauth, baseURL: "http://l"}]
connections: [{id: e, provider: l}]`), false, hash)
	require.ErrorContains(t, err, "connections[0].credential: a connection of class oauth needs credential.accessToken or credential.refreshToken")
}

func TestAKeyThatAnotherNameHasIsRefusedUnlessThatNameGivesItUp(t *testing.T) {
	before := stored(t, parse(t, `apiKeys: [{name: k, key: "11111111111111111111111111111111"}]`))
	file := `apiKeys: [{name: other, key: "11111111111111111111111111111111"}]`

	_, err := catalog.PlanApply(before, parse(t, file), false, hash)
	require.EqualError(t, err, `c.yaml:1: apiKeys[0].key: is already the key of "k"`)

	renamed, err := catalog.PlanApply(before, parse(t, file), true, hash)
	require.NoError(t, err)
	require.Len(t, renamed.Diff.Changes, 2)
}

func TestANewKeyNeedsAKey(t *testing.T) {
	_, err := catalog.PlanApply(&catalog.Stored{}, parse(t, `apiKeys: [{name: k}]`), false, hash)

	require.EqualError(t, err, "c.yaml:1: apiKeys[0].key: is required for a new key")
}

func TestWarningsTellOfTargetsNothingServes(t *testing.T) {
	outcome, err := catalog.PlanApply(&catalog.Stored{}, parse(t, `
providers: [{id: p, class: local, baseURL: "http://p"}]
models: [{id: m, provider: p}]
combos: [{name: c, targets: [{model: p/m}]}]`), false, hash)

	require.NoError(t, err)
	require.Equal(t, []string{`combo "c": target 0, p/m, has no connection`}, outcome.Diff.Warnings)
	require.Contains(t, outcome.Diff.String(), "warning: combo")
}

// drawDocument writes a small file whose references hold within itself. Few names, so that
// two files meet.
func drawDocument(t *rapid.T, label string) string {
	var b strings.Builder
	number := func(from, to int, what string) int { return rapid.IntRange(from, to).Draw(t, label+" "+what) }
	some := func(what string) bool { return rapid.Bool().Draw(t, label+" "+what) }
	b.WriteString("providers:\n")
	for p := range 2 {
		fmt.Fprintf(&b, "  - {id: p%d, class: %s, baseURL: \"http://h%d\", quota: %s}\n", p, rapid.SampledFrom([]string{
			"local", "api_key", "oauth",
			`oauth, oauth: {tokenURL: "http://t/token", clientId: one, clientSecret: first, scopes: [a, b]}`,
			`oauth, oauth: {tokenURL: "http://t/token", clientId: one}`,
			`oauth, oauth: {tokenURL: "http://t/token", clientId: two, clientSecret: second}, kind: codex, egressShared: false`,
		}).Draw(t, label+" class"), number(0, 1, "host"),
			rapid.SampledFrom([]string{"{}", "{perModel: false}", "{families: {}}", "{families: {big: [gpt-*], odd: [x]}}"}).Draw(t, label+" quota"))
	}
	b.WriteString("connections:\n")
	for c := range number(1, 3, "connections") {
		fmt.Fprintf(&b, "  - {id: c%d, provider: p%d, priority: %d, credential: {%s}%s}\n",
			c, number(0, 1, "provider"), number(0, 2, "priority"), rapid.SampledFrom([]string{
				"apiKey: key-1", "apiKey: key-2", "accessToken: key-1", "accessToken: key-1, refreshToken: r-1",
				"refreshToken: r-1", "accessToken: key-2, refreshToken: r-1, expiresAt: 2030-01-01T10:00:00Z",
			}).Draw(t, label+" credential"), rapid.SampledFrom([]string{
				"", `, proxy: "http://u:one@Proxy"`, `, proxy: "http://u:two@proxy:80/"`, `, proxy: "socks5://[::1]", localAddress: "::ffff:192.0.2.1"`,
				", passthroughModels: false, disableCooling: true", ", localAddress: 192.0.2.1",
			}).Draw(t, label+" way"))
	}
	b.WriteString("models:\n  - {id: m, provider: p0}\n  - {id: m, provider: p1}\n")
	if some("model") {
		fmt.Fprintf(&b, "  - {id: \"odd $${x}: #%d\", provider: p0, price: {input: %d.5}, capabilities: [tools]}\n", number(0, 1, "odd"), number(0, 1, "price"))
	}
	if some("combos") {
		fmt.Fprintf(&b, "combos:\n  - {name: best, targets: [{model: p0/m}, {model: p1/m, weight: %d}], config: {maxRetries: %d}}\n", number(0, 1, "weight"), number(0, 1, "retries"))
	}
	if some("keys") {
		fmt.Fprintf(&b, "apiKeys:\n  - {name: k, key: \"%d1111111111111111111111111111111\", allowedModels: [p1/m], scopes: [%s]}\n",
			number(1, 2, "key"), rapid.SampledFrom([]string{"inference", "manage"}).Draw(t, label+" scope"))
	}
	if some("settings") {
		fmt.Fprintf(&b, "settings: {timeouts: {connectMs: %d}, resilience: {connectionCooldown: {oauth: {baseCooldownMs: %d}}}}\n", number(1, 2, "timeout"), number(0, 1, "base"))
	}
	return b.String()
}

func mustParse(t *rapid.T, text string) *catalog.Document {
	doc, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", lookup)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return doc
}
