package failure

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// parsed is one case: what an upstream sent, and the wait that follows.
type parsed struct {
	name    string
	status  int // 0 = 429
	headers http.Header
	body    string
	want    time.Duration
	source  hintSource
}

func check(t *testing.T, cases []parsed) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.status == 0 {
				c.status = 429
			}
			wait, source := hintIn(c.status, c.headers, []byte(c.body), noon)
			require.Equal(t, c.want, wait)
			require.Equal(t, c.source, source)
		})
	}
}

func retryAfter(value string) http.Header { return headers("Retry-After", value) }

// The truth table that every delivery is tried against: never 0 where a wait is due, never
// milliseconds read as seconds or the reverse, absent where nonsense, the cap where above it.
func TestTheRetryAfterTruthTable(t *testing.T) {
	check(t, []parsed{
		{name: "2", headers: retryAfter("2"), want: 2 * time.Second, source: hintHeader},
		{name: "0", headers: retryAfter("0")},
		{name: "1.5", headers: retryAfter("1.5"), want: 1500 * time.Millisecond, source: hintHeader},
		{name: "HTTP date in 30 s", headers: retryAfter("Sun, 01 Mar 2026 12:00:30 GMT"), want: 30 * time.Second, source: hintHeader},
		{name: "HTTP date in the past", headers: retryAfter("Sun, 01 Mar 2026 11:00:00 GMT")},
		{name: "-5", headers: retryAfter("-5")},
		{name: "abc", headers: retryAfter("abc")},
		{name: "empty", headers: retryAfter("")},
		{name: "9999999999", headers: retryAfter("9999999999"), want: 24 * time.Hour, source: hintHeader},
		{name: "retry-after-ms", headers: headers("Retry-After-Ms", "1500"), want: 1500 * time.Millisecond, source: hintHeader},
		{
			name: "retryDelay", want: 52 * time.Second, source: hintRetryInfo,
			body: `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"52s"}]}}`,
		},
		{name: "bare retryDelay", body: `{"retryDelay":"52s"}`, want: 52 * time.Second, source: hintBody},
		{name: "retry_after_ms", body: `{"error":{"retry_after_ms":45000}}`, want: 45 * time.Second, source: hintBody},
		{name: "ISO time in a field", body: `{"error":{"reset_at":"2026-03-01T12:00:20Z"}}`, want: 20 * time.Second, source: hintBody},
		{name: "ISO time in the message", body: `{"error":{"message":"Too many requests, try again at 2026-03-01T12:00:20Z"}}`, want: 20 * time.Second, source: hintBody},
		{name: "reset as epoch seconds", headers: headers("X-RateLimit-Reset", epoch(90*time.Second)), want: 90 * time.Second, source: hintHeader},
		{name: "reset as epoch milliseconds", headers: headers("X-RateLimit-Reset", epoch(90*time.Second)+"500"), want: 90*time.Second + 500*time.Millisecond, source: hintHeader},
		{name: "503 with 10", status: 503, headers: retryAfter("10"), want: 10 * time.Second, source: hintHeader},
		{name: "504 with 86400", status: 504, headers: retryAfter("86400"), want: 5 * time.Minute, source: hintHeader},
	})
}

func epoch(ahead time.Duration) string { return strconv.FormatInt(noon.Add(ahead).Unix(), 10) }

