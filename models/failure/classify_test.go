package failure

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// answer is an HTTP error answer of an api_key provider.
func answer(status int, body string) Signal {
	return Signal{Kind: KindHTTP, Status: status, Body: []byte(body), Class: models.ClassAPIKey}
}

func said(message string) string { return fmt.Sprintf(`{"error":{"message":%q}}`, message) }

func coded(code, message string) string {
	return fmt.Sprintf(`{"error":{"message":%q,"type":"some_error","code":%q}}`, message, code)
}

// effect is a verdict without its words.
type effect struct {
	reason   models.Reason
	blame    models.Blame
	scope    models.Scope
	terminal models.Phase
	trips    bool
	failover bool
	fixed    time.Duration
}

func effectOf(v Verdict) effect {
	return effect{v.Reason, v.Blame, v.Scope, v.Terminal, v.Trips, v.Failover, v.Fixed}
}

func TestEveryStatusBlamesTheSmallestThing(t *testing.T) {
	var (
		upstream = models.BlameUpstream
		ofModel  = models.ScopeModel
		ofConn   = models.ScopeConnection
		rejected = effect{models.ReasonInvalidRequest, models.BlameClient, models.ScopeNone, "", false, false, 0}
		failed   = effect{models.ReasonServerError, upstream, ofModel, "", true, true, 0}
		crowded  = effect{models.ReasonModelCapacity, upstream, ofModel, "", false, true, 0}
		missing  = effect{models.ReasonNotFound, upstream, ofModel, "", false, true, 2 * time.Minute}
	)
	for _, c := range []struct {
		status int
		want   effect
		shown  int
		code   models.Code
	}{
		{400, rejected, 400, models.CodeUpstreamRejected},
		{401, effect{models.ReasonExpired, upstream, ofConn, models.PhaseExpired, false, true, 0}, 503, models.CodeAllInactive},
		{402, effect{models.ReasonCreditsExhausted, upstream, ofConn, models.PhaseCreditsExhausted, false, true, 0}, 503, models.CodeAllInactive},
		{403, effect{models.ReasonAuth, upstream, ofConn, "", false, true, 0}, 503, models.CodeAllInactive},
		{404, missing, 404, models.CodeModelNotFound},
		{405, rejected, 405, models.CodeUpstreamRejected},
		{406, effect{models.ReasonServerError, upstream, ofModel, "", false, true, 0}, 502, models.CodeUpstreamFailed},
		{407, effect{models.ReasonTransport, models.BlameNetwork, ofModel, "", false, true, 0}, 502, models.CodeUpstreamFailed},
		{408, failed, 504, models.CodeUpstreamFailed},
		{409, rejected, 409, models.CodeUpstreamRejected},
		{410, missing, 404, models.CodeModelNotFound},
		{413, rejected, 413, models.CodeUpstreamRejected},
		{415, rejected, 415, models.CodeUpstreamRejected},
		{422, rejected, 422, models.CodeUpstreamRejected},
		{429, effect{models.ReasonRateLimited, upstream, ofConn, "", false, true, 0}, 429, models.CodeUpstreamRateLimit},
		{432, effect{models.ReasonQuotaExhausted, upstream, ofConn, "", false, true, time.Hour}, 429, models.CodeUpstreamRateLimit},
		{451, rejected, 451, models.CodeUpstreamRejected},
		{500, failed, 502, models.CodeUpstreamFailed},
		{501, crowded, 502, models.CodeUpstreamFailed},
		{502, failed, 502, models.CodeUpstreamFailed},
		{503, failed, 503, models.CodeUpstreamFailed},
		{504, failed, 504, models.CodeUpstreamFailed},
		{520, crowded, 502, models.CodeUpstreamFailed},
		{529, crowded, 503, models.CodeUpstreamFailed},
		{302, effect{models.ReasonUnknown, upstream, ofModel, "", false, true, 0}, 502, models.CodeUpstreamFailed},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			for _, body := range []string{"", "<html>no JSON</html>", `{"error":{"message":"Something happened."}}`} {
				v := Classify(answer(c.status, body), noon)
				require.Equal(t, c.want, effectOf(v), body)
				require.Equal(t, c.shown, v.Status)
				require.Equal(t, c.code, v.Code)
				require.Equal(t, c.status, v.UpstreamStatus)
				require.NotEmpty(t, v.Message)
				require.NotContains(t, v.Message, "html", "the raw body is never shown")
			}
		})
	}
}

