package failure

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limit is one whose other fields are unknown.
func limit(name string, with func(*Limit)) Limit {
	l := Limit{Name: name, Remaining: -1, Left: -1, Length: lengthOf(name)}
	with(&l)
	return l
}

func TestLimitsAreReadInEveryFormThatProvidersWriteThem(t *testing.T) {
	in := func(d time.Duration) time.Time { return noon.Add(d) }
	for name, test := range map[string]struct {
		headers []string
		want    []Limit
	}{
		"by dimension": {
			[]string{
				"x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", "499", "x-ratelimit-reset-requests", "120ms",
				"x-ratelimit-limit-tokens", "30000", "x-ratelimit-remaining-tokens", "0", "x-ratelimit-reset-tokens", "6m0s",
			},
			[]Limit{
				limit("requests", func(l *Limit) {
					l.Limit, l.Remaining, l.Left, l.Reset = 500, 499, 0.998, in(120*time.Millisecond)
				}),
				limit("tokens", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Reset = 30000, 0, 0, in(6*time.Minute) }),
			},
		},
		"by dimension and window": {
			[]string{"x-ratelimit-limit-tokens-day", "1000000", "x-ratelimit-remaining-tokens-day", "250000", "x-ratelimit-remaining-req-minute", "0"},
			[]Limit{
				limit("req-minute", func(l *Limit) { l.Remaining, l.Left, l.Length = 0, 0, time.Minute }),
				limit("tokens-day", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Length = 1e6, 250e3, 0.25, 24*time.Hour }),
			},
		},
		"of everything": {
			[]string{"x-ratelimit-limit", "200", "x-ratelimit-remaining", "50", "x-ratelimit-reset", "1772366430"},
			[]Limit{limit("", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Reset = 200, 50, 0.25, time.Unix(1772366430, 0) })},
		},
		"Anthropic's": {
			[]string{
				"anthropic-ratelimit-input-tokens-limit", "40000", "anthropic-ratelimit-input-tokens-remaining", "10000",
				"anthropic-ratelimit-input-tokens-reset", noon.Add(time.Minute).Format(time.RFC3339),
			},
			[]Limit{limit("input-tokens", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Reset = 40000, 10000, 0.25, in(time.Minute) })},
		},
		"Anthropic's of subscriptions": {
			[]string{
				"anthropic-ratelimit-unified-status", "allowed", "anthropic-ratelimit-unified-5h-utilization", "0.75",
				"anthropic-ratelimit-unified-5h-reset", "1772370000", "anthropic-ratelimit-unified-7d-status", "rejected",
				"anthropic-ratelimit-unified-overage-status", "rejected", "anthropic-ratelimit-unified-representative-claim", "five_hour",
			},
			[]Limit{
				limit("5h", func(l *Limit) { l.Left, l.Length, l.Reset = 0.25, 5*time.Hour, time.Unix(1772370000, 0) }),
				limit("7d", func(l *Limit) { l.Left, l.Length = 0, 7*24*time.Hour }),
			},
		},
		"codex": {
			[]string{
				"x-codex-primary-used-percent", "40", "x-codex-primary-window-minutes", "300", "x-codex-primary-reset-after-seconds", "3600",
				"x-codex-secondary-used-percent", "130.5", "x-codex-secondary-window-minutes", "10080", "x-codex-credits-balance", "3",
				"x-codex-primary-over-secondary-limit-percent", "12",
			},
			[]Limit{
				limit("primary", func(l *Limit) { l.Left, l.Length, l.Reset = 0.6, 5*time.Hour, in(time.Hour) }),
				limit("secondary", func(l *Limit) { l.Left, l.Length = 0, 7*24*time.Hour }),
			},
		},
		"the draft": {
			[]string{"ratelimit", `"burst";r=5;t=30, "daily" ; r=0`, "ratelimit-policy", `"burst";q=10;w=60,"daily";q=1000;w=86400`},
			[]Limit{
				limit("burst", func(l *Limit) {
					l.Limit, l.Remaining, l.Left, l.Length, l.Reset = 10, 5, 0.5, time.Minute, in(30*time.Second)
				}),
				limit("daily", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Length = 1000, 0, 0, 24*time.Hour }),
			},
		},
		"older drafts": {
			[]string{"ratelimit", "limit=100, remaining=80, reset=5", "ratelimit-policy", "100;w=60"},
			[]Limit{limit("", func(l *Limit) {
				l.Limit, l.Remaining, l.Left, l.Length, l.Reset = 100, 80, 0.8, time.Minute, in(5*time.Second)
			})},
		},
		"the oldest draft": {
			[]string{"ratelimit-limit", "100, 100;w=60", "ratelimit-remaining", "80", "ratelimit-reset", "5"},
			[]Limit{limit("", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Reset = 100, 80, 0.8, in(5*time.Second) })},
		},
		"nothing": {[]string{"content-type", "application/json", "retry-after", "5"}, nil},
		"nonsense": {
			[]string{
				"x-ratelimit-limit-requests", "many", "x-ratelimit-remaining-requests", "-5", "x-ratelimit-reset-requests", "0",
				"x-ratelimit-remaining-<script>", "5", "x-ratelimit-remaining-" + strings.Repeat("a", 100), "5", "ratelimit", ";;=,=",
				"x-codex-primary-window-minutes", "300",
			},
			[]Limit{},
		},
		"absurd numbers": {
			[]string{"x-ratelimit-remaining", strings.Repeat("9", 400), "x-ratelimit-limit", "1", "x-ratelimit-reset", strings.Repeat("9", 30)},
			[]Limit{limit("", func(l *Limit) { l.Limit, l.Remaining, l.Left, l.Reset = 1, mostUnits, 1, in(longestWindow) })},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for i := 0; i < len(test.headers); i += 2 {
				h.Set(test.headers[i], test.headers[i+1])
			}
			got := Limits(h, noon)
			require.Len(t, got, len(test.want), "%+v", got)
			for i, want := range test.want {
				require.WithinDuration(t, want.Reset, got[i].Reset, 0)
				want.Reset = got[i].Reset
				require.Equal(t, want, got[i])
			}
		})
	}
}

