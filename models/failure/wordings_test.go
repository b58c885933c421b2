package failure

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// Every word for a ban that is known, under both statuses and for every class of account: it
// ends in the one state, whichever way it came.
func TestABanIsABanByWhicheverWayItComes(t *testing.T) {
	classes := []models.Class{models.ClassOAuth, models.ClassAPIKey, models.ClassLocal, ""}
	for _, words := range []string{
		"account_deactivated", "Your account has been deactivated.", "Your account has been disabled.", "Your account has been suspended.",
		"This account is deactivated", "This service has been disabled in this account",
		"This service has been disabled in this account for violation of the terms.",
	} {
		for _, class := range classes {
			for _, status := range []int{401, 403} {
				for _, perModel := range []bool{false, true} {
					s := from("openai", class, status, said(words))
					s.PerModelQuota = perModel
					require.Equal(t, effect{models.ReasonBanned, models.BlameUpstream, models.ScopeConnection, models.PhaseBanned, false, true, 0}, effectOf(Classify(s, noon)), "%s %d %s", class, status, words)
				}
			}
		}
	}
	for way, s := range map[string]Signal{
		"by its code":           answer(403, coded("account_deactivated", "Contact support.")),
		"inside an answer":      {Kind: KindInStream, Status: 200, Body: []byte(`{"error":{"type":"permission_error","message":"Your account has been disabled."}}`)},
		"by an operator's word": {Kind: KindHTTP, Status: 401, Body: []byte(said("tenant frozen")), Rules: NewRules("x", nil, nil, nil, []string{"tenant frozen"})},
	} {
		for _, class := range classes {
			s.Class = class
			require.Equal(t, models.PhaseBanned, Classify(s, noon).Terminal, "%s %s", way, class)
		}
	}
	require.Empty(t, Classify(answer(403, said("Verify your account to continue.")), noon).Terminal)
}

// Every word for missing money that is known. A 402 says that an account has to pay; under any
// other status the same words are a quota, which is tried again after a while.
func TestEveryWordForMissingMoneyIsKnown(t *testing.T) {
	for _, words := range []string{
		"insufficient_quota", "billing_hard_limit_reached", "You exceeded your current quota", "You exceeded your current usage quota",
		"credit_balance_too_low", "Your credit balance is too low", "Credits exhausted", "Your credits have been exhausted", "You are out of credits",
		"Payment required", "The tier has been exhausted", "insufficient balance", "insufficient_balance", "Insufficient account balance",
		"Insufficient credit balance", "Insufficient credit", "Insufficient credits", "You have exhausted all your credits", "Usage balance exhausted",
		"Billing cap reached", "Your spending limit was reached", "Please enable overages", "INSUFFICIENT_G1_CREDITS_BALANCE",
	} {
		for _, status := range []int{400, 401, 403} {
			v := Classify(answer(status, said(words)), noon)
			require.Equal(t, models.ReasonQuotaExhausted, v.Reason, "%d %s", status, words)
			require.Equal(t, models.ScopeConnection, v.Scope)
			require.Empty(t, v.Terminal, "%d %s: it may end by itself", status, words)
		}
		subscriber := answer(429, said(words))
		subscriber.Class = models.ClassOAuth
		require.Equal(t, models.ReasonQuotaExhausted, Classify(subscriber, noon).Reason, words)
		require.Equal(t, models.PhaseCreditsExhausted, Classify(answer(402, said(words)), noon).Terminal, words)
	}
	for _, mere := range []string{"Resource has been exhausted (e.g. check quota).", "max_tokens: the hard limit of 4096 is exceeded"} {
		for _, status := range []int{400, 401, 403, 429} {
			require.NotEqual(t, models.ReasonQuotaExhausted, Classify(answer(status, said(mere)), noon).Reason, "%d %s", status, mere)
		}
	}
}

