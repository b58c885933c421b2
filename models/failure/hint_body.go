package failure

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// fieldHint reads the fields by which JSON errors declare a wait, at the root and in the error
// object: Google's RetryInfo, milliseconds, seconds or instants, and instants of a reset.
func fieldHint(root []byte, now time.Time) (time.Duration, hintSource) {
	if root == nil {
		return 0, hintNone
	}
	levels := levelsOf(root)
	for _, level := range levels {
		if wait := retryInfo(level); wait > 0 {
			return wait, hintRetryInfo
		}
	}
	for _, level := range levels {
		if wait := levelHint(level, now); wait > 0 {
			return wait, hintBody
		}
		if wait := headerHint(http.StatusTooManyRequests, quotedHeaders(level), now); wait > 0 {
			return wait, hintBody
		}
	}
	return 0, hintNone
}

// retryInfo is the delay of google.rpc.RetryInfo among a level's details.
func retryInfo(level []byte) time.Duration {
	for details := itemsOf(member(level, "details")); details.next(); {
		if !bytes.Contains(content(member(details.value, "@type")), []byte("RetryInfo")) {
			continue
		}
		if wait := delayOf(member(details.value, "retryDelay")); wait > 0 {
			return wait
		}
	}
	return 0
}

// quotedHeaders are the headers of the upstream's own upstream, as aggregators quote them under
// metadata.headers; nil when there are none.
func quotedHeaders(level []byte) http.Header {
	quoted := membersOf(member(member(level, "metadata"), "headers"))
	var h http.Header
	for len(h) < mostQuoted && quoted.next() {
		if value := stringOf(quoted.value); value != "" {
			if h == nil {
				h = http.Header{}
			}
			h.Set(string(quoted.key), value)
		}
	}
	return h
}

// mostQuoted bounds the headers that a body may quote.
const mostQuoted = 32

// levelHint is the wait that a level declares by its best field.
func levelHint(level []byte, now time.Time) time.Duration {
	var best time.Duration
	bestRank := -1
	for m := membersOf(level); m.next(); {
		rank, read := fieldOf(string(m.key))
		if read == nil || bestRank >= 0 && rank >= bestRank {
			continue
		}
		if wait := read(m.value, now); wait > 0 {
			best, bestRank = wait, rank
		}
	}
	return best
}

// fieldOf says how good a field is, 0 being best, and how it is read; nil for one that declares
// no wait.
func fieldOf(name string) (rank int, read func(value []byte, now time.Time) time.Duration) {
	switch name {
	case "retry_after_ms", "retryAfterMs":
		return 0, func(value []byte, _ time.Time) time.Duration { n, _ := numeric(value); return seconds(n / 1000) }
	case "retryDelay":
		return 1, func(value []byte, _ time.Time) time.Duration { return delayOf(value) }
	case "retry_after_seconds", "resets_in_seconds":
		return 2, func(value []byte, _ time.Time) time.Duration { n, _ := numeric(value); return seconds(n) }
	case "retry_after", "retryAfter":
		return 3, waitIn
	case "retry_at", "retryAt":
		return 4, waitIn
	case "reset_at", "resetAt", "resets_at", "resetsAt":
		return 5, waitIn
	case "reset", "resets", "reset_time", "resetTime":
		return 6, waitIn
	case "available_at", "availableAt":
		return 7, waitIn
	default:
		return 0, nil
	}
}

// waitIn reads a number or a string that is a wait or an instant.
func waitIn(value []byte, now time.Time) time.Duration {
	if n, ok := numeric(value); ok {
		return waitOfNumber(n, now)
	}
	return waitOf(stringOf(value), now)
}

// delayOf reads a protobuf duration: "52s", "1500ms", a number of seconds, or its object form.
func delayOf(value []byte) time.Duration {
	if isObject(value) {
		whole, _ := numeric(member(value, "seconds"))
		nanos, _ := numeric(member(value, "nanos"))
		return seconds(whole + nanos/1e9)
	}
	if n, ok := numeric(value); ok {
		return seconds(n)
	}
	wait, rest := leadingDuration(strings.TrimSpace(stringOf(value)))
	if rest != "" {
		return 0
	}
	return wait
}
