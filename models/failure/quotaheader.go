package failure

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Limit is one limit that the headers of an answer report, whether the answer went well or not.
type Limit struct {
	// Name is the dimension as the provider writes it, in lower case: requests, tokens,
	// input-tokens, requests-day, primary. It is empty for a limit that is of everything.
	Name      string
	Limit     float64       // units in a whole window; 0 = unknown
	Remaining float64       // units left, where Limit or this is known; negative = unknown
	Left      float64       // what is left as a share of the whole, 0..1; negative = unknown
	Length    time.Duration // of a whole window; 0 = unknown
	Reset     time.Time     // when it is full again; zero = unknown
}

const (
	maxLimits  = 16 // in one answer; no provider sends as many
	maxNamed   = 40 // bytes of a limit's name
	maxWritten = 512
	mostUnits  = 1e15 // of anything
)

// Beginnings of the names of headers about limits beside those of resetHint.
const (
	codex           = "X-Codex-"
	rateLimit       = "Ratelimit"        // the field of the IETF's draft
	rateLimitPolicy = "Ratelimit-Policy" // and its companion
)

// Limits reads what an answer's headers say of limits: x-ratelimit-*, ratelimit-* and the fields
// of the IETF's draft, anthropic-ratelimit-*, x-codex-*. It understands values as hints are
// understood. An answer without such headers, which is most of them, costs a look at their names
// and no allocation. What makes no sense is left out; the result is sorted by name.
func Limits(h http.Header, now time.Time) []Limit {
	if !saysLimits(h) {
		return nil
	}
	names := make([]string, 0, 16)
	for name, values := range h {
		if aboutLimits(name) && len(values) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names) // what is said twice is taken from the same place every time
	r := limitReader{now: now}
	for _, name := range names {
		r.read(name, h[name][0])
	}
	return r.limits()
}

func saysLimits(h http.Header) bool {
	for name := range h {
		if aboutLimits(name) {
			return true
		}
	}
	return false
}

func aboutLimits(name string) bool {
	return strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, rateLimit) ||
		strings.HasPrefix(name, anthropic) || strings.HasPrefix(name, codex)
}

// limitReader puts limits together from headers that each tell one thing of one.
type limitReader struct {
	now   time.Time
	found []Limit
}

func (r *limitReader) read(name, value string) {
	value = value[:min(len(value), maxWritten)]
	switch {
	case name == rateLimit || name == rateLimitPolicy:
		r.readFields(value)
		return
	case strings.HasPrefix(name, codex):
		r.readCodex(strings.TrimPrefix(name, codex), value)
		return
	case strings.HasPrefix(name, anthropic):
		r.readAnthropic(strings.TrimPrefix(name, anthropic), value)
		return
	}
	for _, family := range limitFamilies {
		if rest, found := strings.CutPrefix(name, family); found {
			word, dimension, _ := strings.Cut(rest, "-")
			r.tell(dimension, word, value)
			return
		}
	}
}

// readAnthropic reads dimension-word, such as Input-Tokens-Remaining or Unified-5h-Utilization.
// The unified overage is what may be bought beyond a limit and is none.
func (r *limitReader) readAnthropic(rest, value string) {
	at := strings.LastIndexByte(rest, '-')
	if at < 0 {
		return
	}
	dimension, word := rest[:at], rest[at+1:]
	if strings.HasPrefix(dimension, "Unified-Overage") {
		return
	}
	r.tell(dimension, word, value)
}

// readCodex reads window-word, such as Primary-Used-Percent.
func (r *limitReader) readCodex(rest, value string) {
	window, word, found := strings.Cut(rest, "-")
	if found && equalsAny(window, "primary", "secondary") {
		r.tell(window, word, value)
	}
}

// tell takes in what one header says of one dimension.
func (r *limitReader) tell(dimension, word, value string) {
	switch strings.ToLower(word) {
	case "limit":
		r.amount(dimension, value, func(l *Limit, n float64) { l.Limit = n })
	case "remaining":
		r.amount(dimension, value, func(l *Limit, n float64) { l.Remaining = n })
	case "utilization":
		r.amount(dimension, value, func(l *Limit, n float64) { l.Left = max(0, 1-n) })
	case "used-percent":
		r.amount(dimension, value, func(l *Limit, n float64) { l.Left = max(0, 1-n/100) })
	case "window-minutes":
		r.amount(dimension, value, func(l *Limit, n float64) { l.Length = seconds(60 * n) })
	case "status":
		if equalsAny(value, "rejected", "exhausted", "exceeded") {
			r.about(dimension, func(l *Limit) { l.Left = 0 })
		}
	case "reset", "reset-at", "reset-after-seconds":
		if wait := waitOf(value, r.now); wait > 0 {
			r.about(dimension, func(l *Limit) { l.Reset = r.now.Add(min(wait, longestWindow)) })
		}
	}
}

// longestWindow bounds how far ahead a reset is believed.
const longestWindow = 366 * 24 * time.Hour

// amount takes in the number that a value begins with; what may follow is a policy, as in
// "100, 100;w=60".
func (r *limitReader) amount(dimension, value string, set func(*Limit, float64)) {
	value = strings.TrimSpace(value)
	if n, ok := float(value[:numberLength(value)]); ok {
		r.about(dimension, func(l *Limit) { set(l, min(n, mostUnits)) })
	}
}

// about finds the limit of a dimension, or makes it where its name is one and there is room.
func (r *limitReader) about(dimension string, set func(*Limit)) {
	name, ok := limitName(dimension)
	if !ok {
		return
	}
	for i := range r.found {
		if r.found[i].Name == name {
			set(&r.found[i])
			return
		}
	}
	if len(r.found) == maxLimits {
		return
	}
	l := Limit{Name: name, Remaining: -1, Left: -1, Length: lengthOf(name)}
	set(&l)
	r.found = append(r.found, l)
}

// limitName is a dimension in lower case; anything but letters, digits, "-", "_" and "." is no
// name, for it is shown to people. What is called unified or default is of everything.
func limitName(dimension string) (string, bool) {
	if len(dimension) > maxNamed {
		return "", false
	}
	for _, c := range []byte(dimension) {
		if !isLetter(c) && !isDigit(c) && c != '-' && c != '_' && c != '.' {
			return "", false
		}
	}
	name := strings.TrimPrefix(strings.ToLower(dimension), "unified-")
	if name == "unified" || name == "default" {
		name = ""
	}
	return name, true
}

// lengths of windows that names tell.
var lengths = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day,
}

const day = 24 * time.Hour

// lengthOf is how long the window is that a name tells, such as requests-day or 5h; 0 when it
// tells none.
func lengthOf(name string) time.Duration {
	last := name[strings.LastIndexByte(name, '-')+1:]
	if length, known := lengths[last]; known {
		return length
	}
	if length, rest := leadingDuration(last); rest == "" {
		return min(length, longestWindow)
	}
	return 0
}

// limits works out what is left as a share where it was told otherwise.
func (r *limitReader) limits() []Limit {
	kept := r.found[:0]
	for _, l := range r.found {
		switch {
		case l.Left >= 0:
		case l.Remaining == 0:
			l.Left = 0
		case l.Remaining > 0 && l.Limit > 0:
			l.Left = l.Remaining / l.Limit
		}
		l.Left, l.Length = min(l.Left, 1), min(l.Length, longestWindow)
		if l.Left >= 0 || l.Limit > 0 || l.Remaining >= 0 || !l.Reset.IsZero() {
			kept = append(kept, l)
		}
	}
	slices.SortFunc(kept, func(a, b Limit) int { return strings.Compare(a.Name, b.Name) })
	return kept
}