func TestNoMoreLimitsAreReadThanTheBound(t *testing.T) {
	h := http.Header{}
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		h.Set("x-ratelimit-remaining-"+string(c), "1")
	}
	require.Len(t, Limits(h, noon), maxLimits)
}

func TestAnAnswerWithoutLimitsCostsNoAllocation(t *testing.T) {
	h := headers("Content-Type", "text/event-stream", "Date", "Sun, 01 Mar 2026 12:00:00 GMT", "X-Request-Id", "req_1", "Server", "x")
	require.Zero(t, testing.AllocsPerRun(100, func() { Limits(h, noon) }))
}

func FuzzLimitsAreLimitsWhateverIsWritten(f *testing.F) {
	f.Add("x-ratelimit-remaining-requests", "5", "ratelimit", `"a";r=1;t=2`)
	f.Add("anthropic-ratelimit-unified-5h-utilization", "0.5", "x-codex-primary-used-percent", "1e5")
	f.Add("ratelimit-policy", "100;w=60", "x-ratelimit-reset", "2026-03-01T12:00:00Z")
	f.Fuzz(func(t *testing.T, a, x, b, y string) {
		h := http.Header{}
		h.Set(a, x)
		h.Add(b, y)
		for _, l := range Limits(h, noon) {
			require.True(t, l.Left == -1 || l.Left >= 0 && l.Left <= 1, "%+v", l)
			require.True(t, l.Remaining == -1 || l.Remaining >= 0 && l.Remaining <= mostUnits, "%+v", l)
			require.True(t, l.Limit >= 0 && l.Limit <= mostUnits, "%+v", l)
			require.True(t, l.Length >= 0 && l.Length <= longestWindow, "%+v", l)
			require.True(t, l.Reset.IsZero() || l.Reset.After(noon) && !l.Reset.After(noon.Add(longestWindow)), "%+v", l)
			require.LessOrEqual(t, len(l.Name), maxNamed)
		}
	})
}

func BenchmarkLimits(b *testing.B) {
	none := headers("Content-Type", "text/event-stream", "Date", "Sun, 01 Mar 2026 12:00:00 GMT", "X-Request-Id", "req_1", "Server", "x",
		"Cf-Ray", "1", "Vary", "Accept", "Alt-Svc", "h3", "Strict-Transport-Security", "x", "Cache-Control", "no-cache")
	six := none.Clone()
	for _, name := range []string{"Limit-Requests", "Remaining-Requests", "Reset-Requests", "Limit-Tokens", "Remaining-Tokens", "Reset-Tokens"} {
		six.Set("X-Ratelimit-"+name, "5")
	}
	for name, h := range map[string]http.Header{"none": none, "six": six} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Limits(h, noon)
			}
		})
	}
}