func TestEveryKindHasItsOwnCode(t *testing.T) {
	for _, c := range []struct {
		kind   Kind
		reason models.Reason
		blame  models.Blame
		scope  models.Scope
		trips  bool
		code   models.Code
	}{
		{KindConnect, models.ReasonTransport, models.BlameNetwork, models.ScopeModel, true, models.CodeUpstreamFailed},
		{KindReset, models.ReasonTransport, models.BlameNetwork, models.ScopeModel, true, models.CodeUpstreamFailed},
		{KindConnectTimeout, models.ReasonTimeout, models.BlameNetwork, models.ScopeModel, true, models.CodeConnectTimeout},
		{KindHeaderTimeout, models.ReasonTimeout, models.BlameUpstream, models.ScopeModel, true, models.CodeHeaderTimeout},
		{KindFirstContentLate, models.ReasonTimeout, models.BlameUpstream, models.ScopeModel, true, models.CodeFirstContentLate},
		{KindIdleTimeout, models.ReasonTimeout, models.BlameUpstream, models.ScopeModel, true, models.CodeIdleTimeout},
		{KindTotalTimeout, models.ReasonTimeout, models.BlameUpstream, models.ScopeModel, false, models.CodeTotalTimeout},
		{KindEmpty, models.ReasonEmptyResponse, models.BlameUpstream, models.ScopeModel, true, models.CodeEmptyResponse},
		{KindMalformed, models.ReasonMalformed, models.BlameUpstream, models.ScopeModel, true, models.CodeMalformedResponse},
		{KindEventTooBig, models.ReasonMalformed, models.BlameUpstream, models.ScopeNone, false, models.CodeStreamEventTooBig},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			v := Classify(Signal{Kind: c.kind, Class: models.ClassOAuth}, noon)
			require.Equal(t, effect{c.reason, c.blame, c.scope, "", c.trips, true, 0}, effectOf(v))
			require.Equal(t, c.code, v.Code)
			require.Equal(t, c.code.Status(), v.Status)
			require.Zero(t, v.UpstreamStatus)
			require.NotEmpty(t, v.Message)
		})
	}
}

func TestWhatTheClientOrWeDidTouchesNothing(t *testing.T) {
	for kind, want := range map[Kind]struct {
		blame models.Blame
		code  models.Code
	}{
		KindClientGone: {models.BlameClient, models.CodeClientClosed},
		KindOurs:       {models.BlameUs, models.CodeInternal},
	} {
		v := Classify(Signal{Kind: kind, Status: 429, Headers: retryAfter("9"), Body: []byte(coded("insufficient_quota", "x"))}, noon)
		require.Equal(t, want.blame, v.Blame)
		require.Equal(t, want.code, v.Code)
		require.Equal(t, models.ScopeNone, v.Scope)
		require.Equal(t, want.blame == models.BlameUs, v.Failover)
		require.False(t, v.Trips || v.Terminal != "" || v.Hint != 0 || v.Fixed != 0)
	}
}

func TestAConnectionThatBreaksAfterTheAnswerBeganIsACutStream(t *testing.T) {
	for _, s := range []Signal{{Kind: KindReset, Status: 200}, {Kind: KindReset, Committed: true}} {
		v := Classify(s, noon)
		require.Equal(t, models.ReasonCutStream, v.Reason)
		require.Equal(t, models.CodeStreamCut, v.Code)
		require.Equal(t, models.ScopeModel, v.Scope)
		require.True(t, v.Trips)
		require.Equal(t, !s.Committed, v.Failover)
	}
}

func TestNothingIsTriedElsewhereOnceBytesReachedTheClient(t *testing.T) {
	for _, kind := range []Kind{KindHTTP, KindInStream, KindConnect, KindReset, KindIdleTimeout, KindTotalTimeout, KindEmpty, KindMalformed, KindEventTooBig} {
		require.False(t, Classify(Signal{Kind: kind, Status: 503, Committed: true}, noon).Failover, kind)
	}
}

