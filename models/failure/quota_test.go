package failure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// What is used up says how long to guess where nobody declares it. A status that carries the
// text by accident decides nothing.
func TestQuotaTextCoolsTheConnectionUnderEveryStatusThatCarriesIt(t *testing.T) {
	day := time.Hour // noon is more than that before midnight
	for body, want := range map[string]time.Duration{
		coded("insufficient_quota", "You exceeded your current quota, please check your plan and billing details."): time.Hour,
		said("Your account is out of credits."):                                          time.Hour,
		said("insufficient balance, please recharge"):                                    time.Hour,
		said("用户额度不足"):                                                                   time.Hour,
		said("Your account org-1 is suspended, please check your billing details."):      time.Hour,
		said("You have exceeded your daily quota."):                                      day,
		said("Daily limit of 50 requests reached"):                                       day,
		said("Rate limit exceeded: free-models-per-day. Add 10 credits"):                 day,
		said("you have used up all your daily free allocation of 10,000 neurons"):        day,
		said("5-hour usage limit reached"):                                               time.Hour,
		said("You have reached your weekly usage limit."):                                time.Hour,
		said("Session limit reached"):                                                    time.Hour,
		said("Monthly limit of 100 requests exceeded"):                                   time.Hour,
		said("今日使用上限"):                                                                   time.Hour,
		said("额度已用尽"):                                                                    time.Hour,
		said("Claude usage limit reached"):                                               time.Hour,
		`{"type":"error","error":{"type":"usage_limit_reached","message":"Slow down."}}`: time.Hour,
		`{"error":"organization_quota_exceeded"}`:                                        0,
		said("quota exceeded"):                                                           0,
		said("Individual quota reached."):                                                0,
		said("Your quota will reset when the window ends"):                               0,
	} {
		for _, status := range []int{400, 401, 403, 429} {
			v := Classify(answer(status, body), noon)
			require.Equal(t, effect{models.ReasonQuotaExhausted, models.BlameUpstream, models.ScopeConnection, "", false, true, want}, effectOf(v), "%d %s", status, body)
			require.Equal(t, 429, v.Status)
			require.Equal(t, sayQuota, v.Message, "what the upstream says about our account stays here")
		}
		for _, status := range []int{404, 422, 500, 503} {
			require.NotEqual(t, models.ReasonQuotaExhausted, Classify(answer(status, body), noon).Reason, "%d %s", status, body)
		}
	}
}

func TestTextThatOnlyMentionsQuotasIsNotOne(t *testing.T) {
	for _, message := range []string{
		"Resource has been exhausted (e.g. check quota).",
		"The rate limit for requests per minute is 60.",
		"See our billing page for details.",
		"The capacity of the free tier is limited.",
		"You can raise your quota in the settings.",
	} {
		require.Equal(t, models.ReasonRateLimited, Classify(answer(429, said(message)), noon).Reason, message)
		require.Equal(t, models.ReasonInvalidRequest, Classify(answer(400, said(message)), noon).Reason, message)
	}
	echo := `{"error":{"message":"Bad request"},"input":"what does insufficient_quota mean?"}`
	require.Equal(t, models.ReasonInvalidRequest, Classify(answer(400, echo), noon).Reason)
}

func TestARateLimitMayComeAsABadRequest(t *testing.T) {
	for _, body := range []string{
		said("Rate limit reached for requests per minute."), said("Too many requests, slow down"), said("请求过于频繁"),
		coded("rate_limit_exceeded", "x"),
	} {
		v := Classify(answer(400, body), noon)
		require.Equal(t, models.ReasonRateLimited, v.Reason, body)
		require.Equal(t, 429, v.Status)
	}
	require.Equal(t, models.ReasonInvalidRequest, Classify(answer(400, said("The header says rate limit reached")), noon).Reason)
}

// Google says "You exceeded your current quota" for limits of a minute, and adds the wait.
func TestAQuotaOfAMomentIsARateLimit(t *testing.T) {
	body := said("You exceeded your current quota. Please retry in 26.66s.")
	v := Classify(answer(429, body), noon)
	require.Equal(t, models.ReasonRateLimited, v.Reason)
	require.Equal(t, 26660*time.Millisecond, v.Hint)
	require.Zero(t, v.Fixed)
	require.Equal(t, sayRate, v.Message)

	for name, text := range map[string]string{"of a day": "Rate limit reached on tokens per day (TPD): Limit 100000.", "of a subscription": "usage limit reached"} {
		t.Run(name, func(t *testing.T) {
			s := answer(429, said(text))
			s.Headers = retryAfter("840")
			require.Equal(t, models.ReasonRateLimited, Classify(s, noon).Reason)
			s.Headers = nil
			require.Equal(t, models.ReasonQuotaExhausted, Classify(s, noon).Reason)
		})
	}
	t.Run("but missing money is not", func(t *testing.T) {
		s := answer(429, coded("insufficient_quota", "x"))
		s.Headers = retryAfter("20")
		v := Classify(s, noon)
		require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
		require.Equal(t, 20*time.Second, v.Hint)
	})
	t.Run("nor is a long wait", func(t *testing.T) {
		s := answer(429, body)
		s.Headers = retryAfter("7200")
		v := Classify(s, noon)
		require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
		require.Equal(t, 2*time.Hour, v.Hint)
	})
	t.Run("nor is another status", func(t *testing.T) {
		require.Equal(t, models.ReasonQuotaExhausted, Classify(answer(403, body), noon).Reason)
	})
}

