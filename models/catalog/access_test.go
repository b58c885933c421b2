package catalog_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

func TestWhatAFileSaysOfAccountsIsRead(t *testing.T) {
	environment["REFRESH"], environment["PROXY"] = "refresh-from-the-environment", "https://u:p@Proxy.Example/"
	doc := parse(t, `
providers:
  - {id: work, class: oauth, baseURL: "https://w", kind: codex, egressShared: false,
     quota: {perModel: true, families: {spark: [gpt-5.3-codex-spark], "odd.name": ["a*", b]}},
     oauth: {tokenURL: "https://auth/token?tenant=1", clientId: omni, clientSecret: "${OPENAI_API_KEY}", scopes: ["models:read", offline]}}
connections:
  - {id: a, provider: work, passthroughModels: false, disableCooling: true, proxy: "${PROXY}", localAddress: "::FFFF:192.0.2.7",
     credential: {accessToken: at, refreshToken: "${REFRESH}", expiresAt: 2030-01-02T03:04:05+01:00}}
  - {id: b, provider: work, proxy: "socks5://localhost"}`)

	p, a := doc.Providers[0], doc.Connections[0]
	require.Equal(t, map[string][]string{"spark": {"gpt-5.3-codex-spark"}, "odd.name": {"a*", "b"}}, p.Quota.Families)
	require.True(t, *p.Quota.PerModel)
	require.False(t, *p.EgressShared)
	require.Equal(t, "https://auth/token?tenant=1", p.OAuth.TokenURL, "a query belongs to a token endpoint")
	require.Equal(t, "sk-from-the-environment", p.OAuth.ClientSecret.Reveal())
	require.Equal(t, []string{"models:read", "offline"}, p.OAuth.Scopes)
	require.False(t, *a.PassthroughModels)
	require.True(t, a.DisableCooling && a.Credential.Tokens())
	require.Equal(t, "refresh-from-the-environment", a.Credential.RefreshToken.Reveal())
	require.True(t, a.Credential.ExpiresAt.Equal(time.Date(2030, 1, 2, 2, 4, 5, 0, time.UTC)))
	require.Equal(t, "https://u:p@proxy.example:443", a.Proxy.Reveal(), "in its usual form")
	require.Equal(t, "192.0.2.7", a.LocalAddress)
	require.Equal(t, "socks5://localhost:1080", doc.Connections[1].Proxy.Reveal())
}

