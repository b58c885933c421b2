package failure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

func from(kind string, class models.Class, status int, body string) Signal {
	s := answer(status, body)
	s.Class, s.Rules = class, NewRules(kind, nil, nil, nil, nil)
	return s
}

// The vectors of the engine that ours goes back to. Where a comment says so, the design decides
// otherwise: nothing but a 402 ends an account's credit for good, for such an end does not mend
// itself; a wait without a declared end is the backoff's; hints count for every class.
func TestTheKnownVectorsOfClassification(t *testing.T) {
	const (
		none  = models.Phase("")
		key   = models.ClassAPIKey
		oauth = models.ClassOAuth
	)
	vectors := map[string]struct {
		signal   Signal
		reason   models.Reason
		terminal models.Phase
		failover bool
	}{
		"a ban": {from("openai", key, 401, said("This account has been deactivated")), models.ReasonBanned, models.PhaseBanned, true},
		// A quota of the model; the account's credit is not its matter.
		"the free tier of a model":       {from("", "", 429, said("The free tier of the model has been exhausted")), models.ReasonQuotaExhausted, none, true},
		"no credit":                      {from("openai", key, 402, coded("credit_balance_too_low", "x")), models.ReasonCreditsExhausted, models.PhaseCreditsExhausted, true},
		"no credit, but a 429 of a key":  {from("openai", key, 429, coded("credit_balance_too_low", "x")), models.ReasonRateLimited, none, true},
		"no credit, of a subscriber":     {from("codex", oauth, 429, coded("credit_balance_too_low", "x")), models.ReasonQuotaExhausted, none, true}, // not for good
		"a quota":                        {from("openai", key, 429, said("quota exceeded")), models.ReasonQuotaExhausted, none, true},
		"tomorrow, says a 429 of a key":  {from("openai", key, 429, said("Please try again tomorrow")), models.ReasonRateLimited, none, true},
		"a day's quota of a key":         {from("openai", key, 429, said("You exceeded your daily quota")), models.ReasonQuotaExhausted, none, true},
		"a day's quota of a subscriber":  {from("codex", oauth, 429, said("You exceeded your daily quota")), models.ReasonQuotaExhausted, none, true},
		"today's quota behind a 402":     {from("openai", key, 402, said("You have used up today's quota, please try again tomorrow")), models.ReasonQuotaExhausted, none, true},
		"Google's rate limit":            {from("", "", 429, said("Resource has been exhausted (e.g. check quota).")), models.ReasonRateLimited, none, true},
		"Google's rate limit, at Google": {from("gemini", key, 429, said("Resource has been exhausted (e.g. check quota).")), models.ReasonRateLimited, none, true},
		// The declared 592044 s are in prose, which is believed for half an hour.
		"an individual quota":          {from("antigravity", oauth, 429, said("Individual quota reached. Contact your administrator. Resets in 164h27m24s.")), models.ReasonQuotaExhausted, none, true},
		"an hour's quota behind a 402": {from("openai", key, 402, said("hour quota has been exceeded")), models.ReasonQuotaExhausted, none, true},
		"an hour's quota behind a 403": {from("openai", key, 403, said("hour quota has been exceeded")), models.ReasonQuotaExhausted, none, true},
		"a bad request":                {from("openai", key, 400, said("bad request payload")), models.ReasonInvalidRequest, none, false},
		"a bad key as a bad request":   {from("openai", key, 400, said("Invalid API key provided for model gpt-4o")), models.ReasonInvalidRequest, none, false},
		"its code":                     {from("openai", key, 400, coded("invalid_api_key", "something is wrong")), models.ReasonInvalidRequest, none, false},
		// A model that is missing is out as after a 404.
		"a missing model":        {from("openai", key, 400, said("The model `foo` does not exist or you do not have access to it.")), models.ReasonNotFound, none, true},
		"an invalid model":       {from("openai", key, 400, said("Invalid model: x")), models.ReasonNotFound, none, true},
		"a model out of reach":   {from("openai", key, 400, `{"error":{"message":"you do not have access to the requested model","type":"permission_error"}}`), models.ReasonNotFound, none, true},
		"a feature out of reach": {from("openai", key, 400, `{"error":{"message":"API key does not have permission to use the Message Batches API","type":"permission_error"}}`), models.ReasonInvalidRequest, none, false},
		"a balance":              {from("openai-compatible-x", key, 429, said("insufficient balance, please recharge")), models.ReasonQuotaExhausted, none, true}, // not for good
	}
	for name, c := range vectors {
		t.Run(name, func(t *testing.T) {
			v := Classify(c.signal, noon)
			require.Equal(t, c.reason, v.Reason)
			require.Equal(t, c.terminal, v.Terminal)
			require.Equal(t, c.failover, v.Failover)
			if !c.failover {
				require.Equal(t, models.ScopeNone, v.Scope)
			}
		})
	}

	require.Equal(t, 30*time.Minute, Classify(vectors["an individual quota"].signal, noon).Hint)
	today := Classify(vectors["today's quota behind a 402"].signal, noon)
	require.Positive(t, today.Fixed)
	require.LessOrEqual(t, today.Fixed, 24*time.Hour)
	for _, name := range []string{"a quota", "no credit, but a 429 of a key", "tomorrow, says a 429 of a key"} {
		v := Classify(vectors[name].signal, noon)
		require.Zero(t, v.Fixed, "%s: the backoff's base", name)
		require.Zero(t, v.Hint, name)
	}
}

