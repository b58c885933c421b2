package failure

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"omniroute/models"
)

// builtinRule is what is known of the answers of some kinds of providers. Empty conditions hold.
type builtinRule struct {
	id       string
	kinds    []string
	statuses []int
	all      []string // the error says every one of these, lower case
	any      []string // and one of these
	headers  []condition
	reason   models.Reason
	scope    models.Scope
	cooldown time.Duration // 0 = the upstream's hint, else backoff
	// declared says that the message has the cooldown, in words such as "resets in 3 days".
	declared bool
}

// condition is about a header; one of a rule's has to hold. Names are spelled as net/http does.
type condition struct {
	name  string
	holds func(value string) bool
}

var opencode = []string{"opencode-zen", "opencode-go", "opencode-cli"}

// builtinRules in the order in which they are asked (guide section 7).
var builtinRules = []builtinRule{
	{
		id: "opencode-endpoint-unavailable", kinds: opencode, statuses: []int{400, 429},
		all:    []string{"endpoint is unavailable"},
		reason: models.ReasonModelCapacity, scope: models.ScopeModel, cooldown: 5 * time.Minute,
	},
	{
		id: "opencode-monthly-quota", kinds: opencode, statuses: []int{429},
		all:    []string{"monthly usage limit reached", "resets in "},
		reason: models.ReasonQuotaExhausted, scope: models.ScopeConnection, declared: true,
	},
	{
		id: "opencode-quota-headers", kinds: opencode, statuses: []int{429},
		headers: []condition{{"X-Ratelimit-Remaining-Requests", isZero}, {"X-Ratelimit-Remaining-Tokens", isZero}},
		reason:  models.ReasonQuotaExhausted, scope: models.ScopeConnection,
	},
	{
		id: "opencode-quota", kinds: opencode, statuses: []int{429},
		any:    []string{"organization_quota_exceeded", "account_quota_exceeded", "plan_limit_reached"},
		reason: models.ReasonQuotaExhausted, scope: models.ScopeConnection,
	},
	{
		id: "opencode-model-unavailable", kinds: opencode, statuses: []int{400},
		all:    []string{"upstream request failed: model is unavailable"},
		reason: models.ReasonModelCapacity, scope: models.ScopeModel, cooldown: time.Hour,
	},
	{
		id: "minimax-model-quota", kinds: []string{"minimax", "minimax-passthrough"}, statuses: []int{429},
		headers: []condition{{"X-Model-Quota-Remaining", hasZeroPair}},
		reason:  models.ReasonQuotaExhausted, scope: models.ScopeModel,
	},
	{
		id: "cloudflare-daily-neurons", kinds: []string{"cloudflare-ai"}, statuses: []int{429},
		all:    []string{"daily free allocation"},
		reason: models.ReasonQuotaExhausted, scope: models.ScopeConnection,
	},
	{
		id: "openrouter-credit", kinds: []string{"openrouter"}, statuses: []int{402},
		reason: models.ReasonQuotaExhausted, scope: models.ScopeConnection, cooldown: 2 * time.Minute,
	},
	{
		id: "agentrouter-model-access-denied", kinds: []string{"agentrouter"}, statuses: []int{403},
		all:    []string{"无权访问模型"},
		reason: models.ReasonAuth, scope: models.ScopeModel, cooldown: 6 * time.Hour,
	},
	{
		id: "agentrouter-user-quota-exhausted", kinds: []string{"agentrouter"}, statuses: []int{400, 403, 429},
		all:    []string{"额度不足"},
		reason: models.ReasonQuotaExhausted, scope: models.ScopeConnection,
	},
	{
		// Google calls a bad key a bad request, which no client can mend.
		id: "gemini-invalid-key", kinds: []string{"gemini"}, statuses: []int{400},
		any:    []string{"api key not valid", "api_key_invalid"},
		reason: models.ReasonAuth, scope: models.ScopeConnection,
	},
}

func (r *builtinRule) applies(f *facts) bool {
	if !slices.Contains(r.statuses, f.status) {
		return false
	}
	for _, part := range r.all {
		if !f.says(part) {
			return false
		}
	}
	return (len(r.any) == 0 || slices.ContainsFunc(r.any, f.says)) &&
		(len(r.headers) == 0 || slices.ContainsFunc(r.headers, func(c condition) bool { return c.in(f.Headers) }))
}

func (r *builtinRule) ruling(f *facts) *ruling {
	out := &ruling{id: r.id, reason: r.reason, scope: r.scope, lock: ruleLock(r.reason), cooldown: r.cooldown}
	if r.declared {
		out.cooldown = min(proseHint(f.said.text, f.now), declaredCap)
	}
	return out
}

func (c condition) in(h http.Header) bool { return slices.ContainsFunc(h[c.name], c.holds) }

// isZero reports that nothing is left of a limit.
func isZero(value string) bool { return strings.TrimSpace(value) == "0" }

// hasZeroPair reports that nothing is left of one limit in a list such as "a=3, b=0".
func hasZeroPair(value string) bool {
	for pair := range strings.SplitSeq(value, ",") {
		if _, left, found := strings.Cut(pair, "="); found && isZero(left) {
			return true
		}
	}
	return false
}
