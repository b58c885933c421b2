package failure

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// wording is one meaning an upstream error can have, by structured code or type first, else
// by anchored phrases in what its parsed message says. Everything is lower case.
type wording struct {
	codes   map[string]bool
	gate    []string // the phrases need one of these words; empty = none
	phrases []phrase
}

// phrase is a pattern and words of which a match holds one: failures come in storms, most
// messages hold none of the words, and patterns are slow.
type phrase struct {
	pattern *regexp.Regexp
	words   []string
}

const (
	// reach is how far a phrase goes to either side of its word, in bytes.
	reach = 200
	// mostPlaces bounds how often a word is looked at.
	mostPlaces = 8
)

func (w *wording) in(e *upstreamError) bool {
	if w.codes[e.code] || w.codes[e.kind] {
		return true
	}
	if e.said.text == "" || len(w.gate) > 0 && !e.said.containsAny(w.gate) {
		return false
	}
	for i := range w.phrases {
		if w.phrases[i].in(&e.said) {
			return true
		}
	}
	return false
}

// matches reports that a text holds one of the phrases.
func (w *wording) matches(text string) bool {
	return slices.ContainsFunc(w.phrases, func(p phrase) bool { return p.pattern.MatchString(text) })
}

func (p *phrase) in(said *grams) bool {
	text := said.text
	for _, word := range p.words {
		if !said.contains(word) {
			continue
		}
		for from, places := 0, 0; places < mostPlaces; places++ {
			at := strings.Index(text[from:], word)
			if at < 0 {
				break
			}
			from += at + len(word)
			if p.pattern.MatchString(around(text, from-len(word), from)) {
				return true
			}
		}
	}
	return false
}

// around is a part of text with what stands around it, in whole words.
func around(text string, from, to int) string {
	start, end := max(0, from-reach), min(len(text), to+reach)
	if start > 0 {
		if space := strings.IndexByte(text[start:from], ' '); space >= 0 {
			start += space
		}
	}
	if end < len(text) {
		if space := strings.LastIndexByte(text[to:end], ' '); space >= 0 {
			end = to + space
		}
	}
	return text[start:end]
}

