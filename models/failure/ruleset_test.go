package failure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// One signal for each built-in rule, and one beside it that the rule leaves alone.
func TestEveryBuiltinRuleDecidesAboutSomething(t *testing.T) {
	monthly := said("Monthly usage limit reached. Resets in 3 hours.")
	withHeaders := func(s Signal, pairs ...string) Signal {
		s.Headers = headers(pairs...)
		return s
	}
	of := func(kind string, status int, body string) Signal { return from(kind, models.ClassAPIKey, status, body) }
	examples := map[string]struct {
		fits, beside Signal
		fixed        time.Duration
		lock         models.LockScope
	}{
		"opencode-endpoint-unavailable":    {of("opencode-go", 400, said("This endpoint is unavailable")), of("opencode-go", 403, said("This endpoint is unavailable")), 5 * time.Minute, models.LockModel},
		"opencode-monthly-quota":           {of("opencode-zen", 429, monthly), of("opencode-zen", 429, said("Monthly usage limit reached.")), 3 * time.Hour, ""},
		"opencode-quota-headers":           {withHeaders(of("opencode-cli", 429, ""), "X-RateLimit-Remaining-Tokens", " 0 "), withHeaders(of("opencode-cli", 429, ""), "X-RateLimit-Remaining-Tokens", "10"), 0, ""},
		"opencode-quota":                   {of("opencode-go", 429, coded("plan_limit_reached", "x")), of("opencode-go", 400, coded("plan_limit_reached", "x")), 0, ""},
		"opencode-model-unavailable":       {of("opencode-go", 400, said("Upstream request failed: Model is unavailable.")), of("opencode", 400, said("Upstream request failed: Model is unavailable.")), time.Hour, models.LockModel},
		"minimax-model-quota":              {withHeaders(of("minimax", 429, ""), "X-Model-Quota-Remaining", "a=5, b=0"), withHeaders(of("minimax", 429, ""), "X-Model-Quota-Remaining", "a=5, b=10"), 0, models.LockFamily},
		"cloudflare-daily-neurons":         {of("cloudflare-ai", 429, said("you have used up your daily free allocation of 10,000 neurons")), of("cloudflare-ai", 429, said("slow down")), 0, ""},
		"openrouter-credit":                {of("openrouter", 402, ""), of("openai", 402, ""), 2 * time.Minute, ""},
		"agentrouter-model-access-denied":  {of("agentrouter", 403, said("无权访问模型")), of("openai", 403, said("无权访问模型")), 6 * time.Hour, models.LockModel},
		"agentrouter-user-quota-exhausted": {of("agentrouter", 400, said("额度不足")), of("agentrouter", 401, said("额度不足")), 0, ""},
		"gemini-invalid-key":               {of("gemini", 400, said("API key not valid. Please pass a valid API key.")), of("openai", 400, said("API key not valid. Please pass a valid API key.")), 0, ""},
	}
	require.Len(t, examples, len(builtinRules))
	for i := range builtinRules {
		rule := &builtinRules[i]
		t.Run(rule.id, func(t *testing.T) {
			example := examples[rule.id]
			v := Classify(example.fits, noon)
			require.Equal(t, rule.id, v.Rule)
			require.Equal(t, rule.reason, v.Reason)
			require.Equal(t, rule.scope, v.Scope)
			require.Equal(t, example.fixed, v.Fixed)
			require.Equal(t, example.lock, v.Lock)
			require.Empty(t, v.Terminal)
			require.True(t, v.Failover)
			require.NotEqual(t, rule.id, Classify(example.beside, noon).Rule)
		})
	}
}

