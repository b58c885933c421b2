package failure

import (
	"bytes"
	"strings"
	"time"
)

// prose is the text to search for a wait, in lower case: what the message says, or the start of
// a body that is plain text, as proxies send it.
func prose(e *upstreamError, root, body []byte) string {
	if root != nil {
		return e.said.text
	}
	body = skipSpace(body)
	if len(body) == 0 || bytes.IndexByte([]byte("{[<"), body[0]) >= 0 {
		return ""
	}
	return strings.ToLower(string(body[:min(len(body), longestSaid)]))
}

// proseHint reads "please retry in 26.66s", "try again at 2026-01-02T15:04:05Z", "quota will
// reset after 2h30m14s", "resets in 3 days", "resets at 01-02 15:04 UTC": the first number that
// such words lead to. One without a unit is not a wait. The text is in lower case.
func proseHint(said string, now time.Time) time.Duration {
	for at := 0; at < len(said); at++ {
		if !isDigit(said[at]) {
			continue
		}
		if leadsToWait(said[:at]) {
			if wait, _ := leadingDuration(said[at:]); wait > 0 {
				return wait
			}
			if wait := leadingInstant(said[at:], now); wait > 0 {
				return wait
			}
		}
		for at < len(said) && isDigit(said[at]) {
			at++
		}
	}
	return 0
}

// The words that lead to a wait, and those that may stand between them and it.
var (
	waitVerbs = []string{
		"retry", "retrying", "try again", "try your request again", "reset", "resets", "available",
		"available again", "come back", "wait", "limited", "blocked",
	}
	waitPrepositions = []string{" in", " after", "-after", " for", " at", " until", " on"}
	waitAdverbs      = []string{" about", " approximately", " another"}
)

// leadsToWait reports whether text, up to a number, says that the number is a wait.
func leadsToWait(text string) bool {
	trimmed := strings.TrimRight(text, " ")
	if len(trimmed) == len(text) {
		return false
	}
	trimmed = cutAnySuffix(trimmed, waitAdverbs)
	trimmed = strings.TrimSuffix(trimmed, ":")
	trimmed = cutAnySuffix(trimmed, waitPrepositions)
	trimmed = strings.TrimSuffix(trimmed, ":")
	for _, verb := range waitVerbs {
		if before, found := strings.CutSuffix(trimmed, verb); found && !inWord(before, len(before)-1) {
			return true
		}
	}
	return false
}

func cutAnySuffix(text string, suffixes []string) string {
	for _, suffix := range suffixes {
		if before, found := strings.CutSuffix(text, suffix); found {
			return before
		}
	}
	return text
}
