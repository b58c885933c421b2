package failure

import (
	"net/http"
	"strings"
	"time"
)

// headerHint reads retry-after-ms, then Retry-After (RFC 9110 10.2.3), then the headers that
// say when a limit resets.
func headerHint(status int, h http.Header, now time.Time) time.Duration {
	if wait := longest(h["Retry-After-Ms"], now, func(value string, _ time.Time) time.Duration {
		n, _ := number(value)
		return seconds(n / 1000)
	}); wait > 0 {
		return wait
	}
	if wait := longest(h["Retry-After"], now, waitOf); wait > 0 {
		return wait
	}
	return resetHint(status, h, now)
}

// longest reads a header that should stand once. A proxy that adds its own makes it two lines,
// or one with a comma (RFC 9110 5.3): each of them asks us to stay away, so the longest counts.
// Dates have a comma of their own, and durations in words may have several, so neighbours and
// the whole line are also read as one.
func longest(lines []string, now time.Time, read func(value string, now time.Time) time.Duration) time.Duration {
	var wait time.Duration
	for _, line := range lines {
		wait = max(wait, read(line, now))
		if !strings.Contains(line, ",") {
			continue
		}
		before := ""
		for i, part := range strings.Split(line[:min(len(line), longestSaid)], ",") {
			wait = max(wait, read(part, now))
			if i > 0 {
				wait = max(wait, read(before+","+part, now))
			}
			before = part
		}
	}
	return wait
}

// dimension is one limit an upstream reports: requests, tokens, or the account as a whole.
type dimension struct {
	wait      time.Duration
	marked    bool // it says how much is left
	exhausted bool // and that is nothing
	whole     bool // it names no dimension
}

// resetHint chooses between the limits an upstream reports. An exhausted one blocks, and
// with several the last to reset. One with something left does not block. When none says how
// much is left, the earliest counts: too early costs one attempt, too late costs an account;
// limits named by dimension come with every answer, so they count only for a 429.
func resetHint(status int, h http.Header, now time.Time) time.Duration {
	var blocked, unmarked time.Duration
	for name, values := range h {
		d, ok := readDimension(h, name, values, now)
		switch {
		case !ok || d.wait <= 0:
		case d.exhausted:
			blocked = max(blocked, d.wait)
		case !d.marked && (d.whole || status == http.StatusTooManyRequests):
			if unmarked == 0 || d.wait < unmarked {
				unmarked = d.wait
			}
		}
	}
	if blocked > 0 {
		return blocked
	}
	return unmarked
}

func readDimension(h http.Header, name string, values []string, now time.Time) (dimension, bool) {
	before, after, ok := resetName(name)
	if !ok || len(values) == 0 {
		return dimension{}, false
	}
	d := dimension{wait: waitOf(values[0], now), whole: after == "" && !strings.HasPrefix(name, anthropic)}
	if n, isNumber := number(valueOf(h, before, "Remaining", after)); isNumber {
		d.marked, d.exhausted = true, n == 0
	}
	switch state := valueOf(h, before, "Status", after); {
	case equalsAny(state, "rejected", "exhausted", "exceeded"):
		d.marked, d.exhausted = true, true
	case equalsAny(state, "allowed", "allowed_warning"):
		d.marked = true
	}
	return d, true
}

// Beginnings of the names of headers about limits, spelled as net/http spells them.
const anthropic = "Anthropic-Ratelimit-"

var limitFamilies = []string{"X-Ratelimit-", "Ratelimit-"}

// resetName takes the name of a header that says when a limit resets apart: X-RateLimit-Reset,
// X-RateLimit-Reset-Requests, RateLimit-Reset, Anthropic-RateLimit-Requests-Reset. With another
// word in the place of "Reset" it is that of its companion, which says how much is left.
func resetName(name string) (before, after string, ok bool) {
	for _, family := range limitFamilies {
		if rest, found := strings.CutPrefix(name, family); found {
			after, ok = strings.CutPrefix(rest, "Reset")
			return family, after, ok && (after == "" || after[0] == '-')
		}
	}
	if before, ok = strings.CutSuffix(name, "Reset"); ok && strings.HasPrefix(name, anthropic) {
		return before, "", true
	}
	return "", "", false
}

// valueOf is the value of the header whose name is put together; it is looked up without
// allocating the name.
func valueOf(h http.Header, before, word, after string) string {
	var room [96]byte
	name := append(append(append(room[:0], before...), word...), after...)
	if values := h[string(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func equalsAny(value string, words ...string) bool {
	for _, word := range words {
		if strings.EqualFold(value, word) {
			return true
		}
	}
	return false
}