func TestADeclaredWaitCountsWhereARuleNamesNone(t *testing.T) {
	s := from("agentrouter", models.ClassAPIKey, 429, said("额度不足"))
	s.Headers = retryAfter("7")
	require.Equal(t, 7*time.Second, Classify(s, noon).Hint)
	s = from("openrouter", models.ClassAPIKey, 402, "")
	s.Headers = retryAfter("7")
	v := Classify(s, noon)
	require.Zero(t, v.Hint, "a rule's own cooldown is the rule")
	require.Equal(t, 2*time.Minute, v.Fixed)
	s = from("opencode-go", models.ClassAPIKey, 429, said("Monthly usage limit reached. Resets in 12 days"))
	require.Equal(t, 24*time.Hour, Classify(s, noon).Fixed, "nothing is out for longer than a day")
	for text, want := range map[string]time.Duration{"40 seconds": 40 * time.Second, "5 minutes": 5 * time.Minute, "1 hour": time.Hour, "1 day": 24 * time.Hour} {
		s = from("opencode-go", models.ClassAPIKey, 429, said("Monthly usage limit reached. Resets in "+text))
		require.Equal(t, want, Classify(s, noon).Fixed, text)
	}
}

func TestAnOperatorsRuleIsAskedBeforeAllOthersAtEveryStatus(t *testing.T) {
	for _, status := range []int{400, 401, 402, 403, 404, 408, 413, 418, 422, 429, 500, 502, 503, 504, 529} {
		s := answer(status, coded("model_not_found", "The TENANT is asleep: account has been deactivated, quota exceeded"))
		s.Rules = NewRules("openai", []OperatorRule{
			{Status: status, Match: "something else", Scope: models.ScopeProvider},
			{Status: status, Match: "tenant Is asleep", Scope: models.ScopeModel, Reason: models.ReasonModelCapacity, CooldownMs: 90_000},
			{Status: status, Match: "tenant", Scope: models.ScopeProvider},
		}, nil, nil, nil)
		v := Classify(s, noon)
		require.Equal(t, effect{models.ReasonModelCapacity, models.BlameUpstream, models.ScopeModel, "", false, true, 90 * time.Second}, effectOf(v), status)
		require.Equal(t, "providerErrorRules[1]", v.Rule, "by its place in the setting")
		require.Equal(t, models.LockModel, v.Lock)
		require.Equal(t, status, v.UpstreamStatus)
	}
	s := from("agentrouter", models.ClassAPIKey, 403, said("无权访问模型"))
	s.Rules = NewRules("agentrouter", []OperatorRule{{Status: 403, Match: "无权", Scope: models.ScopeConnection}}, nil, nil, nil)
	v := Classify(s, noon)
	require.Equal(t, models.ScopeConnection, v.Scope, "also before the built-in ones")
	require.Equal(t, models.ReasonQuotaExhausted, v.Reason, "the reason where none is given")
}

// Each reason is one way to tell the client, and none of ours is a 401 to it.
func TestWhatARulesReasonMeansToTheClient(t *testing.T) {
	for reason, want := range map[models.Reason]struct {
		status int
		code   models.Code
	}{
		models.ReasonQuotaExhausted: {429, models.CodeUpstreamRateLimit},
		models.ReasonRateLimited:    {429, models.CodeUpstreamRateLimit},
		models.ReasonModelCapacity:  {503, models.CodeUpstreamFailed},
		models.ReasonServerError:    {504, models.CodeUpstreamFailed},
		models.ReasonAuth:           {503, models.CodeAllInactive},
		models.ReasonUnknown:        {502, models.CodeUpstreamFailed},
	} {
		for _, scope := range []models.Scope{models.ScopeConnection, models.ScopeProvider} {
			s := answer(504, said("here it is"))
			s.Rules = NewRules("openai", []OperatorRule{{Status: 504, Match: "it is", Scope: scope, Reason: reason}}, nil, nil, nil)
			v := Classify(s, noon)
			require.Equal(t, want.status, v.Status, reason)
			require.Equal(t, want.code, v.Code)
			require.Equal(t, scope, v.Scope)
			require.Empty(t, v.Lock)
			require.False(t, v.Trips, "what a rule puts out is not the breaker's as well")
		}
	}
	s := answer(503, said("this model is loading"))
	s.Rules = NewRules("openai", []OperatorRule{{Status: 503, Match: "loading", Scope: models.ScopeModel, Reason: models.ReasonServerError}}, nil, nil, nil)
	require.True(t, Classify(s, noon).Trips, "a server error is one")
}