// Design decision 4: an OAuth token may only need a refresh; how long it is out, and when for
// good, is a matter of episodes.
func TestARefusedTokenIsNotAnExpiredKey(t *testing.T) {
	s := answer(401, said("Invalid authentication credentials"))
	s.Class = models.ClassOAuth
	v := Classify(s, noon)
	require.Equal(t, effect{models.ReasonExpired, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, effectOf(v))
	s.PerModelQuota = true
	require.Equal(t, models.ScopeConnection, Classify(s, noon).Scope, "credentials are the account's")
	for _, class := range []models.Class{models.ClassAPIKey, models.ClassLocal, ""} {
		s.Class = class
		require.Equal(t, models.PhaseExpired, Classify(s, noon).Terminal, class)
	}
}

func TestABanNeedsTheStatusAndTheParsedMessage(t *testing.T) {
	for _, message := range []string{
		"Your account has been deactivated.", "This account is suspended.", "account_deactivated",
		"Your organization has been disabled.", "This service has been disabled in this account for violation of terms.",
	} {
		for _, status := range []int{401, 403} {
			require.Equal(t, models.PhaseBanned, Classify(answer(status, said(message)), noon).Terminal, message)
		}
		for _, status := range []int{400, 404, 429, 500, 503} {
			require.Empty(t, Classify(answer(status, said(message)), noon).Terminal, "%d %s", status, message)
		}
	}
	require.Equal(t, models.PhaseBanned, Classify(answer(403, coded("account_deactivated", "Contact support.")), noon).Terminal)

	echo := `{"error":{"message":"Forbidden"},"request":{"content":"my account has been deactivated, what now?"}}`
	for _, body := range []string{echo, "your account has been deactivated", said("Verify your account to continue.")} {
		require.Equal(t, models.ReasonAuth, Classify(answer(403, body), noon).Reason, body)
	}
}

func TestAModelTheAccountLacksIsOutAloneWhateverTheStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{400, coded("model_not_found", "x")},
		{400, said("The model `foo` does not exist or you do not have access to it.")},
		{400, said("Invalid model: x")},
		{400, said("model foo-1 is not supported when using this endpoint")},
		{401, said("model gpt-x is not supported")},
		{403, said("You do not have access to the requested model")},
		{403, said("无权访问模型")},
		{404, said("models/gemini-0 is not found for API version v1beta")},
		{422, coded("model_not_found", "x")},
	} {
		v := Classify(answer(c.status, c.body), noon)
		require.Equal(t, effect{models.ReasonNotFound, models.BlameUpstream, models.ScopeModel, "", false, true, 2 * time.Minute}, effectOf(v), "%d %s", c.status, c.body)
		require.Equal(t, 404, v.Status)
		require.Equal(t, models.CodeModelNotFound, v.Code)
	}
}

func TestAKeyAtFaultIsNotAModelMissing(t *testing.T) {
	v := Classify(answer(401, said("Invalid API key provided for model gpt-4o: model not available")), noon)
	require.Equal(t, models.PhaseExpired, v.Terminal)
	v = Classify(answer(400, said("Incorrect API key provided; the model was not found")), noon)
	require.Equal(t, models.ScopeNone, v.Scope)
}

func TestAnIdTheClientNamedIsTheClientsToExplain(t *testing.T) {
	for _, message := range []string{
		"Previous response with id 'resp_0123abcd' not found.", "No such file: file-abc123", "Item 'rs_012345' was not found",
	} {
		v := Classify(answer(404, said(message)), noon)
		require.Equal(t, models.ScopeNone, v.Scope, message)
		require.False(t, v.Failover)
		require.Equal(t, 404, v.Status)
		require.Equal(t, models.CodeUpstreamRejected, v.Code)
	}
	require.Equal(t, models.ScopeModel, Classify(answer(404, said("The requested item was not found")), noon).Scope)
}

func TestARequestThatIsTooLongTouchesNothing(t *testing.T) {
	v := Classify(answer(400, coded("context_length_exceeded", "This model's maximum context length is 8192 tokens, however you requested 9000 tokens.")), noon)
	require.Equal(t, effect{models.ReasonInvalidRequest, models.BlameClient, models.ScopeNone, "", false, false, 0}, effectOf(v))
	require.Equal(t, 400, v.Status)
	require.Contains(t, v.Message, "maximum context length is 8192 tokens", "the client needs the upstream's words")
}

func TestHintsCountWhereWaitingHelps(t *testing.T) {
	for status, want := range map[int]time.Duration{
		400: 0, 401: 0, 402: 0, 403: 0, 404: 0, 422: 0,
		408: 7 * time.Second, 429: 7 * time.Second, 500: 7 * time.Second, 502: 7 * time.Second, 503: 7 * time.Second, 504: 7 * time.Second, 529: 7 * time.Second,
	} {
		s := answer(status, "")
		s.Headers = retryAfter("7")
		require.Equal(t, want, Classify(s, noon).Hint, status)
	}
}

