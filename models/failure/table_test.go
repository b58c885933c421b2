package failure

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// One signal per rule, in the table's order: each rule decides about something.
func TestEveryRuleDecidesAboutSomething(t *testing.T) {
	oauth := answer(401, "")
	oauth.Class = models.ClassOAuth
	subscriber := answer(429, said("try again tomorrow"))
	subscriber.Class = models.ClassOAuth
	signalled := answer(403, said("your workspace is closed"))
	signalled.Rules = NewRules("openai", nil, nil, nil, []string{"is closed"})
	rejecting := answer(403, said("Request not allowed"))
	rejecting.Rules = NewRules("claude", nil, nil, nil, nil)
	perModel := answer(402, "")
	perModel.PerModelQuota = true
	asking := answer(503, "")
	asking.Headers = headers("X-Omni-Fallback-Hint", "connection_cooldown")
	examples := []struct {
		rule   string
		signal Signal
	}{
		{"client gone", Signal{Kind: KindClientGone}},
		{"ours", Signal{Kind: KindOurs}},
		{"connect", Signal{Kind: KindConnect}},
		{"cut after the answer began", Signal{Kind: KindReset, Status: 200}},
		{"reset", Signal{Kind: KindReset}},
		{"connect timeout", Signal{Kind: KindConnectTimeout}},
		{"header timeout", Signal{Kind: KindHeaderTimeout}},
		{"first content late", Signal{Kind: KindFirstContentLate}},
		{"idle timeout", Signal{Kind: KindIdleTimeout}},
		{"total timeout", Signal{Kind: KindTotalTimeout}},
		{"empty", Signal{Kind: KindEmpty}},
		{"malformed", Signal{Kind: KindMalformed}},
		{"event too big", Signal{Kind: KindEventTooBig}},
		{"suspended until paid", answer(403, said("account has been suspended, see your invoice"))},
		{"banned by the operator's signals", signalled},
		{"banned", answer(403, said("account has been suspended"))},
		{"requests rejected", rejecting},
		{"not served from here", answer(400, said("User location is not supported"))},
		{"turned away at the door", answer(403, said("error code: 1010"))},
		{"free tier of the model", answer(403, said("free tier of the model has been exhausted"))},
		{"credit", answer(400, said("insufficient balance"))},
		{"quota of a period", answer(402, said("daily quota exceeded"))},
		{"subscription", answer(429, said("usage limit reached"))},
		{"quota", answer(403, said("quota exceeded"))},
		{"credit or quota by other words", answer(400, said("credit balance is too low"))},
		{"credit or quota of a subscriber by other words", subscriber},
		{"another day", answer(402, said("try again tomorrow"))},
		{"model not accessible by code", answer(400, coded("model_not_found", "x"))},
		{"model retired by code", answer(400, coded("model_deprecated", "x"))},
		{"model not accessible", answer(400, said("unknown model"))},
		{"named resource missing", answer(404, said("no such file"))},
		{"model retired", answer(404, said("this model is retired"))},
		{"endpoint moved", answer(410, said("the API has moved"))},
		{"model crowded", answer(429, said("that model is currently overloaded"))},
		{"too large for the model", answer(413, said("request too large for model x"))},
		{"too fast, as a bad request", answer(400, said("too many requests"))},
		{"expired key", answer(401, "")},
		{"refused token", oauth},
		{"no credit for one model", perModel},
		{"no credit", answer(402, "")},
		{"forbidden", answer(403, "")},
		{"model not found", answer(404, "")},
		{"rate limited", answer(429, "")},
		{"subscription by status", answer(432, "")},
		{"cooldown asked for", asking},
		{"upstream timed out", answer(408, "")},
		{"unavailable", answer(503, "")},
		{"server error", answer(500, "")},
		{"overloaded", answer(529, "")},
		{"other server error", answer(501, "")},
		{"not acceptable", answer(406, "")},
		{"proxy refused", answer(407, "")},
		{"request rejected", answer(418, "")},
	}
	require.Len(t, examples, len(table))
	for i, example := range examples {
		require.Equal(t, example.rule, table[i].name)
		f := observe(example.signal, noon)
		for j := range table {
			if table[j].applies(f) {
				require.Equal(t, example.rule, table[j].name)
				break
			}
		}
	}
}

func TestTheTableKeepsItsOwnLaws(t *testing.T) {
	for _, r := range table {
		require.NotEmpty(t, r.kinds, "%s: a rule says which kinds it is about", r.name)
		if r.kinds[0] == KindHTTP {
			require.NotEmpty(t, r.status, "%s: a rule about an answer is guarded by statuses", r.name)
		}
		require.NotEmpty(t, r.then.Reason, r.name)
		require.NotEmpty(t, r.then.Code, r.name)
		switch r.then.Blame {
		case models.BlameClient, models.BlameUs:
			require.Equal(t, models.ScopeNone, r.then.Scope, "%s: what the client or we did touches nothing", r.name)
			require.False(t, r.then.Trips, r.name)
			require.Equal(t, r.then.Blame == models.BlameUs, r.then.Failover, "%s: what fails here may go well elsewhere, what the client did will not", r.name)
		case models.BlameUpstream, models.BlameNetwork:
			require.True(t, r.then.Failover, "%s: somebody else may do better", r.name)
		default:
			require.Fail(t, "nobody is to blame", r.name)
		}
		if r.then.Terminal != "" {
			require.Equal(t, models.ScopeConnection, r.then.Scope, r.name)
		}
		require.False(t, r.then.Trips && r.then.Scope == models.ScopeConnection, "%s: an account's fault is not the provider's", r.name)
	}
}

// Guide section 1, in one place: these statuses and no others count against the breaker, unless
// the answer says that a model has no capacity.
func TestExactlyTheTripStatusesTrip(t *testing.T) {
	for status := 300; status < 600; status++ {
		for _, class := range []models.Class{models.ClassOAuth, models.ClassAPIKey, models.ClassLocal} {
			s := answer(status, "")
			s.Class = class
			require.Equal(t, slices.Contains([]int{408, 500, 502, 503, 504}, status), Classify(s, noon).Trips, status)
			require.Equal(t, trips(status), Classify(s, noon).Trips, status)
		}
	}
}