// Every word for a used-up quota that is known, beside a 429 of an account that pays by use.
func TestEveryWordForAUsedUpQuotaIsKnown(t *testing.T) {
	for _, words := range []string{
		"Daily request limit reached", "Limit of 50 requests per day exceeded", "per day request limit exceeded", "Monthly request limit reached",
		"requests per month limit reached", "The hour quota has been exceeded", "quota exceeded", "You exceeded the quota", "Quota depleted",
		"The quota has been exceeded", "Your quota will reset after 3h", "You have exhausted your capacity on this model", "quota exhausted",
		"insufficient quota", "Plan limit reached", "Individual quota reached", "Resource has been exhausted, reset after 2h", "daily free allocation used up",
		"All of them have exhausted their quota", "usage limit reached", "The usage limit has been reached", "Claude pro usage limit reached",
		"You've reached your usage limit", "You have reached your usage limit", "Weekly limit reached", "You reached your weekly limit",
		"1-week quota exhausted", "Week quota exceeded", "weekly/monthly limit reached", "Session limit reached", "You reached your session usage limit",
		"Today's quota is used up", "organization TPD rate limit", "TPD rate limit", "限额将在 12:00 重置", "已达到使用上限", "已达到调用上限", "额度已用尽", "额度已用完",
	} {
		v := Classify(answer(429, said(words)), noon)
		require.Equal(t, models.ReasonQuotaExhausted, v.Reason, words)
		require.Equal(t, models.ScopeConnection, v.Scope)
		require.Empty(t, v.Terminal)
	}
	bare := Classify(answer(429, `{"error":"usage limit reached"}`), noon)
	require.Equal(t, models.ReasonQuotaExhausted, bare.Reason)
	for _, pace := range []string{"请求过于频繁", "Too many requests", "Rate limit reached for requests per minute", "See the weekly usage limit in your settings"} {
		require.Equal(t, models.ReasonRateLimited, Classify(answer(429, said(pace)), noon).Reason, pace)
	}
}

// What is said of a wait counts before it is capped: half an hour of a week is no moment.
func TestADeclaredWaitOfDaysIsAQuotaHoweverLittleOfItIsBelieved(t *testing.T) {
	for text, want := range map[string]models.Reason{
		"Individual quota reached. Resets in 164h27m24s.": models.ReasonQuotaExhausted,
		"quota exceeded, resets in 60m":                   models.ReasonQuotaExhausted,
		"quota exceeded, resets in 59m59s":                models.ReasonRateLimited,
		"usage limit reached, resets in 3 days":           models.ReasonQuotaExhausted,
		"usage limit reached, resets in 5m":               models.ReasonRateLimited,
		"Daily limit reached, try again in 7h":            models.ReasonQuotaExhausted,
	} {
		v := Classify(answer(429, said(text)), noon)
		require.Equal(t, want, v.Reason, text)
		require.LessOrEqual(t, v.Hint, proseCap)
		require.Positive(t, v.Hint)
	}
}

