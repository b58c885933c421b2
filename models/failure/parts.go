package failure

import (
	"regexp"
	"strings"
	"time"

	"omniroute/models"
)

// Verdicts that lines of the table are made of.

func exactTarget(reason models.Reason, blame models.Blame, trips bool, code models.Code) Verdict {
	return Verdict{Reason: reason, Blame: blame, Scope: models.ScopeModel, Trips: trips, Failover: true, Code: code}
}

func modelMissing(wait time.Duration) Verdict {
	v := exactTarget(models.ReasonNotFound, models.BlameUpstream, false, models.CodeModelNotFound)
	return withLock(v, models.LockModel, wait)
}

func wholeConnection(reason models.Reason, fixed time.Duration, code models.Code) Verdict {
	return Verdict{Reason: reason, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Failover: true, Fixed: fixed, Code: code}
}

func terminal(reason models.Reason, phase models.Phase) Verdict {
	v := wholeConnection(reason, 0, inactive)
	v.Terminal = phase
	return v
}

func clients(reason models.Reason) Verdict {
	return Verdict{Reason: reason, Blame: models.BlameClient, Scope: models.ScopeNone, Code: models.CodeUpstreamRejected}
}

func withStatus(v Verdict, status int) Verdict {
	v.Status = status
	return v
}

func withLock(v Verdict, lock models.LockScope, wait time.Duration) Verdict {
	v.Lock, v.Fixed = lock, wait
	return v
}

// Conditions of lines that are not wording.

// answerBegan reports that response headers had come.
func answerBegan(f *facts) bool { return f.Committed || f.Status/100 == 2 }

func bannedByOperator(f *facts) bool { return f.Rules.banned(&f.upstreamError) }

// opensWithBan reports that a ban is what the message is about: a code says so, or its first
// sentence. Further on a server may repeat what it was sent.
func opensWithBan(f *facts) bool {
	return bans.codes[f.code] || bans.codes[f.kind] || bans.matches(opening(f.said.text))
}

// label is what may stand before a colon at the beginning of a message.
var label = regexp.MustCompile(`^[\w ()\[\]-]{0,40}\b(error|forbidden|unauthorized|denied|failed|\d{3})\W*$`)

// opening is the first sentence of a message, without the label that may stand before it. What
// follows a colon otherwise is somebody's text.
func opening(message string) string {
	if head, rest, found := strings.Cut(message, ":"); found && label.MatchString(head) {
		message = rest
	}
	if end := strings.IndexAny(message, ".!?:\n"); end >= 0 {
		return message[:end]
	}
	return message
}

// rejects reports that the provider refuses request after request before it bans an account.
func rejects(f *facts) bool { return f.Rules.is("anthropic", "claude") }

// namesModel reports that a request is too large for this very model.
func namesModel(f *facts) bool {
	return f.Model != "" && strings.Contains(f.lower, strings.ToLower(f.Model)) || tooLargeForModel.in(&f.upstreamError)
}

// paysPerModel reports that a missing payment is about one model: its provider counts per model,
// and has no wallet that all of them share.
func paysPerModel(f *facts) bool {
	if !f.perModel() {
		return false
	}
	wallet := f.Rules.is("grok-cli", "grok-web", "xai-oauth") && (f.words == "" || walletWords.in(&f.upstreamError))
	return !wallet
}

// asksForCooldown reports that a gateway in between asks for the connection to be left alone.
func asksForCooldown(f *facts) bool {
	values := f.Headers["X-Omni-Fallback-Hint"]
	return len(values) > 0 && values[0] == "connection_cooldown"
}