// Midnight is a guess like any other, but the provider's own midnight is not.
func TestADaysQuotaEndsAtMidnightWhereThatIsKnown(t *testing.T) {
	s := answer(429, said("You have exceeded your daily quota."))
	late := time.Date(2026, 3, 1, 23, 40, 0, 0, time.UTC)
	require.Equal(t, 20*time.Minute, Classify(s, late).Fixed, "midnight in UTC comes before the longest guess")
	require.Equal(t, time.Minute, Classify(s, late.Add(20*time.Minute-time.Second)).Fixed)
	require.Zero(t, Classify(s, late).Hint)

	s.Rules = NewRules("gemini", nil, nil, nil, nil)
	v := Classify(s, noon)
	require.Equal(t, 20*time.Hour, v.Hint, "eight in the morning, when it is midnight in California")
	require.Equal(t, time.Hour, v.Fixed, "for those who honour no hints")
	require.Equal(t, 24*time.Hour, Classify(s, noon.Add(-4*time.Hour)).Hint, "at the very stroke it is the next")
	s.Headers = retryAfter("7200")
	require.Equal(t, 2*time.Hour, Classify(s, noon).Hint, "the answer itself knows better")
}

func TestA402IsTerminalUnlessAPeriodsQuotaIsMeant(t *testing.T) {
	require.Equal(t, models.PhaseCreditsExhausted, Classify(answer(402, said("Insufficient credits")), noon).Terminal)
	v := Classify(answer(402, said("Your hourly quota has been exceeded")), noon)
	require.Equal(t, models.ReasonQuotaExhausted, v.Reason)
	require.Empty(t, v.Terminal)
}

func TestA402IsAboutOneModelWhereQuotasArePerModel(t *testing.T) {
	s := answer(402, said("Payment required"))
	s.PerModelQuota = true
	v := Classify(s, noon)
	require.Equal(t, effect{models.ReasonCreditsExhausted, models.BlameUpstream, models.ScopeModel, "", false, true, 2 * time.Minute}, effectOf(v))
	require.Equal(t, models.LockFamily, v.Lock)

	t.Run("but not where all models drink from one wallet", func(t *testing.T) {
		for _, kind := range []string{"grok-cli", "grok-web", "xai-oauth"} {
			s.Rules = NewRules(kind, nil, nil, nil, nil)
			for body, terminal := range map[string]models.Phase{
				"": models.PhaseCreditsExhausted, said("Usage balance exhausted"): models.PhaseCreditsExhausted, said("Pay for this model"): "",
			} {
				s.Body = []byte(body)
				require.Equal(t, terminal, Classify(s, noon).Terminal, "%s %s", kind, body)
			}
		}
	})
}

// Design decision 3 of the catalog: what the account's limits explain is the family's where
// quotas are per model. What credentials and conduct explain stays the account's.
func TestLimitsAreTheFamilysWhereQuotasArePerModel(t *testing.T) {
	for status, bodies := range map[int][]string{
		429: {"", said("quota exceeded"), said("You have exceeded your daily quota."), coded("insufficient_quota", "x")},
		403: {"", said("quota exceeded")},
		400: {said("quota exceeded")},
		432: {""},
	} {
		for _, body := range bodies {
			s := answer(status, body)
			plain := Classify(s, noon)
			require.Equal(t, models.ScopeConnection, plain.Scope, "%d %s", status, body)
			s.PerModelQuota = true
			v := Classify(s, noon)
			require.Equal(t, models.ScopeModel, v.Scope, "%d %s", status, body)
			require.Equal(t, models.LockFamily, v.Lock)
			require.Equal(t, plain.Reason, v.Reason)
		}
	}
	for _, s := range []Signal{
		answer(401, ""), answer(403, said("account has been suspended")), answer(403, said("Error 1010: access denied")),
		answer(403, said("User location is not supported for the API use.")), answer(429, said("Your account is suspended: unpaid invoice")),
	} {
		s.PerModelQuota = true
		require.Equal(t, models.ScopeConnection, Classify(s, noon).Scope, string(s.Body))
	}
}

// Guide section 7: behind one address a limit is everybody's, whatever is counted per model.
func TestALimitOfTheAddressIsTheConnections(t *testing.T) {
	for _, body := range []string{"", said("quota exceeded"), said("monthly usage limit reached, resets in 2 days")} {
		s := answer(429, body)
		s.PerModelQuota, s.EgressShared = true, true
		s.Rules = NewRules("opencode-go", []OperatorRule{{Status: 429, Match: "exceeded", Scope: models.ScopeModel}}, nil, nil, nil)
		v := Classify(s, noon)
		require.Equal(t, models.ScopeConnection, v.Scope, body)
		require.True(t, v.Address)
		require.Empty(t, v.Lock)
	}
	s := answer(429, said("endpoint is unavailable"))
	s.PerModelQuota, s.EgressShared = true, true
	s.Rules = NewRules("opencode-go", nil, nil, nil, nil)
	require.Equal(t, models.ScopeModel, Classify(s, noon).Scope, "that is no limit")
	s = answer(403, "")
	s.PerModelQuota, s.EgressShared = true, true
	require.Equal(t, models.ScopeModel, Classify(s, noon).Scope, "nor is that")
	require.False(t, Classify(s, noon).Address)
	s = answer(429, "")
	require.False(t, Classify(s, noon).Address, "of a provider that counts by account")
}
