package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

// stored is the catalog a file makes in an empty database.
func stored(t require.TestingT, doc *catalog.Document) *catalog.Stored {
	outcome, err := catalog.PlanApply(&catalog.Stored{}, doc, false, hash)
	require.NoError(t, err)
	return storedFrom(outcome.Result, map[string]catalog.StoredKey{})
}

func storedFrom(result *catalog.Document, keys map[string]catalog.StoredKey) *catalog.Stored {
	s := &catalog.Stored{Document: *result, Keys: map[string]catalog.StoredKey{}, Revision: 1}
	for i, key := range result.APIKeys {
		s.Keys[key.Name] = keys[key.Name]
		if clear := key.Key.Reveal(); clear != "" {
			s.Keys[key.Name] = catalog.StoredKey{ID: models.APIKeyID("id-" + key.Name), Hash: hash(clear)}
		}
		s.APIKeys[i].Key = catalog.Sealable{}
	}
	return s
}

func hash(clear string) (sum [32]byte) {
	copy(sum[:], clear)
	return sum
}

func snapshotOf(t *testing.T, text string) *catalog.Snapshot {
	t.Helper()
	return catalog.BuildSnapshot(stored(t, parse(t, text)), catalog.Environment{})
}

const twoProviders = `
providers:
  - {id: a, class: api_key, baseURL: "http://a/v1", timeouts: {idleMs: 1000}}
  - {id: b, class: local, baseURL: "http://b"}
connections:
  - {id: a-2, provider: a, priority: 2, credential: {apiKey: k2}}
  - {id: a-1, provider: a, priority: 2, credential: {apiKey: k1}}
  - {id: a-0, provider: a, priority: 5, credential: {apiKey: k0}, disabled: true}
  - {id: b-1, provider: b}
models:
  - {id: only-a, provider: a}
  - {id: both, provider: a}
  - {id: both, provider: b}
  - {id: a/only-a, provider: b}
`

func TestABareNameMeansAModelThatExactlyOneProviderHas(t *testing.T) {
	s := snapshotOf(t, twoProviders)

	require.Equal(t, models.ProviderID("a"), s.Routes["only-a"].Legs[0].Model.Ref.Provider)
	require.Nil(t, s.Routes["both"])
	require.NotNil(t, s.Routes["a/both"])
	require.NotNil(t, s.Routes["b/both"])
	require.Equal(t, models.ProviderID("a"), s.Routes["a/only-a"].Legs[0].Model.Ref.Provider,
		"a full name wins over another provider's bare id that looks like it")
	require.NotNil(t, s.Routes["b/a/only-a"])
	require.Equal(t, []string{"a/both", "a/only-a", "b/a/only-a", "b/both"}, s.Names)
}

func TestConnectionsStandByPriorityThenId(t *testing.T) {
	s := snapshotOf(t, twoProviders)

	var order []models.ConnectionID
	for _, c := range s.Routes["only-a"].Legs[0].Connections {
		order = append(order, c.ID)
	}
	require.Equal(t, []models.ConnectionID{"a-1", "a-2", "a-0"}, order)
	require.True(t, s.Connections["a-0"].Disabled)
	require.True(t, s.Connections["b-1"].APIKey.Empty())
}

func TestAComboTakesItsNameEvenFromAModel(t *testing.T) {
	s := snapshotOf(t, twoProviders+`
combos:
  - {name: only-a, targets: [{model: b/both}, {model: a/both, connection: a-2}]}
  - {name: a/both, targets: [{model: b/both}]}`)

	require.NotNil(t, s.Routes["only-a"].Combo)
	require.Len(t, s.Routes["only-a"].Legs, 2)
	require.Equal(t, models.ConnectionID("a-2"), s.Routes["only-a"].Legs[1].Connections[0].ID)
	require.NotNil(t, s.Routes["a/both"].Combo)
	require.Equal(t, []string{"a/both", "a/only-a", "b/a/only-a", "b/both", "only-a"}, s.Names, "no name twice")
}

