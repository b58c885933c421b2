package failure

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// storm is what failures come in: error answers of one kilobyte with the headers that real
// providers send along.
func storm() map[string]Signal {
	padding := strings.Repeat("Visit our documentation to learn more about it. ", 14)
	limits := headers(
		"Content-Type", "application/json", "X-Ratelimit-Limit-Requests", "500", "X-Ratelimit-Remaining-Requests", "499",
		"X-Ratelimit-Reset-Requests", "120ms", "X-Ratelimit-Limit-Tokens", "30000", "X-Ratelimit-Remaining-Tokens", "0",
		"X-Ratelimit-Reset-Tokens", "4s", "Date", "Sun, 01 Mar 2026 12:00:00 GMT",
	)
	signal := func(status int, h http.Header, body string) Signal {
		return Signal{
			Kind: KindHTTP, Status: status, Headers: h, Body: []byte(body), Class: models.ClassAPIKey, Model: "gpt-x",
			Credential: "sk-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJ", Rules: NewRules("openai", []OperatorRule{
				{Status: 429, Match: "Please Recharge", Scope: models.ScopeConnection}, {Status: 400, Match: "overloaded", Scope: models.ScopeModel},
			}, nil, nil, []string{"we have closed your account"}),
		}
	}
	agentrouter := signal(403, nil, `{"error":{"message":"用户额度不足, 剩余额度: ＄-0.000012 `+padding+`","type":"new_api_error","code":"insufficient_user_quota"}}`)
	agentrouter.Rules, agentrouter.PerModelQuota = NewRules("agentrouter", nil, nil, nil, nil), true
	return map[string]Signal{
		"a rate limit": signal(429, limits, `{"error":{"message":"Rate limit reached for gpt-4o in organization org-AbC123 on tokens per min (TPM): Limit 30000, Used 28000, Requested 4000. Please try again in 4s. `+padding+`","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`),
		"no capacity":  signal(503, nil, `{"error":{"message":"The server is overloaded or not ready yet. `+padding+padding[:200]+`","type":"server_error","param":null,"code":null}}`),
		"a bad key":    signal(401, nil, `{"error":{"message":"Incorrect API key provided. `+padding+padding[:200]+`","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`),
		"Google's":     signal(429, nil, `{"error":{"code":429,"message":"You exceeded your current quota. `+padding+`","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"PerMinute"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"26s"}]}}`),
		"restated":     agentrouter,
	}
}

// mostAllocations leaves some of the 20 that a verdict and what live makes of it may cost.
const mostAllocations = 16

func TestAVerdictOnAKilobyteCostsNextToNothing(t *testing.T) {
	for name, s := range storm() {
		t.Run(name, func(t *testing.T) {
			require.InDelta(t, 1000, len(s.Body), 250)
			require.LessOrEqual(t, testing.AllocsPerRun(100, func() { Classify(s, noon) }), float64(mostAllocations))
		})
	}
}

// Whatever an upstream sends, the cost is bounded by what is kept of it.
func TestAHostileBodyCostsNoMoreThanItsSize(t *testing.T) {
	for name, body := range hostileBodies() {
		s := answer(429, body)
		require.Less(t, testing.AllocsPerRun(5, func() { Classify(s, noon) }), 200.0, name)
	}
}

func BenchmarkClassify(b *testing.B) {
	for name, s := range storm() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Classify(s, noon)
			}
		})
	}
}
