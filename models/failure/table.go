package failure

import (
	"net/http"
	"time"

	"omniroute/models"
)

const (
	notFoundFor = 2 * time.Minute // guide section 3: a model that is not there
	goneFor     = 24 * time.Hour  // one that will not come back
	creditFor   = 2 * time.Minute // one model behind a 402
	askedFor    = 5 * time.Second // a cooldown that a gateway in between asks for
)

// Sentences for the client where the upstream's own words are about our account.
const (
	sayCredentials = "The upstream refused the gateway's credentials for this account."
	sayCredits     = "The upstream account has no credit left."
	sayQuota       = "The upstream account's quota is used up."
	sayRate        = "The upstream limits the rate of this account."
	sayBanned      = "The upstream has disabled this account."
	sayRejected    = "The upstream rejects the requests of this account."
	sayMisplaced   = "The upstream does not serve the place that the gateway calls from."
	sayDressed     = "The upstream's answer was recognised as a failure."
)

// A failure of our credentials is never shown as a 401 or 403: the client's own key is
// fine. When nothing else can serve, the client sees that no account is usable.
const inactive = models.CodeAllInactive

// line is one line of the general table. Empty guards match everything; all guards must match.
type line struct {
	name    string
	kinds   []Kind
	status  []span
	class   []models.Class
	text    *wording // the parsed error must say so: by code, type or phrase
	unless  *wording // and must not say so
	when    func(f *facts) bool
	then    Verdict                    // Code and Status as the client sees them
	adjust  func(f *facts, v *Verdict) // what depends on the failure at hand
	hints   bool                       // the upstream's own wait counts
	account bool                       // it is about the account even where quotas are per model
	say     string                     // fixed sentence for the client; empty = the upstream's message
	passOn  bool                       // the client sees the upstream's own status and names
}

// span is an inclusive range of statuses.
type span struct{ from, to int }

func (l *line) applies(f *facts) bool {
	return oneOf(l.kinds, f.Kind) && l.statusMatches(f.status) && oneOf(l.class, f.Class) &&
		(l.when == nil || l.when(f)) &&
		(l.text == nil || l.text.in(&f.upstreamError)) &&
		(l.unless == nil || !l.unless.in(&f.upstreamError))
}

func (l *line) statusMatches(status int) bool {
	for _, s := range l.status {
		if s.from <= status && status <= s.to {
			return true
		}
	}
	return len(l.status) == 0
}

func (l *line) verdict(f *facts) Verdict {
	v := l.then
	if v.Status == 0 {
		v.Status = v.Code.Status()
	}
	if l.passOn {
		v.Status = f.status
		v.Names = f.names.shown(f.Credential)
		v.TooLong = f.status == http.StatusRequestEntityTooLarge || tooLong.in(&f.upstreamError)
	}
	if l.hints {
		v.Hint = f.hint
	}
	if l.adjust != nil {
		l.adjust(f, &v)
	}
	if v.Scope == models.ScopeConnection && !l.account && f.perModel() {
		v.Scope, v.Lock = models.ScopeModel, models.LockFamily
	}
	if v.Message == "" {
		v.Message = f.say(l.say)
	}
	return v
}

var answered = []Kind{KindHTTP, KindInStream, KindDressed}

