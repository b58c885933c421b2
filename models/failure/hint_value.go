package failure

import (
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	// Numbers from here on are instants, not waits: seconds since 1970 (2001 and later), and
	// above the second bound milliseconds.
	epochSeconds = 1e9
	epochMillis  = 1e11
	// nearEpoch is how long ago an instant may lie. A number that would be older is no instant
	// but an absurd wait, and the cap applies.
	nearEpoch = 366 * 24 * time.Hour
)

// waitOf reads one value of a header or field: a number, a duration such as "6m0s", an HTTP
// date or an ISO instant. It is 0 for anything past or unreadable.
func waitOf(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if n, ok := number(value); ok {
		return waitOfNumber(n, now)
	}
	if wait, rest := leadingDuration(value); wait > 0 && rest == "" {
		return wait
	}
	if value != "" && isLetter(value[0]) {
		at, err := http.ParseTime(value)
		if err != nil {
			return 0
		}
		return max(0, at.Sub(now))
	}
	return leadingInstant(value, now)
}

// waitOfNumber reads a number that is seconds from now, or seconds or milliseconds since 1970.
func waitOfNumber(n float64, now time.Time) time.Duration {
	if n < epochSeconds {
		return seconds(n)
	}
	unix := n
	if n >= epochMillis {
		unix = n / 1000
	}
	present := float64(now.UnixMilli()) / 1000
	if seconds(present-unix) > nearEpoch {
		return seconds(n)
	}
	return seconds(unix - present)
}

// number reads an unsigned decimal number; signs, exponents and units are not numbers. One
// beyond any float is infinite: a wait as long as the caps allow, not the absence of one.
func number(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if length := numberLength(text); length == 0 || length < len(text) {
		return 0, false
	}
	return float(text)
}

// numberLength is how much of text is the unsigned decimal number that it begins with.
func numberLength(text string) int {
	at := digits(text)
	if at == 0 || at == len(text) || text[at] != '.' {
		return at
	}
	if fraction := digits(text[at+1:]); fraction > 0 {
		return at + 1 + fraction
	}
	return at
}

// digits is how many digits text begins with.
func digits(text string) int {
	at := 0
	for at < len(text) && isDigit(text[at]) {
		at++
	}
	return at
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// float parses a number; one that is out of range is infinite.
func float(text string) (float64, bool) {
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil || errors.Is(err, strconv.ErrRange)
}

// numeric reads a raw JSON number, or a raw string that holds an unsigned one.
func numeric(value []byte) (float64, bool) {
	if len(value) == 0 || len(value) > longestText {
		return 0, false
	}
	switch c := value[0]; {
	case c == '"':
		return number(string(content(value)))
	case c == '-' || isDigit(c):
		return float(string(value))
	default:
		return 0, false
	}
}

// seconds converts to a Duration, saturating; negative and NaN are 0.
func seconds(n float64) time.Duration {
	switch {
	case math.IsNaN(n) || n <= 0:
		return 0
	case n >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	default:
		return time.Duration(math.Round(n * float64(time.Second)))
	}
}

var units = map[string]float64{
	"ms": 1e-3, "msec": 1e-3, "millisecond": 1e-3, "milliseconds": 1e-3,
	"s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
	"m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
	"h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
	"d": 86400, "day": 86400, "days": 86400,
}

// leadingDuration reads a duration at the start of text, such as "2h30m14s", "26.66s" or
// "1 minute and 30 seconds", and returns what follows it.
func leadingDuration(text string) (wait time.Duration, rest string) {
	var sum float64
	rest = text
	for next := text; ; {
		length := numberLength(next)
		word := strings.TrimSpace(next[length:])
		letters := 0
		for letters < len(word) && isLetter(word[letters]) {
			letters++
		}
		unit, known := unitOf(word[:letters])
		if length == 0 || !known {
			break
		}
		n, _ := number(next[:length])
		sum += n * unit
		rest = word[letters:]
		next = afterConjunction(rest)
	}
	return seconds(sum), rest
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// unitOf is the length of a unit in seconds.
func unitOf(word string) (float64, bool) {
	if unit, known := units[word]; known {
		return unit, true
	}
	for name, unit := range units {
		if strings.EqualFold(name, word) {
			return unit, true
		}
	}
	return 0, false
}

// afterConjunction passes over what joins the parts of a duration: space, a comma, "and".
func afterConjunction(text string) string {
	text = strings.TrimSpace(text)
	text = strings.TrimSpace(strings.TrimPrefix(text, ","))
	if rest, found := strings.CutPrefix(text, "and"); found && strings.TrimSpace(rest) != rest {
		return strings.TrimSpace(rest)
	}
	return text
}

var (
	isoInstant = regexp.MustCompile(`^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2})(:\d{2}(?:\.\d{1,9})?)?\s?([Zz]|(?i:UTC|GMT)|[+-]\d{2}:?\d{2})?`)
	monthDay   = regexp.MustCompile(`^(\d{2}-\d{2}) (\d{2}:\d{2})(:\d{2})?`)
)

// leadingInstant reads an instant at the start of text and returns how far ahead it lies, 0
// when past. Without a zone it is UTC; without a year it is the next such day.
func leadingInstant(text string, now time.Time) time.Duration {
	if len(text) < len("01-02 15:04") || text[4] != '-' && text[2] != '-' {
		return 0
	}
	if part := isoInstant.FindStringSubmatch(text); part != nil {
		at, err := time.Parse("2006-01-02 15:04:05 -0700", part[1]+" "+part[2]+orElse(part[3], ":00")+" "+zone(part[4]))
		if err != nil {
			return 0
		}
		return max(0, at.Sub(now))
	}
	if part := monthDay.FindStringSubmatch(text); part != nil {
		for _, year := range []int{now.UTC().Year(), now.UTC().Year() + 1} {
			at, err := time.Parse("2006-01-02 15:04:05", strconv.Itoa(year)+"-"+part[1]+" "+part[2]+orElse(part[3], ":00"))
			if err == nil && at.After(now) {
				return at.Sub(now)
			}
		}
	}
	return 0
}

// zone writes a zone as a numeric offset.
func zone(text string) string {
	if text == "" || text[0] != '+' && text[0] != '-' {
		return "+0000"
	}
	return strings.ReplaceAll(text, ":", "")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