func TestTheKnownVectorsOfADaysQuota(t *testing.T) {
	body := said("Your account reached its rate limit: organization TPD rate limit, current 1500000")
	now := time.Date(2026, 9, 2, 7, 30, 0, 0, time.UTC)
	v := Classify(from("moonshot", models.ClassAPIKey, 429, body), now)
	require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
	require.Equal(t, 30_600_000*time.Millisecond, v.Hint, "midnight in Shanghai")

	v = Classify(from("openai", models.ClassAPIKey, 429, body), now)
	require.Zero(t, v.Hint)
	require.Less(t, v.Fixed, 2*time.Hour, "nobody knows the day's end")
}

// Guide section 7.
func TestTheKnownVectorsOfRestatement(t *testing.T) {
	const rule = "agentrouter-quota-misstatus"
	for name, c := range map[string]struct {
		kind       string
		status     int
		body       string
		retryAfter string
		seen       int
		from       int
		told       time.Duration
	}{
		"a used-up quota":          {"agentrouter", 403, said("用户额度不足"), "", 429, 403, time.Minute},
		"a model out of reach":     {"agentrouter", 403, said("无权访问模型"), "", 403, 0, 0},
		"both at once":             {"agentrouter", 403, said("无权访问模型, 额度不足"), "", 403, 0, 0},
		"the marker is the code":   {"agentrouter", 403, coded("额度不足", "x"), "", 429, 403, time.Minute},
		"the upstream's own wait":  {"agentrouter", 403, said("用户额度不足"), "5", 429, 403, 0},
		"as a bad request":         {"agentrouter", 400, said("额度不足"), "", 429, 400, time.Minute},
		"a bad key":                {"agentrouter", 403, said("Invalid API key"), "", 403, 0, 0},
		"of another provider":      {"openai", 403, said("用户额度不足"), "", 403, 0, 0},
		"of no known provider":     {"", 403, said("用户额度不足"), "", 403, 0, 0},
		"what is a 429 stays one":  {"agentrouter", 429, said("用户额度不足"), "1", 429, 0, 0},
		"in another part of body":  {"agentrouter", 403, `{"error":{"message":"x"},"input":"额度不足"}`, "", 403, 0, 0},
		"under another status yet": {"agentrouter", 401, said("用户额度不足"), "", 401, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := from(c.kind, models.ClassAPIKey, c.status, c.body)
			if c.retryAfter != "" {
				s.Headers = retryAfter(c.retryAfter)
			}
			v := Classify(s, noon)
			require.Equal(t, c.seen, v.UpstreamStatus)
			require.Equal(t, c.from, v.RestatedFrom)
			require.Equal(t, c.told, v.ClientRetryAfter)
			if c.from != 0 {
				require.Equal(t, 429, v.Status)
				require.Equal(t, models.CodeUpstreamRateLimit, v.Code)
				require.NotEqual(t, rule, v.Rule, "the classifying rule is the more telling one")
			}
		})
	}
}

// Rules see the parsed error of every provider, and their scope counts for every provider, so
// that an opencode body and OpenRouter's 402 do what their rules say.
func TestTheKnownVectorsOfProviderRules(t *testing.T) {
	quota := from("agentrouter", models.ClassAPIKey, 429, said("用户额度不足"))
	quota.PerModelQuota = true
	v := Classify(quota, noon)
	require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
	require.Equal(t, models.ScopeConnection, v.Scope, "an account's quota, although quotas are per model")
	require.Empty(t, v.Terminal)
	require.Zero(t, v.Fixed, "the backoff decides")

	access := from("agentrouter", models.ClassAPIKey, 403, said("无权访问模型"))
	v = Classify(access, noon)
	require.Equal(t, models.ScopeModel, v.Scope)
	require.Equal(t, models.LockModel, v.Lock)
	require.Equal(t, models.ReasonAuth, v.Reason)
	require.Equal(t, 21_600_000*time.Millisecond, v.Fixed)
	require.Equal(t, 403, v.Status, "it is not restated, and the client sees it")

	v = Classify(from("opencode-zen", models.ClassAPIKey, 429, said("organization_quota_exceeded")), noon)
	require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
	require.Equal(t, models.ScopeConnection, v.Scope)

	v = Classify(from("openrouter", models.ClassAPIKey, 402, ""), noon)
	require.Equal(t, models.ScopeConnection, v.Scope)
	require.Empty(t, v.Terminal)

	left := from("opencode-go", models.ClassAPIKey, 429, "")
	left.Headers = headers("x-RATELIMIT-remaining-REQUESTS", "0")
	require.Equal(t, models.ReasonQuotaExhausted, Classify(left, noon).Reason)
}