// A subscription's token may be refreshed whatever its refusal is called.
func TestARefusedTokenIsNeverOutForGoodAtOnce(t *testing.T) {
	for _, words := range []string{
		"", "Invalid authentication credentials", "Expected OAuth 2 access token", "Missing login cookie or other valid authentication credential",
		"Invalid credentials", "Please re-authenticate your Cline account", "Incorrect API key provided", "unauthorized",
	} {
		v := Classify(from("codex", models.ClassOAuth, 401, said(words)), noon)
		require.Equal(t, effect{models.ReasonExpired, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, effectOf(v), words)
	}
}

// Nobody is banned and no quota is used up by a 403 that does not say so.
func TestARefusalThatIsNotExplainedIsACooldownForEveryClass(t *testing.T) {
	for _, class := range []models.Class{models.ClassOAuth, models.ClassAPIKey, models.ClassLocal} {
		for _, words := range []string{
			"", "Forbidden", "Cloud Code API has not been used in project 12 before or it is disabled", "SERVICE_DISABLED", "accessNotConfigured",
			"SENTINEL_BLOCKED", "Turnstile required", "User is not authorized to make this call", "You are not authorized for this route",
			"Request not allowed", "See our billing page",
		} {
			v := Classify(from("openai", class, 403, said(words)), noon)
			require.Equal(t, effect{models.ReasonAuth, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, effectOf(v), "%s %s", class, words)
			require.Equal(t, models.CodeAllInactive, v.Code, "the client's own key is fine")
		}
	}
}

// Words of tokens and capacity stand in many a bad request. They explain nothing that another
// account could mend.
func TestABadRequestThatMentionsTokensOrCapacityIsStillABadRequest(t *testing.T) {
	for _, words := range []string{
		"max_tokens is too large: 99999", "max_tokens must be at least 1, token limit is 8192", "tpm is not a known parameter",
		"tokens per minute must be a number", "capacity must be positive", "The field free tier is unknown", "the old API no longer works",
		"max_tokens: illegal value", "The parameter is illegal", "Extra inputs are not permitted", "unknown field x", "invalid parameter: y",
		"messages must alternate between user and assistant", "tool_calls[0].function.name is blank", "improperly formed request",
		"frequency_penalty 频率惩罚 must be a number",
	} {
		for _, class := range []models.Class{models.ClassOAuth, models.ClassAPIKey, models.ClassLocal} {
			v := Classify(from("openai", class, 400, said(words)), noon)
			require.Equal(t, effect{models.ReasonInvalidRequest, models.BlameClient, models.ScopeNone, "", false, false, 0}, effectOf(v), words)
			require.Zero(t, v.Hint)
		}
	}
}

func TestEveryWordForAModelOutOfReachIsKnown(t *testing.T) {
	for _, words := range []string{
		"invalid model", "unknown model x", "unsupported model", "Model x is not available", "Model x not found", "The model x is not supported",
		"Model x is not accessible", "The model x does not exist", "access denied for model x", "access to the model is denied", "model x: access denied",
		"please select a different model", "unknown provider for model x", "You have no permission for the model x", "Your key does not have access to model x",
	} {
		for _, status := range []int{400, 422} {
			v := Classify(answer(status, said(words)), noon)
			require.Equal(t, effect{models.ReasonNotFound, models.BlameUpstream, models.ScopeModel, "", false, true, 2 * time.Minute}, effectOf(v), "%d %s", status, words)
			require.Equal(t, models.LockModel, v.Lock)
		}
	}
}

func TestEveryWordForTooFastIsKnownBehindABadRequest(t *testing.T) {
	for _, words := range []string{
		"Too many requests", "Rate limit reached", "rate-limit exceeded", "Rate_limit exceeded", "high-frequency requests are non-compliant", "请求过于频繁", "调用频繁", "请求频率过高",
	} {
		require.Equal(t, models.ReasonRateLimited, Classify(answer(400, said(words)), noon).Reason, words)
	}
}

// One status, three kinds of accounts: what is out differs, and by nothing but what it is.
func TestWhatAStatusPutsOutForEachKindOfAccount(t *testing.T) {
	type out struct {
		scope    models.Scope
		lock     models.LockScope
		terminal models.Phase
	}
	var (
		nothing = out{scope: models.ScopeNone}
		account = out{scope: models.ScopeConnection}
		exact   = out{scope: models.ScopeModel}
		model   = out{scope: models.ScopeModel, lock: models.LockModel}
		family  = out{scope: models.ScopeModel, lock: models.LockFamily}
		ended   = func(phase models.Phase) out { return out{models.ScopeConnection, "", phase} }
	)
	for status, want := range map[int]struct{ key, subscription, perModel out }{
		400: {nothing, nothing, nothing},
		401: {ended(models.PhaseExpired), account, ended(models.PhaseExpired)},
		402: {ended(models.PhaseCreditsExhausted), ended(models.PhaseCreditsExhausted), family},
		403: {account, account, family},
		404: {model, model, model},
		408: {exact, exact, exact},
		409: {nothing, nothing, nothing},
		429: {account, account, family},
		500: {exact, exact, exact},
		502: {exact, exact, exact},
		503: {exact, exact, exact},
		504: {exact, exact, exact},
		529: {exact, exact, exact},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			perModel := from("github", models.ClassAPIKey, status, "")
			perModel.PerModelQuota = true
			for want, s := range map[*out]Signal{
				&want.key:          from("openai", models.ClassAPIKey, status, ""),
				&want.subscription: from("codex", models.ClassOAuth, status, ""),
				&want.perModel:     perModel,
			} {
				v := Classify(s, noon)
				require.Equal(t, *want, out{v.Scope, v.Lock, v.Terminal}, "%s", s.Class)
			}
		})
	}
}

// An account without credit is out until somebody pays and says so. Where its provider tops it
// up by itself, the operator's rule makes a wait of it.
func TestAnOperatorMayHaveAnAccountWithoutCreditTriedAgain(t *testing.T) {
	s := answer(402, said("Insufficient credits"))
	require.Equal(t, models.PhaseCreditsExhausted, Classify(s, noon).Terminal)
	s.Rules = NewRules("openai", []OperatorRule{{Status: 402, Match: "insufficient", Scope: models.ScopeConnection, CooldownMs: 21_600_000}}, nil, nil, nil)
	v := Classify(s, noon)
	require.Equal(t, effect{models.ReasonQuotaExhausted, models.BlameUpstream, models.ScopeConnection, "", false, true, 6 * time.Hour}, effectOf(v))
}