func TestEachProblemOfAnAccount(t *testing.T) {
	provider := func(rest string) string {
		return `providers: [{id: p, class: oauth, baseURL: "http://p", ` + rest + `}]`
	}
	connection := func(rest string) string { return `connections: [{id: c, provider: p, ` + rest + `}]` }
	endpoint := func(rest string) string { return provider(`oauth: {tokenURL: "http://t", clientId: c, ` + rest + `}`) }
	environment["SECRET_URL"], environment["LONG"] = "ftp://u:hunter2@h", strings.Repeat("x", 20_000)
	for text, want := range map[string]string{
		provider(`kind: "a b"`):                                    "kind: must be 1 to 100 letters",
		provider(`quota: {families: {x: []}}`):                     "quota.families.x: a family needs at least one pattern",
		provider(`quota: {families: {x: [""]}}`):                   "quota.families.x[0]: is required",
		provider(`quota: {families: {x: [" a"]}}`):                 "begins or ends with white space",
		provider(`quota: {families: {"a b": [c]}}`):                "the name of a family must be",
		provider(`quota: {families: {x: [a], x: [b]}}`):            "is given twice",
		provider(`quota: {families: {"${A}": [b]}}`):               "is replaced in credential and key fields only",
		provider(`quota: {families: [x]}`):                         "want fields, not a list",
		provider(`quota: {permodel: true}`):                        `did you mean "perModel"?`,
		provider(`egressShared: "yes"`):                            "want true or false, not text",
		provider(`oauth: {clientId: c}`):                           "oauth.tokenURL: is required",
		provider(`oauth: {tokenURL: "http://t"}`):                  "oauth.clientId: is required",
		provider(`oauth: {tokenURL: "ldap://t", clientId: c}`):     "must begin with http:// or https://",
		provider(`oauth: {tokenURL: "http://u:p@t", clientId: c}`): "must not contain a user or password",
		provider(`oauth: {tokenURL: "http://t#x", clientId: c}`):   "must not contain a fragment",
		endpoint(`scopes: ["a b"]`):                                "several scopes are several entries",
		endpoint(`clientSecret: "${NOPE}"`):                        "the environment variable NOPE is not set",
		endpoint(`clientSecret: ""`):                               "is empty",
		`providers: [{id: p, class: api_key, baseURL: "http://p", oauth: {tokenURL: "http://t", clientId: c}}]`: "is for a provider of class oauth, this one is of class api_key",

		connection(`credential: {apiKey: a, accessToken: b}`):           "has an API key and tokens",
		connection(`credential: {apiKey: a, refreshToken: b}`):          "has an API key and tokens",
		connection(`credential: {apiKey: a, expiresAt: 2030-01-01}`):    "says when accessToken expires; an API key does not",
		connection(`credential: {accessToken: a, expiresAt: tomorrow}`): "want a time such as",
		connection(`credential: {accessToken: "${LONG}"}`):              "must have at most 16384 characters, this one has 20000",
		connection(`proxy: "ftp://h"`):                                  "must begin with http://, https:// or socks5://",
		connection(`proxy: "${SECRET_URL}"`):                            "must begin with http://, https:// or socks5://",
		connection(`proxy: "http://"`):                                  "has no host",
		connection(`proxy: "http://h:0"`):                               "has a port that is not from 1 to 65535",
		connection(`proxy: "http://h:99999"`):                           "has a port that is not from 1 to 65535",
		connection(`proxy: "http://h:"`):                                "has a port that is not from 1 to 65535",
		connection(`proxy: "http://h:x"`):                               "is not a valid URL",
		connection(`proxy: "http://h/path"`):                            "scheme, user, host and port only",
		connection(`localAddress: localhost`):                           "must be an IP address of this machine",
		connection(`localAddress: "0.0.0.0"`):                           "must be an address that requests can leave from",
		connection(`localAddress: 192.0.2.7/24`):                        "must be an IP address of this machine",
		connection(`passthroughModels: 1`):                              "want true or false, not a number",
	} {
		_, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", lookup)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "hunter2", "a proxy's URL is never shown")
	}
}

func TestTokensNeedSomewhereToBeRefreshed(t *testing.T) {
	_, err := catalog.PlanApply(&catalog.Stored{}, parse(t, `
providers: [{id: p, class: oauth, baseURL: "http://p"}]
connections:
  - {id: a, provider: p, credential: {accessToken: at, refreshToken: rt}}
  - {id: b, provider: p, credential: {accessToken: at}}`), false, hash)

	require.EqualError(t, err, `c.yaml:4: connections[0].credential: refreshToken needs the oauth.tokenURL of provider "p", which has none`)
}

func TestADiffTellsOfTokensAndPasswordsWithoutThem(t *testing.T) {
	before := stored(t, parse(t, tokens+`, proxy: "http://u:first@proxy:1"}]`))
	for text, want := range map[string]string{
		tokens + `, proxy: "http://u:other@proxy:1"}]`: "~ connection c: proxy (changed)",
		tokens + `, proxy: "http://u:first@proxy:2"}]`: "~ connection c: proxy http://proxy:1 -> http://proxy:2",
		tokens + `}]`: "~ connection c: proxy http://proxy:1 -> (default)",
		strings.Replace(tokens, "refreshToken: rt", "refreshToken: r2", 1) + `, proxy: "http://u:first@proxy:1"}]`:           "~ connection c: secret (changed)",
		strings.Replace(tokens, "clientSecret: cs", "clientSecret: c2", 1) + `, proxy: "http://u:first@proxy:1"}]`:           "~ provider p: oauth.clientSecret (changed)",
		strings.Replace(tokens, ", clientSecret: cs", "", 1) + `, proxy: "http://u:first@proxy:1"}]`:                         "", // the same client keeps its secret
		strings.Replace(tokens, "clientId: id, clientSecret: cs", "clientId: i2", 1) + `, proxy: "http://u:first@proxy:1"}]`: "~ provider p: oauth.clientId id -> i2, oauth.clientSecret (set) -> (default)",
		strings.Replace(tokens, "2030", "2031", 1) + `, proxy: "http://u:first@proxy:1"}]`:                                   "~ connection c: credential.expiresAt 2030-01-01T00:00:00Z -> 2031-01-01T00:00:00Z",
	} {
		outcome, err := catalog.PlanApply(before, parse(t, text), false, hash)
		require.NoError(t, err)
		first, _, _ := strings.Cut(outcome.Diff.String(), "\n")
		if want == "" {
			require.True(t, outcome.Diff.Empty(), outcome.Diff.String())
			continue
		}
		require.Equal(t, want, first)
	}
}