func TestAnErrorInsideAnAnswerCountsAsTheStatusItMeans(t *testing.T) {
	for _, c := range []struct {
		body   string
		status int
		reason models.Reason
	}{
		{`{"error":{"message":"x","code":429}}`, 429, models.ReasonRateLimited},
		{`{"error":{"message":"x","code":"429"}}`, 429, models.ReasonRateLimited},
		{`{"error":{"message":"x","status":503}}`, 503, models.ReasonServerError},
		{`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"x"}}`, 429, models.ReasonRateLimited},
		{`{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"x"}}`, 429, models.ReasonRateLimited},
		{`{"error":{"code":"insufficient_quota","type":"insufficient_quota","message":"x"}}`, 429, models.ReasonQuotaExhausted},
		{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, 529, models.ReasonModelCapacity},
		{`{"type":"error","error":{"type":"rate_limit_error","message":"x"}}`, 429, models.ReasonRateLimited},
		{`{"error":{"type":"server_error","code":null,"message":"x"}}`, 500, models.ReasonServerError},
		{`{"error":{"type":"authentication_error","message":"x"}}`, 401, models.ReasonExpired},
		{`{"error":{"type":"invalid_request_error","code":"model_not_found","message":"x"}}`, 404, models.ReasonNotFound},
		{`{"error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"x"}}`, 400, models.ReasonInvalidRequest},
		{`{"type":"response.failed","response":{"error":{"code":"server_error","message":"x"}}}`, 500, models.ReasonServerError},
		{`{"message":"x","code":"rate_limit_exceeded"}`, 429, models.ReasonRateLimited},
		{`{"error":{"message":"x","code":200}}`, 502, models.ReasonServerError},
		{`{"error":{"message":"x","code":429.5}}`, 502, models.ReasonServerError},
		{`{"error":"it broke"}`, 502, models.ReasonServerError},
		{`{"error":"Rate limit reached"}`, 429, models.ReasonRateLimited},
		{`{"message":"quota exceeded"}`, 429, models.ReasonQuotaExhausted},
		{`{"message":"The model is currently overloaded"}`, 529, models.ReasonModelCapacity},
		{`{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}`, 429, models.ReasonQuotaExhausted},
		{`garbage`, 502, models.ReasonServerError},
		{``, 502, models.ReasonServerError},
	} {
		t.Run(c.body, func(t *testing.T) {
			v := Classify(Signal{Kind: KindInStream, Status: 200, Body: []byte(c.body), Class: models.ClassAPIKey}, noon)
			require.Equal(t, c.status, v.UpstreamStatus)
			require.Equal(t, c.reason, v.Reason)
		})
	}
	v := Classify(Signal{Kind: KindInStream, Status: 429, Body: []byte(`{"error":{"code":503}}`)}, noon)
	require.Equal(t, 429, v.UpstreamStatus, "a declared status is believed")
}

func TestAnAccountThatHasToPayIsNotBanned(t *testing.T) {
	for _, message := range []string{
		"Your account has been suspended due to an unpaid invoice.", "Your account is suspended, please check your plan and billing details",
		"Spending limit reached: the account has been suspended",
	} {
		for _, status := range []int{401, 403} {
			v := Classify(answer(status, said(message)), noon)
			require.Equal(t, models.ReasonQuotaExhausted, v.Reason, message)
			require.Empty(t, v.Terminal)
		}
	}
}

// Guide section 2: three refusals in a row are a ban, which the machine counts.
func TestARejectedRequestIsAnthropicsAlone(t *testing.T) {
	s := answer(403, said("Request not allowed"))
	for kind, want := range map[string]models.Reason{"anthropic": models.ReasonRequestRejected, "claude": models.ReasonRequestRejected, "openai": models.ReasonAuth} {
		s.Rules = NewRules(kind, nil, nil, nil, nil)
		v := Classify(s, noon)
		require.Equal(t, want, v.Reason, kind)
		require.Equal(t, models.ScopeConnection, v.Scope)
		require.Empty(t, v.Terminal)
	}
	s.Rules = NewRules("anthropic", nil, nil, nil, nil)
	s.PerModelQuota = true
	require.Equal(t, models.ScopeConnection, Classify(s, noon).Scope)
	s.Status = 400
	require.Equal(t, models.ReasonInvalidRequest, Classify(s, noon).Reason)
}

func TestTheOperatorsSignalsOfABanNeedTheStatusToo(t *testing.T) {
	s := answer(403, said("We have CLOSED your workspace."))
	s.Rules = NewRules("openai", nil, nil, nil, []string{"we have closed your workspace", " "})
	require.Equal(t, models.PhaseBanned, Classify(s, noon).Terminal)
	s.Status = 401
	require.Equal(t, models.PhaseBanned, Classify(s, noon).Terminal)
	for _, status := range []int{400, 402, 429, 500} {
		s.Status = status
		require.NotEqual(t, models.PhaseBanned, Classify(s, noon).Terminal, status)
	}
	s = answer(403, said(`Blocked: "we have closed your workspace"`))
	s.Rules = NewRules("openai", nil, nil, nil, []string{"we have closed your workspace"})
	require.Empty(t, Classify(s, noon).Terminal, "a quotation is not the provider's word")
}