func TestEveryFormOfAHeader(t *testing.T) {
	check(t, []parsed{
		{name: "spaces", headers: retryAfter("  7 "), want: 7 * time.Second, source: hintHeader},
		{name: "RFC 850 date", headers: retryAfter("Sunday, 01-Mar-26 12:00:09 GMT"), want: 9 * time.Second, source: hintHeader},
		{name: "asctime date", headers: retryAfter("Sun Mar  1 12:00:09 2026"), want: 9 * time.Second, source: hintHeader},
		{name: "date a year ahead", headers: retryAfter("Mon, 01 Mar 2027 12:00:00 GMT"), want: 24 * time.Hour, source: hintHeader},
		{name: "duration", headers: retryAfter("2m30s"), want: 150 * time.Second, source: hintHeader},
		{name: "seconds with their unit", headers: retryAfter("60s"), want: time.Minute, source: hintHeader},
		{name: "minutes", headers: retryAfter("5m"), want: 5 * time.Minute, source: hintHeader},
		{name: "hours", headers: retryAfter("2h"), want: 2 * time.Hour, source: hintHeader},
		{name: "an instant where a wait belongs", headers: retryAfter(epoch(40 * time.Second)), want: 40 * time.Second, source: hintHeader},
		{name: "that instant past", headers: retryAfter(epoch(-40 * time.Second))},
		{name: "a wait of 32 years", headers: retryAfter("1000000000"), want: 24 * time.Hour, source: hintHeader},
		{name: "exponent", headers: retryAfter("1e3")},
		{name: "hexadecimal", headers: retryAfter("0x10")},
		{name: "infinity", headers: retryAfter("Inf")},
		{name: "not a number", headers: retryAfter("NaN")},
		{name: "plus", headers: retryAfter("+5")},
		{name: "a list", headers: retryAfter("5, 7"), want: 7 * time.Second, source: hintHeader},
		{name: "a list, longest first", headers: retryAfter("3,2"), want: 3 * time.Second, source: hintHeader},
		{name: "a list with nonsense", headers: retryAfter("-9, soon, 4, 0"), want: 4 * time.Second, source: hintHeader},
		{name: "a list with a date", headers: retryAfter("5, Sun, 01 Mar 2026 12:00:30 GMT, 7"), want: 30 * time.Second, source: hintHeader},
		{name: "a list of nonsense", headers: retryAfter("-5, abc,")},
		{name: "a duration with a comma", headers: retryAfter("1 minute, 30 seconds"), want: 90 * time.Second, source: hintHeader},
		{name: "a duration with two", headers: retryAfter("1 hour, 1 minute, 30 seconds"), want: time.Hour + 90*time.Second, source: hintHeader},
		{name: "two lines, the longer last", headers: headers("Retry-After", "2", "Retry-After", "9"), want: 9 * time.Second, source: hintHeader},
		{name: "two lines, the longer first", headers: headers("Retry-After", "9", "Retry-After", "2"), want: 9 * time.Second, source: hintHeader},
		{name: "a line and a date", headers: headers("Retry-After", "2", "Retry-After", "Sun, 01 Mar 2026 12:00:30 GMT"), want: 30 * time.Second, source: hintHeader},
		{name: "two lines of milliseconds", headers: headers("Retry-After-Ms", "1500", "Retry-After-Ms", "250"), want: 1500 * time.Millisecond, source: hintHeader},
		{name: "unknown unit", headers: retryAfter("5 fortnights")},
		{name: "a digit too many for any number", headers: retryAfter(strings.Repeat("9", 400)), want: 24 * time.Hour, source: hintHeader},
		{name: "milliseconds beyond any number", headers: headers("Retry-After-Ms", strings.Repeat("9", 400)), want: 24 * time.Hour, source: hintHeader},
		{name: "a duration beyond any number", headers: retryAfter(strings.Repeat("9", 400) + "s"), want: 24 * time.Hour, source: hintHeader},
		{name: "a reset beyond any number", headers: headers("X-RateLimit-Reset", strings.Repeat("9", 400)), want: 24 * time.Hour, source: hintHeader},
		{name: "infinity with a unit", headers: retryAfter("Infs")},
		{name: "twenty-five digits", headers: retryAfter(strings.Repeat("9", 25)), want: 24 * time.Hour, source: hintHeader},
		{name: "a thousandth", headers: retryAfter("0.001"), want: time.Millisecond, source: hintHeader},
		{name: "milliseconds as decimals", headers: headers("Retry-After-Ms", "250.5"), want: 250500 * time.Microsecond, source: hintHeader},
		{name: "the second of two lines", headers: headers("Retry-After", "0", "Retry-After", "4"), want: 4 * time.Second, source: hintHeader},
		{name: "milliseconds are finer than seconds", headers: headers("Retry-After", "2", "Retry-After-Ms", "1500"), want: 1500 * time.Millisecond, source: hintHeader},
		{name: "no milliseconds, so seconds", headers: headers("Retry-After", "2", "Retry-After-Ms", "0"), want: 2 * time.Second, source: hintHeader},
		{name: "reset as a wait in seconds", headers: headers("X-RateLimit-Reset", "30"), want: 30 * time.Second, source: hintHeader},
		{name: "reset as a duration", headers: headers("X-RateLimit-Reset", "6m0s"), want: 6 * time.Minute, source: hintHeader},
		{name: "reset as an ISO instant", headers: headers("X-RateLimit-Reset", "2026-03-01T13:00:09+01:00"), want: 9 * time.Second, source: hintHeader},
		{name: "reset in the past", headers: headers("X-RateLimit-Reset", epoch(-time.Second))},
		{name: "reset with a 503", status: 503, headers: headers("X-RateLimit-Reset", epoch(90*time.Second)), want: 90 * time.Second, source: hintHeader},
		{name: "the draft's name", headers: headers("RateLimit-Reset", "12"), want: 12 * time.Second, source: hintHeader},
	})
}