func TestAnOperatorsRuleKnowsAnAnswerByAnyOfItsStatuses(t *testing.T) {
	for _, status := range []int{403, 429} {
		s := answer(403, said("用户额度不足"))
		s.Rules = NewRules("agentrouter", []OperatorRule{{Status: status, Match: "额度", Scope: models.ScopeProvider}}, nil, nil, nil)
		v := Classify(s, noon)
		require.Equal(t, models.ScopeProvider, v.Scope, status)
		require.Equal(t, 403, v.RestatedFrom)
		require.Equal(t, time.Minute, v.ClientRetryAfter)
	}
	for _, status := range []int{200, 503} {
		s := Signal{Kind: KindInStream, Status: 200, Body: []byte(`{"error":{"code":503,"message":"tenant asleep"}}`)}
		s.Rules = NewRules("openai", []OperatorRule{{Status: status, Match: "asleep", Scope: models.ScopeProvider}}, nil, nil, nil)
		require.Equal(t, models.ScopeProvider, Classify(s, noon).Scope, status)
	}
}

func TestAnOperatorsRestatementIsAskedBeforeTheBuiltinOnes(t *testing.T) {
	s := answer(403, said("Subscription 额度不足"))
	s.Rules = NewRules("agentrouter", nil, []Restatement{
		{ID: "other", FromStatuses: []int{403}, ToStatus: 500, TextMarkers: []string{"nothing of the kind"}},
		{ID: "excluded", FromStatuses: []int{403}, ToStatus: 500, TextMarkers: []string{"额度"}, ExcludeMarkers: []string{"SUBSCRIPTION"}},
		{ID: "mine", FromStatuses: []int{400, 403}, ToStatus: 503, TextMarkers: []string{"zzz", "subscription"}, DefaultRetryAfterMs: 1500},
	}, nil, nil)
	v := Classify(s, noon)
	require.Equal(t, "mine", v.Rule)
	require.Equal(t, 503, v.UpstreamStatus)
	require.Equal(t, 403, v.RestatedFrom)
	require.Equal(t, 1500*time.Millisecond, v.ClientRetryAfter)
	require.True(t, v.Trips, "the meant status counts for everything")
}

// Weakness of many: an error inside a 200 stream is restated, too.
func TestAnErrorInsideAnAnswerIsRestatedToo(t *testing.T) {
	rules := NewRules("agentrouter", nil, nil, nil, nil)
	for _, body := range []string{
		`{"error":{"message":"用户额度不足","code":403}}`, `{"error":{"message":"用户额度不足","type":"permission_error"}}`,
	} {
		v := Classify(Signal{Kind: KindInStream, Status: 200, Body: []byte(body), Rules: rules, PerModelQuota: true}, noon)
		require.Equal(t, 403, v.RestatedFrom, body)
		require.Equal(t, 429, v.Status)
		require.Equal(t, "agentrouter-user-quota-exhausted", v.Rule)
		require.Equal(t, models.ScopeConnection, v.Scope)
	}
}

func TestNoRulesAtAllAreTheGeneralTable(t *testing.T) {
	for status := 400; status < 600; status++ {
		bare, empty := answer(status, said("quota exceeded")), answer(status, said("quota exceeded"))
		empty.Rules = NewRules("", nil, nil, nil, nil)
		require.Equal(t, Classify(bare, noon), Classify(empty, noon), status)
		require.Empty(t, Classify(bare, noon).Rule)
	}
	var none *Rules
	require.Nil(t, none.Recognise([]byte(`{}`), nil))
	require.Nil(t, none.Overhears("x"))
	require.False(t, none.Watches() || none.Listens())
}

func TestASettingThatSaysNothingMatchesNothing(t *testing.T) {
	s := answer(403, said("anything"))
	s.Rules = NewRules("openai", []OperatorRule{{Status: 403}}, []Restatement{{FromStatuses: []int{403}, ToStatus: 429, TextMarkers: []string{""}}}, []Predicate{{ID: "p"}}, []string{"", "  "})
	require.Equal(t, effectOf(Classify(answer(403, said("anything")), noon)), effectOf(Classify(s, noon)))
	require.Nil(t, s.Rules.Recognise([]byte(`{"x":1}`), nil))
}