func containsAny(text string, words []string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

func words(codes []string, phrases ...phrase) wording {
	w := wording{codes: make(map[string]bool, len(codes)), phrases: phrases}
	for _, code := range codes {
		w.codes[code] = true
	}
	return w
}

// given names the words without one of which no phrase can match.
func (w wording) given(gate ...string) wording {
	w.gate = gate
	return w
}

// like is a phrase; every match holds one of the words.
func like(pattern string, words ...string) phrase { return phrase{regexp.MustCompile(pattern), words} }

// Money and accounts.

// bans say that the account is gone for good. "Verify your account to continue" is not one.
var bans = words(
	[]string{"account_deactivated", "account_suspended", "account_disabled", "organization_disabled"},
	like(`\baccount_deactivated\b`, "account_deactivated"),
	like(`\baccount has been (deactivated|disabled|suspended|terminated|banned)\b`, "account has been"),
	like(`\baccount is (deactivated|suspended|terminated|banned)\b`, "account is"),
	like(`\borganization has been (disabled|suspended)\b`, "organization has been"),
	like(`\bservice has been disabled in this account\b`, "service has been disabled"),
).given("account", "organization")

// unpaid says that an account is suspended until somebody pays, which is no ban.
var unpaid = words(
	nil,
	like(`\bsuspended\b.{0,120}\b(spending limit|billing|invoice|payment|balance|recharge)\b`, "suspended"),
	like(`\b(spending limit|billing|invoice|payment|balance)\b.{0,120}\bsuspended\b`, "suspended"),
).given("suspended")

// creditWords say that money is missing, or a limit on it was reached; no short wait mends that.
var creditWords = words(
	[]string{
		"insufficient_quota", "billing_hard_limit_reached", "insufficient_balance", "billing_not_active",
		"insufficient_g1_credits_balance", "exceeded_current_quota_error",
	},
	like(`\b(insufficient_quota|billing_hard_limit_reached|insufficient_balance|insufficient_g1_credits_balance)\b`, "_"),
	like(`\b(credits? (has been |have been |is |are )?exhausted|out of credits|exhausted (all )?your credits|enable overages)\b`, "credit", "overages"),
	like(`\binsufficient (account |credit )?(balance|credits?|quota)\b`, "insufficient"),
	like(`\busage balance (has been )?exhausted\b`, "usage balance"),
	like(`\b(billing (hard |spending )?|spending |usage hard )(cap|limit)\b.{0,40}\b(reached|exceeded)\b`, "billing", "spending", "usage hard"),
	like(`额度不足`, "额度不足"),
)

// lowWords say the same where an account's class or the status makes sure that it is meant.
var lowWords = words(
	[]string{"credit_balance_too_low", "payment_required"},
	like(`\bcredit_balance_too_low\b`, "credit_balance_too_low"),
	like(`\bcredit balance is too low\b`, "credit balance"),
	like(`\bpayment required\b`, "payment required"),
)

// anotherDay says that today is over for an account.
var anotherDay = words(nil, like(`\btry again tomorrow\b`, "tomorrow"))

// walletWords say that the balance of a wallet shared by all models is gone.
var walletWords = words(nil, like(`\busage balance (has been )?exhausted\b`, "usage balance"))

// Quotas.

// Words about the period of a quota.
var (
	periods    = []string{"hour", "daily", "today", "week", "month", "session"}
	dailyNames = []string{"daily", "today", "per day", "per-day", "tomorrow", "tpd", "rpd", "perday"}
)

const (
	periodName  = `(hour|hourly|\d+[- ]hours?|daily|today's|weekly|1-week|week|monthly|weekly/monthly|session)`
	reachedWord = `(exceeded|reached|exhausted|used up|hit)`
	limitNoun   = `(quota|limit|allowance|allocation)`
)

// periodWords say that a quota of a period is used up; it comes back by itself.
var periodWords = words(
	nil,
	like(`\b`+periodName+` (\w+ ){0,2}`+limitNoun+`\b.{0,80}\b`+reachedWord, periods...),
	like(`\b`+reachedWord+` (your |the |its )?(\w+ )?`+periodName+` (\w+ ){0,2}`+limitNoun+`\b`, periods...),
	like(`\blimit\b.{0,60}\b(per[- ]day|tpd|rpd)\b`, "per day", "per-day", "tpd", "rpd"),
	like(`\bper (day|month)\b.{0,20}\b`+limitNoun+`\b.{0,60}\b`+reachedWord, "per day", "per month"),
	like(`\btpd rate limit\b`, "tpd"),
	like(`\bdaily free allocation\b`, "free allocation"),
	like(`额度已用[尽完]`, "额度"), like(`限额将在.*重置`, "限额"), like(`[使调]用上限`, "上限"),
).given(append(periods, "per day", "per-day", "tpd", "rpd", "额度", "限额", "上限")...)

// subscriptionWords say that what a subscription includes is used up.
var subscriptionWords = words(
	[]string{"usage_limit_reached", "plan_limit_reached"},
	like(`\busage limit (has been )?(reached|exceeded)\b`, "usage limit"),
	like(`\b(reached|exceeded|hit) (your|the) (\w+ ){0,2}usage limit\b`, "usage limit"),
	like(`\b(plan_limit_reached|plan (usage )?limit (has been )?(reached|exceeded))\b`, "plan"),
).given("usage limit", "plan")

// quotaWords say that a quota is used up, but not which or until when. Gemini's "Resource has
// been exhausted (e.g. check quota)." is a rate limit and must not match.
var quotaWords = words(
	[]string{"quota_exceeded", "organization_quota_exceeded", "account_quota_exceeded"},
	like(`\b(organization_quota_exceeded|account_quota_exceeded)\b`, "_"),
	like(`\bexceeded your current (usage )?quota\b`, "exceeded your current"),
	like(`\bquota (has been )?(exceeded|exhausted|depleted)\b`, "quota"),
	like(`\bexceeded (your|the) (\w+ )?quota\b`, "exceeded"),
	like(`\bindividual quota reached\b`, "individual quota"),
	like(`\bhave exhausted (their|your) (quota|capacity)\b`, "have exhausted"),
	like(`\bquota will reset\b`, "quota will reset"),
	like(`\bresource has been exhausted\b.{0,80}\breset after\b`, "resource has been exhausted"),
	like(`\btier has been exhausted\b`, "tier has been exhausted"),
).given("quota", "exhausted")

// otherWords say so, or that money is missing, in ways that a plain 429 of an account that pays
// by use adds to a mere rate limit.
var otherWords = joined(lowWords, anotherDay)

// joined is what any of several wordings says.
func joined(parts ...wording) wording {
	w := wording{codes: map[string]bool{}}
	for _, part := range parts {
		maps.Copy(w.codes, part.codes)
		w.phrases = append(w.phrases, part.phrases...)
	}
	return w
}

// freeTierWords say that what a model costs nothing for is used up.
var freeTierWords = words([]string{"allocationquota.freetieronly"}, like(`\bfree tier of the model has been exhausted\b`, "free tier"))

// Limits.

// tooMany says that requests come too fast, before it says anything else.
var tooMany = words(
	[]string{"rate_limit_exceeded", "rate_limit_error", "too_many_requests", "rate_limited"},
	like(`^(\w+ )?rate[ _-]?limit (reached|exceeded)\b`, "limit"),
	like(`^(error: )?too many requests\b`, "too many requests"),
	like(`\bhigh-frequency\b.{0,60}\bnon-compliant\b`, "high-frequency"),
	like(`频繁|请求频率|频率(过高|过快|超)`, "频"),
)

// crowdedWords say that a model has no capacity now, which says nothing about the provider.
var crowdedWords = words(
	[]string{"model_overloaded", "engine_overloaded", "engine_overloaded_error", "overloaded_error", "model_at_capacity"},
	like(`\b(model|engine)\b.{0,80}\b(is|are) (currently |temporarily )?overloaded\b`, "overloaded"),
	like(`\bmodel\b.{0,80}\b(is|are) (currently )?at capacity\b`, "at capacity"),
	like(`\b(model|engine)\b.{0,80}\bhigh demand\b`, "high demand"),
	like(`\bno capacity (is )?available for (the |this )?model\b`, "no capacity"),
	like(`\bdegraded function cannot be invoked\b`, "degraded"),
).given("model", "engine", "function")

// Models.

// modelCodes say that the model, not the request or the key, is what the account lacks.
var modelCodes = words([]string{"model_not_found", "deployment_not_found", "deploymentnotfound", "model_not_available", "unsupported_model"})

// modelPhrases say the same in prose.
var modelPhrases = words(
	[]string{"not_found_error"},
	like(`\bmodel\b.{0,120}\b(does not exist|not found|not available|is not supported|not accessible)\b`, "model"),
	like(`\b(do not|don't|does not|doesn't) have (access|permission) (to|for)\b.{0,40}\bmodel\b`, "model"),
	like(`\bno (access|permission) (to|for)\b.{0,40}\bmodel\b`, "model"),
	like(`\b(invalid|unknown|unsupported) model\b`, "model"),
	like(`\bunknown provider for model\b`, "unknown provider"),
	like(`\bplease select a different model\b`, "different model"),
	like(`\baccess (is |was )?denied\b.{0,40}\bmodel\b`, "denied"),
	like(`\b(access to (the |this )?model\b.{0,40}|model\b.{0,60}\baccess (is |was )?)denied\b`, "denied"),
	like(`无权访问模型`, "模型"),
).given("model", "模型")

// badCredential says that the key is at fault, whatever else the message mentions.
var badCredential = words(
	[]string{"invalid_api_key", "authentication_error"},
	like(`\b(invalid|incorrect|expired|missing|revoked)\b.{0,20}\b(api[ _-]?key|token|credentials?|bearer)\b`, "key", "token", "credential", "bearer"),
	like(`\b(api[ _-]?key|token|credentials?)\b.{0,30}\b(invalid|incorrect|expired|missing|revoked)\b`, "key", "token", "credential"),
	like(`\bauthentication (failed|error|required)\b`, "authentication"),
	like(`\b(unauthorized|not authenticated)\b`, "unauthorized", "not authenticated"),
)

// retiredCodes and retiredPhrases say that a model will not come back.
var (
	retiredCodes   = words([]string{"model_deprecated", "model_decommissioned", "model_retired"})
	retiredPhrases = words(
		nil,
		like(`\bmodel\b.{0,120}\b(has been|is|was) (deprecated|retired|decommissioned|discontinued|sunset|shut down)\b`, "model"),
		like(`\bmodel\b.{0,120}\b(no longer (available|supported)|end[- ]of[- ]life)\b`, "model"),
	).given("model")
)

// movedWords say that what is called is not there any more.
var movedWords = words(
	nil,
	like(`\b(endpoint|api|url)\b.{0,80}\b(has (been )?moved|no longer works|has been (removed|retired|shut down))\b`, "moved", "no longer works", "removed", "retired", "shut down"),
)

// Requests.

// missingResource says that a 404 is about something the client named by its id, not about the
// model.
var missingResource = words(
	[]string{"previous_response_not_found"},
	like(`\b(response|file|message|item|upload|vector store|conversation|thread|assistant|batch)\b.{0,40}['"\x60]{2}.{0,30}\bnot found\b`, "not found"),
	like(`\b(resp|file|msg|rs|item|upload|vs|conv|thread|asst|batch)[-_][\w-]{4,}.{0,30}\bnot found\b`, "not found"),
	like(`\bno such (file|upload|vector store|response|item)\b`, "no such"),
).given("not found", "no such")

// tooLong says that the request does not fit into the model's context.
var tooLong = words(
	[]string{"context_length_exceeded", "request_too_large", "string_above_max_length"},
	like(`\bmaximum context length\b`, "context length"),
	like(`\bcontext (window|length|limit)\b.{0,40}\bexceed`, "context"),
	like(`\bexceed(s|ed|ing)?\b.{0,60}\bcontext (window|length|limit)\b`, "context"),
	like(`\b(prompt|input) is too long\b`, "too long"),
).given("context", "too long")

// tooLargeForModel says that a request is too large for one model, and names it.
var tooLargeForModel = words(nil, like(`\b(too large|exceeds)\b.{0,80}\bmodel\b`, "model"))

// Where the gateway is, and how it looks.

// misplaced says that the provider does not serve the place that requests come from.
var misplaced = words(
	[]string{"unsupported_country_region_territory"},
	like(`\blocation is not supported\b`, "location is not supported"),
	like(`\bcountry, region, or territory not supported\b`, "territory"),
	like(`\bnot available in your (country|region|location)\b`, "not available in your"),
)

// turnedAway says that what stands in front of the provider does not let the gateway through.
var turnedAway = words(
	[]string{"browser_signature_banned", "fingerprint_rejection"},
	like(`\berror (code: ?)?1010\b`, "1010"),
	like(`\bbrowser_signature_banned\b`, "browser_signature_banned"),
)

// notAllowed is Anthropic's refusal of whoever is asking.
var notAllowed = words(nil, like(`\brequest not allowed\b`, "request not allowed"))