const tokens = `
providers: [{id: p, class: oauth, baseURL: "http://p", oauth: {tokenURL: "http://t", clientId: id, clientSecret: cs}}]
connections: [{id: c, provider: p, credential: {accessToken: at, refreshToken: rt, expiresAt: 2030-01-01}`

// The facts of the guide's providers (guide sections 3 and 8).
func TestAKindBringsWhatIsKnownOfIt(t *testing.T) {
	type known struct{ perModel, egress bool }
	for kind, want := range map[string]known{
		"codex": {true, false}, "gemini": {true, false}, "github": {true, false}, "antigravity": {true, false}, "agy": {true, false},
		"agentrouter": {true, false}, "novita": {true, false}, "openai-compatible-mine": {true, false}, "anthropic-compatible-x": {true, false},
		"opencode": {true, false}, "opencode-zen": {true, false}, "opencode-go": {true, true}, "opencode-cli": {true, true},
		"openai": {}, "anthropic": {}, "codexx": {}, "openai-compatible": {},
	} {
		s := snapshotOf(t, `
providers: [{id: `+kind+`, class: api_key, baseURL: "http://p"}, {id: other, kind: `+kind+`, class: api_key, baseURL: "http://p"}]`)
		for _, id := range []models.ProviderID{models.ProviderID(kind), "other"} {
			require.Equal(t, want, known{s.Providers[id].PerModelQuota, s.Providers[id].EgressShared}, kind)
			require.Equal(t, kind, s.Providers[id].Kind)
			require.NotNil(t, s.Providers[id].Rules)
		}
	}
	require.True(t, snapshotOf(t, `providers: [{id: x, class: local, baseURL: "http://p"}]`).Providers["x"].PerModelQuota)
}

func TestAModelBelongsToTheFamilyWhosePatternSaysMostOfIt(t *testing.T) {
	family := func(provider, model string) string {
		s := snapshotOf(t, "providers: [{id: p, class: oauth, baseURL: \"http://p\", "+provider+"}]\nmodels: [{id: \""+model+"\", provider: p}]")
		return s.Models[models.ModelRef{Provider: "p", Model: model}].Family
	}
	for model, want := range map[string]string{
		"gpt-5.3-codex-spark": "spark", "codex-spark-mini": "spark", "GPT-5.3-Codex-Spark": "spark",
		"gpt-5.3-codex": "codex", "gpt-5": "codex", "codex-mini": "codex", "gpt-4o": "", "my-gpt-5": "",
	} {
		require.Equal(t, want, family("kind: codex", model), model)
	}
	own := `kind: codex, quota: {families: {all: ["*"], big: ["vendor/*-large"], "exact": ["vendor/x-large"]}}`
	require.Equal(t, "all", family(own, "gpt-5"), "given families replace the built-in ones")
	require.Equal(t, "big", family(own, "vendor/y-large"))
	require.Equal(t, "exact", family(own, "vendor/x-large"))
	require.Empty(t, family(`kind: codex, quota: {families: {}}`, "gpt-5"))
	require.Empty(t, family(`kind: openai`, "gpt-5"))
}