// table is the one ordered list from a failed attempt to its verdict, for what no rule of a
// provider decides: the first line that applies wins. Every line about an answer is guarded by
// statuses, so that words in an unrelated answer decide nothing (design decisions 5 and 6).
var table = []line{
	// Nobody's fault upstream.
	{
		name: "client gone", kinds: []Kind{KindClientGone},
		then: Verdict{Reason: models.ReasonClientGone, Blame: models.BlameClient, Scope: models.ScopeNone, Code: models.CodeClientClosed},
		say:  "The client closed the request.",
	},
	{
		name: "ours", kinds: []Kind{KindOurs},
		then: Verdict{Reason: models.ReasonUnknown, Blame: models.BlameUs, Scope: models.ScopeNone, Failover: true, Code: models.CodeInternal},
		say:  "The gateway could not make a request of what its catalog says about this connection.",
	},

	// The answer did not come, or did not come whole: the exact target is out for a backoff,
	// and the provider's breaker is charged (guide sections 1 and 3).
	{
		name: "connect", kinds: []Kind{KindConnect},
		then: exactTarget(models.ReasonTransport, models.BlameNetwork, true, models.CodeUpstreamFailed),
		say:  "The upstream could not be reached.",
	},
	{
		name: "cut after the answer began", kinds: []Kind{KindReset}, when: answerBegan,
		then: exactTarget(models.ReasonCutStream, models.BlameUpstream, true, models.CodeStreamCut),
		say:  "The upstream closed the connection before the answer was complete.",
	},
	{
		name: "reset", kinds: []Kind{KindReset},
		then: exactTarget(models.ReasonTransport, models.BlameNetwork, true, models.CodeUpstreamFailed),
		say:  "The upstream closed the connection without an answer.",
	},
	{
		name: "connect timeout", kinds: []Kind{KindConnectTimeout},
		then: exactTarget(models.ReasonTimeout, models.BlameNetwork, true, models.CodeConnectTimeout),
		say:  "The upstream could not be reached in time.",
	},
	{
		name: "header timeout", kinds: []Kind{KindHeaderTimeout},
		then: exactTarget(models.ReasonTimeout, models.BlameUpstream, true, models.CodeHeaderTimeout),
		say:  "The upstream did not begin to answer in time.",
	},
	{
		name: "first content late", kinds: []Kind{KindFirstContentLate},
		then: exactTarget(models.ReasonTimeout, models.BlameUpstream, true, models.CodeFirstContentLate),
		say:  "The upstream sent no content in time.",
	},
	{
		name: "idle timeout", kinds: []Kind{KindIdleTimeout},
		then: exactTarget(models.ReasonTimeout, models.BlameUpstream, true, models.CodeIdleTimeout),
		say:  "The upstream went silent in the middle of the answer.",
	},
	// An answer that outlives our own limit was still flowing: the provider is not down.
	{
		name: "total timeout", kinds: []Kind{KindTotalTimeout},
		then: exactTarget(models.ReasonTimeout, models.BlameUpstream, false, models.CodeTotalTimeout),
		say:  "The upstream's answer took longer than the limit for one attempt.",
	},
	{
		name: "empty", kinds: []Kind{KindEmpty},
		then: exactTarget(models.ReasonEmptyResponse, models.BlameUpstream, true, models.CodeEmptyResponse),
		say:  "The upstream answered without any content.",
	},
	{
		name: "malformed", kinds: []Kind{KindMalformed},
		then: exactTarget(models.ReasonMalformed, models.BlameUpstream, true, models.CodeMalformedResponse),
		say:  "The upstream's answer could not be understood.",
	},
	// The cap is ours and the next answer may well fit: the target stays in.
	{
		name: "event too big", kinds: []Kind{KindEventTooBig},
		then: Verdict{Reason: models.ReasonMalformed, Blame: models.BlameUpstream, Scope: models.ScopeNone, Failover: true, Code: models.CodeStreamEventTooBig},
		say:  "The upstream sent an event above the configured size limit.",
	},

	// What the error says about the account, where the status allows it.
	{
		name: "suspended until paid", kinds: answered, status: []span{{400, 401}, {403, 403}, {429, 429}}, text: &unpaid,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, account: true,
		say: sayQuota,
	},
	{
		name: "banned by the operator's signals", kinds: answered, status: []span{{401, 401}, {403, 403}}, when: bannedByOperator,
		then: terminal(models.ReasonBanned, models.PhaseBanned), account: true,
		say: sayBanned,
	},
	{
		name: "banned", kinds: answered, status: []span{{401, 401}, {403, 403}}, text: &bans, when: opensWithBan,
		then: terminal(models.ReasonBanned, models.PhaseBanned), account: true,
		say: sayBanned,
	},
	{
		name: "requests rejected", kinds: answered, status: []span{{403, 403}}, when: rejects, text: &notAllowed,
		then: wholeConnection(models.ReasonRequestRejected, 0, inactive), account: true,
		say: sayRejected,
	},
	{
		name: "not served from here", kinds: answered, status: []span{{400, 400}, {403, 403}}, text: &misplaced,
		then: wholeConnection(models.ReasonAuth, 0, inactive), account: true,
		say: sayMisplaced,
	},
	{
		name: "turned away at the door", kinds: answered, status: []span{{403, 403}}, text: &turnedAway,
		then: wholeConnection(models.ReasonAuth, 0, inactive), account: true,
		say: sayCredentials,
	},

	// What it says about quotas and credit.
	{
		name: "free tier of the model", kinds: answered, status: []span{{402, 403}, {429, 429}}, text: &freeTierWords,
		then: withLock(exactTarget(models.ReasonQuotaExhausted, models.BlameUpstream, false, models.CodeUpstreamRateLimit), models.LockFamily, quotaFor), hints: true,
		say: sayQuota,
	},
	{
		name: "credit", kinds: answered, status: []span{{400, 401}, {403, 403}, {429, 429}}, text: &creditWords,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true,
		say: sayQuota,
	},
	{
		name: "quota of a period", kinds: answered, status: []span{{400, 403}, {429, 429}}, text: &periodWords,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, adjust: awaitDay,
		say: sayQuota,
	},
	{
		name: "subscription", kinds: answered, status: []span{{400, 401}, {403, 403}, {429, 429}}, text: &subscriptionWords,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, adjust: orMoment,
		say: sayQuota,
	},
	{
		name: "quota", kinds: answered, status: []span{{400, 401}, {403, 403}, {429, 429}}, text: &quotaWords,
		then: wholeConnection(models.ReasonQuotaExhausted, 0, models.CodeUpstreamRateLimit), hints: true, adjust: orMoment,
		say: sayQuota,
	},
	// A plain 429 of an account that pays by use is a rate limit, whatever it adds.
	{
		name: "credit or quota by other words", kinds: answered, status: []span{{400, 401}, {403, 403}}, text: &otherWords,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, adjust: awaitDay,
		say: sayQuota,
	},
	{
		name: "credit or quota of a subscriber by other words", kinds: answered, status: []span{{429, 429}}, class: []models.Class{models.ClassOAuth, ""}, text: &otherWords,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, adjust: awaitDay,
		say: sayQuota,
	},
	{
		name: "another day", kinds: answered, status: []span{{402, 402}}, text: &anotherDay,
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true, adjust: awaitDay,
		say: sayQuota,
	},

	// What it says about the model.
	{
		name: "model not accessible by code", kinds: answered, status: []span{{400, 401}, {403, 403}, {422, 422}}, text: &modelCodes,
		then: modelMissing(notFoundFor),
	},
	{
		name: "model retired by code", kinds: answered, status: []span{{400, 400}, {404, 404}, {410, 410}, {422, 422}}, text: &retiredCodes,
		then: modelMissing(goneFor),
	},
	{
		name: "model not accessible", kinds: answered, status: []span{{400, 401}, {403, 403}, {422, 422}}, text: &modelPhrases, unless: &badCredential,
		then: modelMissing(notFoundFor),
	},
	{
		name: "named resource missing", kinds: answered, status: []span{{404, 404}}, text: &missingResource,
		then: clients(models.ReasonInvalidRequest), passOn: true,
	},
	{
		name: "model retired", kinds: answered, status: []span{{404, 404}, {410, 410}}, text: &retiredPhrases,
		then: modelMissing(goneFor),
	},
	{
		name: "endpoint moved", kinds: answered, status: []span{{404, 404}, {410, 410}}, text: &movedWords,
		then: modelMissing(goneFor),
	},
	{
		name: "model crowded", kinds: answered, status: []span{{400, 400}, {429, 429}, {500, 503}, {529, 529}}, text: &crowdedWords,
		then: withStatus(exactTarget(models.ReasonModelCapacity, models.BlameUpstream, false, models.CodeUpstreamFailed), 503), hints: true,
	},
	// A smaller request fits, so nothing is out; another model, or a richer account, takes this one.
	{
		name: "too large for the model", kinds: answered, status: []span{{413, 413}}, when: namesModel,
		then: Verdict{Reason: models.ReasonModelCapacity, Blame: models.BlameUpstream, Scope: models.ScopeNone, Failover: true, Code: models.CodeUpstreamRejected}, passOn: true,
	},
	{
		name: "too fast, as a bad request", kinds: answered, status: []span{{400, 400}}, text: &tooMany,
		then: wholeConnection(models.ReasonRateLimited, 0, models.CodeUpstreamRateLimit), hints: true,
	},

	// What the status says.
	{
		name: "expired key", kinds: answered, status: []span{{401, 401}}, class: []models.Class{models.ClassAPIKey, models.ClassLocal, ""},
		then: terminal(models.ReasonExpired, models.PhaseExpired), account: true,
		say: sayCredentials,
	},
	// Design decision 4: a token may only need a refresh, so its end is a matter of episodes.
	{
		name: "refused token", kinds: answered, status: []span{{401, 401}},
		then: wholeConnection(models.ReasonExpired, 0, inactive), account: true,
		say: sayCredentials,
	},
	{
		name: "no credit for one model", kinds: answered, status: []span{{402, 402}}, when: paysPerModel,
		then: wholeConnection(models.ReasonCreditsExhausted, creditFor, inactive),
		say:  sayCredits,
	},
	{
		name: "no credit", kinds: answered, status: []span{{402, 402}},
		then: terminal(models.ReasonCreditsExhausted, models.PhaseCreditsExhausted), account: true,
		say: sayCredits,
	},
	{
		name: "forbidden", kinds: answered, status: []span{{403, 403}},
		then: wholeConnection(models.ReasonAuth, 0, inactive),
		say:  sayCredentials,
	},
	{
		name: "model not found", kinds: answered, status: []span{{404, 404}, {410, 410}},
		then: modelMissing(notFoundFor),
	},
	{
		name: "rate limited", kinds: answered, status: []span{{429, 429}},
		then: wholeConnection(models.ReasonRateLimited, 0, models.CodeUpstreamRateLimit), hints: true,
	},
	{
		name: "subscription by status", kinds: answered, status: []span{{432, 432}},
		then: wholeConnection(models.ReasonQuotaExhausted, quotaFor, models.CodeUpstreamRateLimit), hints: true,
		say: sayQuota,
	},
	{
		name: "cooldown asked for", kinds: answered, status: []span{{503, 503}}, when: asksForCooldown,
		then: withStatus(wholeConnection(models.ReasonServerError, askedFor, models.CodeUpstreamFailed), 503), account: true,
	},
	{
		name: "upstream timed out", kinds: answered, status: []span{{408, 408}, {504, 504}},
		then: withStatus(exactTarget(models.ReasonServerError, models.BlameUpstream, true, models.CodeUpstreamFailed), 504), hints: true,
	},
	{
		name: "unavailable", kinds: answered, status: []span{{503, 503}},
		then: withStatus(exactTarget(models.ReasonServerError, models.BlameUpstream, true, models.CodeUpstreamFailed), 503), hints: true,
	},
	{
		name: "server error", kinds: answered, status: []span{{500, 500}, {502, 502}},
		then: exactTarget(models.ReasonServerError, models.BlameUpstream, true, models.CodeUpstreamFailed), hints: true,
	},
	{
		name: "overloaded", kinds: answered, status: []span{{529, 529}},
		then: withStatus(exactTarget(models.ReasonModelCapacity, models.BlameUpstream, false, models.CodeUpstreamFailed), 503), hints: true,
	},
	{
		name: "other server error", kinds: answered, status: []span{{501, 599}},
		then: exactTarget(models.ReasonModelCapacity, models.BlameUpstream, false, models.CodeUpstreamFailed), hints: true,
	},
	{
		name: "not acceptable", kinds: answered, status: []span{{406, 406}},
		then: exactTarget(models.ReasonServerError, models.BlameUpstream, false, models.CodeUpstreamFailed),
	},
	// 407 comes from a proxy between us and the upstream.
	{
		name: "proxy refused", kinds: answered, status: []span{{407, 407}},
		then: exactTarget(models.ReasonTransport, models.BlameNetwork, false, models.CodeUpstreamFailed),
		say:  "A proxy on the way to the upstream refused the connection.",
	},
	// 400, 413, 422 and the rest, context length included: the request explains the failure, so
	// no state changes and the same request is not sent elsewhere (guide section 3).
	{
		name: "request rejected", kinds: answered, status: []span{{400, 499}},
		then: clients(models.ReasonInvalidRequest), passOn: true,
	},
}

// unexplained is for a status that is no error, such as a redirect.
var unexplained = line{
	name: "unexplained",
	then: exactTarget(models.ReasonUnknown, models.BlameUpstream, false, models.CodeUpstreamFailed),
	say:  "The upstream gave an answer that is neither a success nor an error.",
}