func TestWhoCallsFromTheWrongPlaceMayBeServedByAnother(t *testing.T) {
	for _, s := range []Signal{
		answer(400, `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`),
		answer(403, coded("unsupported_country_region_territory", "Country, region, or territory not supported")),
		answer(403, said("This service is not available in your region")),
		answer(403, `{"title":"Error 1010: Access denied","status":403,"error_name":"x","detail":"The site owner has blocked access: error code: 1010"}`),
	} {
		v := Classify(s, noon)
		require.Equal(t, effect{models.ReasonAuth, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, effectOf(v), string(s.Body))
		require.Equal(t, models.CodeAllInactive, v.Code)
	}
}

func TestAModelThatWillNotComeBackIsOutForADay(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{404, said("The model text-davinci-003 has been deprecated, learn more here")},
		{410, said("This model is no longer available.")},
		{404, said("The model reached its end-of-life")},
		{400, coded("model_decommissioned", "The model `x` has been decommissioned")},
		{404, said("This endpoint has moved to /v2")},
		{410, said("the old API no longer works")},
	} {
		v := Classify(answer(c.status, c.body), noon)
		require.Equal(t, effect{models.ReasonNotFound, models.BlameUpstream, models.ScopeModel, "", false, true, 24 * time.Hour}, effectOf(v), "%d %s", c.status, c.body)
		require.Equal(t, models.LockModel, v.Lock)
	}
	for _, status := range []int{400, 403, 429, 500, 503} { // the same words elsewhere are chatter
		for _, message := range []string{"the old API no longer works", "This endpoint has moved to /v2"} {
			require.NotEqual(t, 24*time.Hour, Classify(answer(status, said(message)), noon).Fixed, "%d %s", status, message)
		}
	}
}

// Guide section 1: a model without capacity says nothing about its provider.
func TestACrowdedModelIsOutAlone(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
	}{
		{429, said("The engine is currently overloaded, please try again later")},
		{429, coded("engine_overloaded_error", "x")},
		{503, `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`},
		{503, said("This model is currently experiencing high demand.")},
		{500, coded("model_overloaded", "x")},
		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
		{400, said("Function id 'x' version 'y': DEGRADED function cannot be invoked")},
	} {
		v := Classify(answer(c.status, c.body), noon)
		require.Equal(t, effect{models.ReasonModelCapacity, models.BlameUpstream, models.ScopeModel, "", false, true, 0}, effectOf(v), "%d %s", c.status, c.body)
		require.Empty(t, v.Lock, "the exact model")
		require.Equal(t, 503, v.Status)
	}
	require.True(t, Classify(answer(503, said("The server is overloaded")), noon).Trips, "a server is the provider's")
}

func TestARequestTooLargeForOneModelTouchesNothingAndGoesOn(t *testing.T) {
	v := Classify(answer(413, coded("rate_limit_exceeded", "Request too large for model llama on tokens per minute (TPM): Limit 6000, Requested 9000")), noon)
	require.Equal(t, effect{models.ReasonModelCapacity, models.BlameUpstream, models.ScopeNone, "", false, true, 0}, effectOf(v))
	require.Equal(t, 413, v.Status)
	require.True(t, v.TooLong)

	named := answer(413, said("Llama-3: 9000 tokens are too many"))
	require.False(t, Classify(named, noon).Failover)
	named.Model = "llama-3"
	require.True(t, Classify(named, noon).Failover)
}

func TestALockIsAsWideAsWhatExplainsTheFailure(t *testing.T) {
	for _, c := range []struct {
		s    Signal
		want models.LockScope
	}{
		{answer(404, ""), models.LockModel},
		{answer(403, said("无权访问模型")), models.LockModel},
		{answer(500, ""), ""},
		{Signal{Kind: KindReset}, ""},
		{answer(429, said("The free tier of the model has been exhausted.")), models.LockFamily},
	} {
		v := Classify(c.s, noon)
		require.Equal(t, models.ScopeModel, v.Scope)
		require.Equal(t, c.want, v.Lock)
	}
}

func TestAGatewayInBetweenMayAskForACooldown(t *testing.T) {
	s := answer(503, "")
	s.Headers = headers("x-omni-fallback-hint", "connection_cooldown")
	v := Classify(s, noon)
	require.Equal(t, effect{models.ReasonServerError, models.BlameUpstream, models.ScopeConnection, "", false, true, 5 * time.Second}, effectOf(v))
	s.Status = 502
	require.Equal(t, effectOf(Classify(answer(502, ""), noon)), effectOf(Classify(s, noon)))
}
