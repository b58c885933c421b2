// Package e2e tests journeys through the whole system from outside: what clients get, what
// reached the upstream, what the status endpoint, the ledger and Temporal show.
package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// twoKeys is one provider with two keys, of which key 1 goes first.
const twoKeys = `
providers:   [{id: p, class: api_key, dialect: openai, baseURL: PROVIDER_URL}]
connections:
  - {id: key-1, provider: p, priority: 1, credential: {apiKey: upstream-credential-one}}
  - {id: key-2, provider: p, priority: 2, credential: {apiKey: upstream-credential-two}}
models:      [{id: m, provider: p}]
apiKeys:     [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`

const (
	keyOne = "upstream-credential-one"
	keyTwo = "upstream-credential-two"
)

// twoTargets is a combo of two providers with one key each.
const twoTargets = `
providers:
  - {id: a, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
  - {id: b, class: api_key, dialect: openai, baseURL: PROVIDER_URL}
connections:
  - {id: a-1, provider: a, credential: {apiKey: upstream-credential-one}}
  - {id: b-1, provider: b, credential: {apiKey: upstream-credential-two}}
models:  [{id: m, provider: a}, {id: m, provider: b}]
combos:  [{name: best, strategy: priority, targets: [{model: a/m}, {model: b/m}]}]
apiKeys: [{name: client, key: "${CLIENT_KEY}", scopes: [inference]}]
`

func within(t testing.TB, limit, took time.Duration, what string) {
	t.Helper()
	require.Less(t, took, limit, what)
}