func TestTheCatalogGoesOverTheEnvironmentAndThatOverWhatIsKnown(t *testing.T) {
	from := stored(t, parse(t, `
providers:
  - {id: opencode-go, class: api_key, baseURL: "http://p"}
  - {id: mine, kind: Special, class: api_key, baseURL: "http://p"}
  - {id: said, kind: opencode-go, class: api_key, baseURL: "http://p", egressShared: false, quota: {perModel: false}}`))
	shared := func(e catalog.Environment) (list []string) {
		s := catalog.BuildSnapshot(from, e)
		for _, id := range []models.ProviderID{"opencode-go", "mine", "said"} {
			if s.Providers[id].EgressShared {
				list = append(list, string(id))
			}
		}
		return list
	}

	require.Equal(t, []string{"opencode-go"}, shared(catalog.Environment{}))
	require.Equal(t, []string{"mine"}, shared(catalog.Environment{EgressShared: []string{"special", "opencode-go-2"}}))
	require.Empty(t, shared(catalog.Environment{EgressShared: []string{}}))
	require.False(t, catalog.BuildSnapshot(from, catalog.Environment{}).Providers["said"].PerModelQuota)
}

func TestAConnectionSaysHowItLeavesAndWhatItsPolicyIs(t *testing.T) {
	s := snapshotOf(t, `
providers: [{id: p, class: local, baseURL: "http://p"}]
settings: {resilience: {expiredRetry: {maxRetries: 1}, modelLockout: {enabled: true}}}
connections:
  - {id: plain, provider: p}
  - {id: proxied, provider: p, proxy: "http://one:secret@Proxy:3128", localAddress: 192.0.2.1}
  - {id: again, provider: p, proxy: "socks5://[2001:db8::1]", disableCooling: true, passthroughModels: false}
  - {id: bound, provider: p, localAddress: 192.0.2.1}`)

	for id, want := range map[models.ConnectionID]string{
		"plain": "", "proxied": "proxy proxy:3128", "again": "proxy [2001:db8::1]:1080", "bound": "192.0.2.1",
	} {
		require.Equal(t, want, s.Connections[id].Egress, id)
	}
	require.Equal(t, "192.0.2.1", s.Connections["proxied"].LocalAddress)
	require.True(t, s.Connections["plain"].PerModelQuota)
	require.False(t, s.Connections["again"].PerModelQuota)
	require.True(t, s.Connections["again"].Policy.NoCooldown)
	require.False(t, s.Connections["plain"].Policy.NoCooldown)
	require.Equal(t, 1, s.Connections["plain"].Policy.Expired.Retries)
	require.True(t, s.Connections["plain"].Policy.Lockout.Enabled)
	require.Equal(t, s.Providers["p"].Cooldown, s.Connections["plain"].Policy.Cooldown)
}

func TestTheNewestTokensStandInThePlaceOfTheDeclaredOnes(t *testing.T) {
	from := stored(t, parse(t, tokens+`}]`))
	from.Tokens = map[models.ConnectionID]catalog.StoredTokens{"c": {Generation: 4}}
	declared := catalog.BuildSnapshot(from, catalog.Environment{}).Connections["c"]
	renewedUntil := time.Date(2031, 5, 1, 0, 0, 0, 0, time.UTC)
	from.Tokens["c"] = catalog.StoredTokens{Generation: 5, AccessToken: catalog.NewSecret("newer"), ExpiresAt: renewedUntil}
	renewed := catalog.BuildSnapshot(from, catalog.Environment{}).Connections["c"]

	require.Equal(t, "at", declared.APIKey.Reveal())
	require.EqualValues(t, 4, declared.TokenGeneration)
	require.Equal(t, "newer", renewed.APIKey.Reveal())
	require.EqualValues(t, 5, renewed.TokenGeneration)
	require.True(t, renewed.Renewable)
	require.True(t, renewed.Policy.Renewable, "what is seen to expire is not over before a renewal is refused")

	require.False(t, renewed.Expiring(renewedUntil.Add(-5*time.Minute-time.Second)))
	require.True(t, renewed.Expiring(renewedUntil.Add(-5*time.Minute)))
	require.True(t, renewed.Expiring(renewedUntil.Add(time.Hour)))
	fixed := *renewed
	fixed.Renewable = false
	require.False(t, fixed.Expiring(renewedUntil), "there is nothing to renew it with")
	unknown := *renewed
	unknown.TokenExpiresAt = time.Time{}
	require.False(t, unknown.Expiring(renewedUntil), "when it ends is not known")

	from.UnreadableClients = map[models.ProviderID]error{"p": os.ErrInvalid}
	require.False(t, catalog.BuildSnapshot(from, catalog.Environment{}).Connections["c"].Renewable)
}