func TestAKeyMayCallAnAllowedModelByEveryNameItHas(t *testing.T) {
	s := snapshotOf(t, twoProviders+`
combos: [{name: mix, targets: [{model: a/only-a}]}]
apiKeys:
  - {name: bare, key: "11111111111111111111111111111111", allowedModels: [only-a]}
  - {name: full, key: "22222222222222222222222222222222", allowedModels: [a/only-a, mix]}
  - {name: free, key: "33333333333333333333333333333333", allowedModels: [], allowedConnections: [a-1]}`)

	require.Equal(t, map[string]bool{"only-a": true, "a/only-a": true}, s.Keys[hash("11111111111111111111111111111111")].Models)
	require.Equal(t, map[string]bool{"only-a": true, "a/only-a": true, "mix": true, "combo/mix": true}, s.Keys[hash("22222222222222222222222222222222")].Models)
	free := s.Keys[hash("33333333333333333333333333333333")]
	require.Nil(t, free.Models, "an empty list allows all")
	require.Equal(t, map[models.ConnectionID]bool{"a-1": true}, free.Connections)
	require.Equal(t, map[string]bool{"inference": true}, free.Scopes)
}

func TestAProvidersTimeoutsGoOverTheOperatorsAndTheDefaults(t *testing.T) {
	s := snapshotOf(t, twoProviders+"settings: {timeouts: {idleMs: 5000, totalMs: 7000}, limits: {maxAttempts: 3}}")

	require.Equal(t, catalog.Timeouts{
		Connect: catalog.DefaultConnectTimeout, Headers: catalog.DefaultHeadersTimeout,
		FirstContent: catalog.DefaultFirstContentTimeout, Idle: time.Second, Total: 7 * time.Second,
	}, s.Providers["a"].Timeouts)
	require.Equal(t, 5*time.Second, s.Providers["b"].Timeouts.Idle)
	require.Equal(t, catalog.Limits{
		MaxBodyBytes: catalog.DefaultMaxBodyBytes, MaxEventBytes: catalog.DefaultMaxEventBytes, MaxAttempts: 3,
	}, s.Settings.Limits.Effective())
	require.Equal(t, s.Settings.Resilience.BreakerPolicy(models.ClassLocal), s.Providers["b"].Breaker)
}

func TestAConnectionWhoseCredentialDoesNotOpenIsDisabled(t *testing.T) {
	from := stored(t, parse(t, twoProviders))
	from.Unreadable = map[models.ConnectionID]error{"a-1": errors.New("wrong key")}

	s := catalog.BuildSnapshot(from, catalog.Environment{})

	require.True(t, s.Connections["a-1"].Disabled)
	require.False(t, s.Connections["a-2"].Disabled)
}

func TestNearMatchesAreThoseAClientMayHaveMeant(t *testing.T) {
	s := snapshotOf(t, `
providers: [{id: openai, class: local, baseURL: "http://a"}, {id: anthropic, class: local, baseURL: "http://b"}]
models: [{id: gpt-4o, provider: openai}, {id: gpt-4o-mini, provider: openai}, {id: claude-sonnet, provider: anthropic}]
combos: [{name: best, targets: [{model: openai/gpt-4o}]}]`)

	require.Equal(t, "gpt-4o", s.Near("gpt4o", nil)[0])
	require.Equal(t, "openai/gpt-4o", s.Near("openai/gpt4o", nil)[0])
	require.Contains(t, s.Near("sonnet", nil), "claude-sonnet")
	require.Equal(t, []string{"best"}, s.Near("Bset", nil))
	require.LessOrEqual(t, len(s.Near("gpt-4o-m", nil)), 3)
	require.Equal(t, []string{"openai/gpt-4o"}, s.Near("gpt-4", map[string]bool{"openai/gpt-4o": true, "best": true}),
		"only what the caller may use is named")
	require.Empty(t, s.Near("completely-different", nil))
	require.Empty(t, s.Near("", nil))
}

func TestASecretNeverPrints(t *testing.T) {
	const clear = "sk-do-not-print"
	secret := catalog.NewSecret(clear)
	view := catalog.ConnectionView{ID: "c", APIKey: secret}
	key := catalog.DocAPIKey{Name: "k", Key: catalog.Sealable{Secret: secret}}
	conn := catalog.DocConnection{Credential: &catalog.DocCredential{APIKey: catalog.Sealable{Secret: secret}}}

	for _, value := range []any{secret, &secret, view, &view, key, conn, []any{conn.Credential}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			require.NotContains(t, fmt.Sprintf(verb, value), clear, verb)
		}
		asJSON, err := json.Marshal(value)
		require.NoError(t, err)
		require.NotContains(t, string(asJSON), clear)
		asYAML, err := yaml.Marshal(value)
		require.NoError(t, err)
		require.NotContains(t, string(asYAML), clear)
	}
	require.Equal(t, clear, secret.Reveal())
}