func TestOfSeveralLimitsTheExhaustedOnesBlock(t *testing.T) {
	check(t, []parsed{
		{
			name: "only the exhausted one counts", want: 6 * time.Minute, source: hintHeader,
			headers: headers("X-RateLimit-Reset-Requests", "20ms", "X-RateLimit-Remaining-Requests", "59", "X-RateLimit-Reset-Tokens", "6m0s", "X-RateLimit-Remaining-Tokens", "0"),
		},
		{
			name: "of two exhausted the last to reset", want: 6 * time.Minute, source: hintHeader,
			headers: headers("X-RateLimit-Reset-Requests", "2s", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Tokens", "6m0s", "X-RateLimit-Remaining-Tokens", "0"),
		},
		{
			name:    "none exhausted: none blocks",
			headers: headers("X-RateLimit-Reset-Requests", "20s", "X-RateLimit-Remaining-Requests", "59", "X-RateLimit-Reset-Tokens", "6m0s", "X-RateLimit-Remaining-Tokens", "100"),
		},
		{
			name: "none says how much is left: the earliest", want: 20 * time.Second, source: hintHeader,
			headers: headers("X-RateLimit-Reset-Requests", "20s", "X-RateLimit-Reset-Tokens", "6m0s"),
		},
		{
			name: "limits that come with every answer explain no 503", status: 503,
			headers: headers("X-RateLimit-Reset-Requests", "20s", "X-RateLimit-Reset-Tokens", "6m0s"),
		},
		{
			name: "an exhausted one explains it", status: 503, want: 20 * time.Second, source: hintHeader,
			headers: headers("X-RateLimit-Reset-Requests", "20s", "X-RateLimit-Remaining-Requests", "0"),
		},
		{
			name: "Anthropic's", want: 45 * time.Second, source: hintHeader,
			headers: headers(
				"Anthropic-RateLimit-Requests-Reset", "2026-03-01T12:00:01Z", "Anthropic-RateLimit-Requests-Remaining", "49",
				"Anthropic-RateLimit-Input-Tokens-Reset", "2026-03-01T12:00:45Z", "Anthropic-RateLimit-Input-Tokens-Remaining", "0",
			),
		},
		{
			name: "Anthropic's by status", want: time.Hour, source: hintHeader,
			headers: headers(
				"Anthropic-RateLimit-Unified-5h-Reset", epoch(time.Hour), "Anthropic-RateLimit-Unified-5h-Status", "rejected",
				"Anthropic-RateLimit-Unified-7d-Reset", epoch(20*time.Hour), "Anthropic-RateLimit-Unified-7d-Status", "allowed",
			),
		},
		{
			name: "Retry-After goes before them", want: 3 * time.Second, source: hintHeader,
			headers: headers("Retry-After", "3", "X-RateLimit-Reset-Tokens", "6m0s", "X-RateLimit-Remaining-Tokens", "0"),
		},
		{
			name: "a Retry-After of nothing leaves it to them", want: 6 * time.Minute, source: hintHeader,
			headers: headers("Retry-After", "0", "X-RateLimit-Reset-Tokens", "6m0s", "X-RateLimit-Remaining-Tokens", "0"),
		},
		{name: "names that only look like it", headers: headers("X-RateLimit-Resettable", "9", "X-Reset", "9", "Anthropic-RateLimit-Reset-Soon", "9")},
	})
}

func TestEveryFieldOfABody(t *testing.T) {
	const retryInfo = `{"error":{"details":[{"@type":"x/ErrorInfo"},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":%s}]}}`
	delay := func(value string) string { return strings.Replace(retryInfo, "%s", value, 1) }
	check(t, []parsed{
		{name: "fraction", body: delay(`"26.660s"`), want: 26660 * time.Millisecond, source: hintRetryInfo},
		{name: "milliseconds", body: delay(`"1500ms"`), want: 1500 * time.Millisecond, source: hintRetryInfo},
		{name: "minutes", body: delay(`"3m"`), want: 3 * time.Minute, source: hintRetryInfo},
		{name: "number", body: delay(`5`), want: 5 * time.Second, source: hintRetryInfo},
		{name: "object", body: delay(`{"seconds":"5","nanos":500000000}`), want: 5500 * time.Millisecond, source: hintRetryInfo},
		{name: "up to a day", body: delay(`"23h"`), want: 23 * time.Hour, source: hintRetryInfo},
		{name: "and no more", body: delay(`"99h"`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "more seconds than a Duration holds", body: delay(`"99999999999s"`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "more digits than were ever meant", body: delay(`"9999999999999999999999s"`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "more digits than a number holds", body: delay(`"` + strings.Repeat("9", 400) + `s"`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "a number beyond any", body: delay(`1e999`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "an object beyond any number", body: delay(`{"seconds":1e999,"nanos":1}`), want: 24 * time.Hour, source: hintRetryInfo},
		{name: "a negative number beyond any", body: delay(`-1e999`)},
		{name: "infinity is no number", body: delay(`"Infs"`)},
		{name: "a field beyond any number", body: `{"error":{"retry_after":1e999}}`, want: 30 * time.Minute, source: hintBody},
		{name: "a field of milliseconds beyond any number", body: `{"retry_after_ms":1e999}`, want: 30 * time.Minute, source: hintBody},
		{name: "an instant beyond any number", body: `{"resets_at":1e999}`, want: 30 * time.Minute, source: hintBody},
		{name: "another number beyond any takes nothing away", body: `{"error":{"used":1e999,"retry_after":3}}`, want: 3 * time.Second, source: hintBody},
		{name: "two values are not one", body: `{"retry_after":3}{"retry_after":3}`},
		{name: "zero", body: delay(`"0s"`)},
		{name: "nonsense", body: delay(`"soon"`)},
		{name: "null", body: delay(`null`)},
		{name: "in Google's array", body: "[" + delay(`"8s"`) + "]", want: 8 * time.Second, source: hintRetryInfo},
		{name: "details that are no list", body: `{"error":{"details":"none"}}`},
		{name: "retryAfterMs at the root", body: `{"retryAfterMs":1200}`, want: 1200 * time.Millisecond, source: hintBody},
		{name: "retry_after_ms as text", body: `{"error":{"retry_after_ms":"45000"}}`, want: 45 * time.Second, source: hintBody},
		{name: "retryAfter as a number", body: `{"retryAfter":12}`, want: 12 * time.Second, source: hintBody},
		{name: "hours of RetryInfo", body: delay(`"2h"`), want: 2 * time.Hour, source: hintRetryInfo},
		{name: "details at the root", body: `{"details":[{"@type":"google.rpc.RetryInfo","retryDelay":"9s"}]}`, want: 9 * time.Second, source: hintRetryInfo},
		{name: "retry_after seconds", body: `{"error":{"retry_after":7.5}}`, want: 7500 * time.Millisecond, source: hintBody},
		{name: "retry_after as text", body: `{"retry_after":"7"}`, want: 7 * time.Second, source: hintBody},
		{name: "retryAfter as a date", body: `{"error":{"retryAfter":"2026-03-01T12:00:30.250Z"}}`, want: 30250 * time.Millisecond, source: hintBody},
		{name: "resets_at epoch", body: `{"error":{"type":"usage_limit_reached","resets_at":` + epoch(600*time.Second) + `}}`, want: 10 * time.Minute, source: hintBody},
		{name: "resets_in_seconds", body: `{"error":{"resets_in_seconds":600}}`, want: 10 * time.Minute, source: hintBody},
		{name: "30 minutes at most", body: `{"retry_after":86400}`, want: 30 * time.Minute, source: hintBody},
		{name: "negative", body: `{"retry_after":-3,"retry_after_ms":-1}`},
		{name: "the next field is asked", body: `{"retry_after_ms":0,"retry_after":"abc","reset_at":"2026-03-01T12:00:05Z"}`, want: 5 * time.Second, source: hintBody},
		{name: "an aggregator's upstream", body: `{"error":{"metadata":{"headers":{"X-RateLimit-Reset":"` + epoch(15*time.Second) + `000"}}}}`, want: 15 * time.Second, source: hintBody},
		{name: "a header goes first", headers: retryAfter("2"), body: `{"retry_after":9}`, want: 2 * time.Second, source: hintHeader},
		{name: "a header of nothing does not", headers: retryAfter("-1"), body: `{"retry_after":9}`, want: 9 * time.Second, source: hintBody},
		{name: "truncated JSON is text", body: `{"error":{"message":"please retry in 4s","x":"`, want: 4 * time.Second, source: hintBody},
		{name: "with a 503", status: 503, body: `{"retry_after":1800}`, want: 5 * time.Minute, source: hintBody},
	})
}

// The known vectors of hours and days are among them; the design believes prose for half an hour.
func TestEveryWordingOfAMessage(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
	}{
		{"Rate limit reached. Please try again in 26.66s.", 26660 * time.Millisecond},
		{"please retry in 26.66s", 26660 * time.Millisecond},
		{"Please try again in 898ms. Visit our page", 898 * time.Millisecond},
		{"Please try again in 6m0s", 6 * time.Minute},
		{"Retry after 20 seconds", 20 * time.Second},
		{"please wait 45 seconds before you go on", 45 * time.Second},
		{"Please wait for 1 minute and 30 seconds", 90 * time.Second},
		{"Please wait about 1 hour, 2 minutes", 30 * time.Minute},
		{"Your quota will reset after 14m9s", 849 * time.Second},
		{"Your quota will reset after 2h30m14s", 30 * time.Minute},
		{"reset after 30s", 30 * time.Second},
		{"Resets in 2h7m23s", 30 * time.Minute},
		{"Resets in 164h27m24s", 30 * time.Minute},
		{"Resets in 2400h", 30 * time.Minute},
		{"Resets in 999999h", 30 * time.Minute},
		{"Resets in 1 day", 30 * time.Minute},
		{"will reset after 45m", 30 * time.Minute},
		{"Reset in 45m", 30 * time.Minute},
		{"Retry-After: 20 seconds", 20 * time.Second},
		{"try again in about 2 minutes", 2 * time.Minute},
		{"please wait another 10 seconds", 10 * time.Second},
		{"retry in 5 s, or in 7 s", 5 * time.Second},
		{"the preset 30s is no reset30s", 0},
		{"Reset in 5m", 5 * time.Minute},
		{"Resets in 3 days", 30 * time.Minute},
		{"resets in 999999999999999999h", 30 * time.Minute},
		{"retry in " + strings.Repeat("9", 400) + "s", 30 * time.Minute}, // longer than any number
		{"retry in NaNs", 0},
		{"try again at 2026-03-01T12:00:20Z", 20 * time.Second},
		{"try again at 2026-03-01 12:00:20.5", 20500 * time.Millisecond},
		{"wait until 2026-03-01 12:01", time.Minute},
		{"Blocked until 2026-03-01T12:01:00Z.", time.Minute},
		{"available at 2026-03-01T14:10:00+0200", 10 * time.Minute},
		{"retry after 2026-03-01T07:10:00-05:00", 10 * time.Minute},
		{"quota resets at 2026-03-01 12:10 UTC", 10 * time.Minute},
		{"Limit resets at 03-01 12:10:30 UTC", 630 * time.Second},
		{"resets at 03-01 11:10", 30 * time.Minute}, // next year
		{"try again at 2026-03-01T11:00:00Z", 0},
		{"try again at 2026-13-41T25:00:00Z", 0},
		{"retry in 30", 0}, // of what?
		{"try again in a moment", 0},
		{"try again tomorrow", 0},
		{"No reset metadata", 0},
		{"you sent 30 seconds of audio", 0},
		{"", 0},
	} {
		t.Run(c.text, func(t *testing.T) {
			source := hintBody
			if c.want == 0 {
				source = hintNone
			}
			quoted, err := json.Marshal(c.text)
			require.NoError(t, err)
			for _, sent := range []string{`{"error":{"message":` + string(quoted) + `}}`, `{"error":` + string(quoted) + `}`, c.text} {
				wait, from := hintIn(429, nil, []byte(sent), noon)
				require.Equal(t, c.want, wait, sent)
				require.Equal(t, source, from, sent)
			}
		})
	}
}

func TestSecondsSaturate(t *testing.T) {
	require.Equal(t, time.Duration(math.MaxInt64), seconds(math.Inf(1)))
	require.Equal(t, time.Duration(math.MaxInt64), seconds(1e300))
	require.Zero(t, seconds(math.NaN()))
	require.Zero(t, seconds(-1))
}

// hintIn finds the hint of a whole answer.
func hintIn(status int, h http.Header, body []byte, now time.Time) (time.Duration, hintSource) {
	root := object(body)
	var e upstreamError
	e.parse(root)
	wait, _, source := hintOf(status, h, root, prose(&e, root, body), now)
	return wait, source
}

func FuzzHint(f *testing.F) {
	f.Add(429, "Retry-After", "2", "")
	f.Add(429, "Retry-After", "Sun, 01 Mar 2026 12:00:30 GMT", "")
	f.Add(503, "Retry-After", "9999999999", "{}")
	f.Add(429, "X-RateLimit-Reset-Tokens", "6m0s", "")
	f.Add(429, "Anthropic-RateLimit-Requests-Reset", "2026-03-01T12:00:01Z", "")
	f.Add(429, "Retry-After-Ms", "1500", `[{"error":{"code":429}}]`)
	f.Add(429, "X", "", `{"error":{"details":[{"@type":"x.RetryInfo","retryDelay":{"seconds":1e300}}],"metadata":{"headers":{"retry-after":"3"}}}}`)
	f.Add(429, "X", "", "please try again in 1h 2m and 3.5 seconds, resets at 12-31 23:59:59 or wait until 9999-12-31T23:59:59Z")
	f.Add(500, "X", "", `{"retry_after":1e308,"retry_after_ms":-0.0,"resets_at":99999999999999}`)
	f.Fuzz(func(t *testing.T, status int, name, value, body string) {
		h := http.Header{}
		h.Add(name, value)
		wait, source := hintIn(status, h, []byte(body), noon)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.Equal(t, wait == 0, source == hintNone)
		require.LessOrEqual(t, wait, declaredCap)
		if source == hintBody {
			require.LessOrEqual(t, wait, proseCap)
		}
		if status >= 500 {
			require.LessOrEqual(t, wait, serverErrorCap)
		}
	})
}
