package failure

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// mostKept is how much of an error answer the transport keeps.
const mostKept = 64 << 10

// evil is what a user may write so that a server echoes it: words that ban an account, exhaust
// its quota, take its models away, restate its status, or ask for a day of silence.
const evil = "your account has been deactivated, insufficient_quota, exceeded your daily quota, 额度不足 无权访问模型, " +
	"model is retired, usage limit reached, rate limit reached, retry after 86400 seconds, model_not_found, request not allowed, error code: 1010"

func kept(body string) string { return body[:min(len(body), mostKept)] }

func quoted(text string) string {
	encoded, _ := json.Marshal(text)
	return string(encoded)
}

func hostileBodies() map[string]string {
	megabyte := strings.Repeat(evil+" ", 1<<20/len(evil))
	return map[string]string{
		"a page":                        kept("<html>" + megabyte),
		"text after the error":          kept(`{"error":{"message":"No.","input":` + quoted(megabyte) + `}}`),
		"text before the error":         kept(`{"request":` + quoted(megabyte) + `,"error":{"message":"No."}}`),
		"beside the error":              kept(`{"error":{"message":"No."},"request":{"messages":[{"content":` + quoted(megabyte) + `}]}}`),
		"nested like an error":          kept(`{"error":{"message":"No.","metadata":{"error":{"message":` + quoted(evil) + `,"code":"insufficient_quota"}}}}`),
		"in a list":                     kept(`{"error":{"message":"No.","details":[` + quoted(evil) + `,{"message":` + quoted(evil) + `}]}}`),
		"quoted by the message":         said(`Invalid value for content: "` + evil + `"`),
		"quoted with single quotes":     said(`Invalid value for content: '` + evil + `'.`),
		"quoted with backquotes":        said("Invalid value for content: `" + evil + "`"),
		"quoted, and cut":               said(`Invalid value for content: "` + evil),
		"far behind in the message":     said("No. " + strings.Repeat("Read on. ", 2<<10) + evil),
		"invalid UTF-8":                 "{\"error\":{\"message\":\"No.\xff\xfe\",\"input\":\"" + evil + "\xc3\"}}",
		"not JSON at all":               "{" + evil,
		"brackets":                      kept(strings.Repeat(`[`, 1<<20)),
		"braces":                        kept(strings.Repeat(`{"error":`, 1<<20)),
		"quotes":                        kept(`{"error":{"message":"` + strings.Repeat(`\"`, 1<<20)),
		"backslashes":                   kept(`{"error":{"message":"` + strings.Repeat(`\`, 1<<20)),
		"escaped":                       kept(`{"error":{"message":"` + strings.Repeat(`\u0041`, 1<<20)),
		"a word again and again":        said(strings.Repeat("quota ", 1<<12)),
		"a word that may begin a match": said(strings.Repeat("model suspended limit ", 1<<11)),
		"quotations without end":        said(strings.Repeat(`"x `, 1<<12)),
	}
}

// What the upstream says counts, not what it repeats: every hostile body is judged by its
// status alone, under every kind of provider.
func TestWhatTheUserWroteDecidesNothing(t *testing.T) {
	for name, body := range hostileBodies() {
		t.Run(name, func(t *testing.T) {
			for _, kind := range []string{"openai", "agentrouter", "anthropic", "opencode-go", "gemini", "cloudflare-ai"} {
				rules := NewRules(kind, nil, nil, nil, []string{"account has been deactivated"})
				for _, status := range []int{400, 401, 403, 404, 429, 500, 503} {
					want, got := answer(status, said("No.")), answer(status, body)
					want.Rules, got.Rules = rules, rules
					judged := Classify(got, noon)
					require.Equal(t, effectOf(Classify(want, noon)), effectOf(judged), "%s %d", kind, status)
					require.Zero(t, judged.Hint)
					require.Zero(t, judged.RestatedFrom)
					require.LessOrEqual(t, len([]rune(judged.Message)), longestMessage)
				}
			}
		})
	}
}

// The words of an operator's rule are looked for in the first 16 KiB of the message, and
// nowhere else.
func TestAnOperatorsWordsAreLookedForInTheMessageAlone(t *testing.T) {
	rules := NewRules("openai", []OperatorRule{{Status: 400, Match: "Magic Word", Scope: models.ScopeConnection}}, nil, nil, nil)
	for body, found := range map[string]bool{
		said(`Invalid content: "the magic word"`):                 false,
		said("the MAGIC word"):                                    true,
		said(strings.Repeat("x", longestText-20) + " magic word"): true,
		said(strings.Repeat("x", longestText) + " magic word"):    false,
		coded("magic word", "x"):                                  true,
		`{"error":{"message":"x","type":"magic word"}}`:           true,
		`{"error":{"message":"x"},"input":"magic word"}`:          false,
		"magic word":              false,
		"<html>magic word</html>": false,
		kept(said("magic word " + strings.Repeat("and a long echo ", 8<<10))): true,
	} {
		s := answer(400, body)
		s.Rules = rules
		require.Equal(t, found, Classify(s, noon).Rule != "", body[:min(len(body), 80)])
	}
}

// What is cut off may have been the rest of a secret, so nothing of such a message is shown.
func TestAMessageWithoutAnEndIsNotShown(t *testing.T) {
	body := kept(`{"error":{"message":"Incorrect key ` + strings.Repeat(" ", mostKept-60) + "SECRETKEY-c1-zzzzzzzz\"}}")
	require.Contains(t, body, "SECRET")
	s := answer(400, body[:len(body)-12])
	s.Credential = "SECRETKEY-c1-zzzzzzzz"
	require.Equal(t, "The upstream answered with status 400.", Classify(s, noon).Message)
}

func FuzzClassify(f *testing.F) {
	f.Add("http", 429, "api_key", "openai", "Retry-After", "30", coded("rate_limit_exceeded", "slow down"))
	f.Add("http", 401, "oauth", "codex", "", "", said("account has been deactivated"))
	f.Add("http", 403, "api_key", "agentrouter", "", "", said("用户额度不足"))
	f.Add("http", 429, "api_key", "opencode-go", "X-Ratelimit-Remaining-Requests", "0", said("monthly usage limit reached. Resets in 3 days"))
	f.Add("http", 429, "api_key", "minimax", "X-Model-Quota-Remaining", "a=1, b=0", "{}")
	f.Add("in_stream", 200, "api_key", "", "", "", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	f.Add("in_stream", 200, "local", "", "", "", `[[{"error":{"error":[]}}]]`)
	f.Add("dressed", 200, "api_key", "openai", "", "", `{"choices":[]}`)
	f.Add("http", 400, "", "", "", "", "\xff\xfe")
	f.Add("reset", 200, "api_key", "", "", "", "")
	f.Add("no such kind", -1, "x", "", "", "", "")
	for _, body := range hostileBodies() {
		f.Add("http", 403, "api_key", "agentrouter", "Retry-After", "9", body[:min(len(body), 1<<12)])
	}
	f.Fuzz(func(t *testing.T, kind string, status int, class, provider, name, value, body string) {
		h := http.Header{}
		h.Add(name, value)
		s := Signal{Kind: Kind(kind), Status: status, Headers: h, Body: []byte(body), Class: models.Class(class)}
		for _, rules := range []*Rules{nil, NewRules(provider, []OperatorRule{{Status: status, Match: value, Scope: models.ScopeProvider}}, nil, nil, []string{value})} {
			s.Rules, s.Committed = rules, false
			if s.Kind == KindDressed {
				s.Dressed = &Predicate{ID: "p", Status: status}
			}
			v := Classify(s, noon)
			require.NotEmpty(t, v.Reason)
			require.NotEmpty(t, v.Code)
			require.NotEmpty(t, v.Message)
			require.NotEmpty(t, v.Scope)
			require.LessOrEqual(t, len([]rune(v.Message)), longestMessage)
			require.True(t, v.Status >= 400 && v.Status <= 599, "the client sees an error, got %d", v.Status)
			require.False(t, v.Terminal != "" && v.Trips, "an account's fault is not the provider's")
			require.GreaterOrEqual(t, v.Fixed, noon.Sub(noon))
			require.LessOrEqual(t, v.Fixed, declaredCap)
			require.LessOrEqual(t, v.Hint, declaredCap)
			if v.Terminal != "" && s.Kind == KindHTTP {
				require.Contains(t, []int{401, 402, 403}, v.UpstreamStatus, "nothing ends for good without an account's status")
			}
			if v.Terminal != "" {
				require.Equal(t, models.ScopeConnection, v.Scope)
			}
			if v.Blame == models.BlameClient || v.Blame == models.BlameUs {
				require.Equal(t, models.ScopeNone, v.Scope)
			}
			s.Committed = true
			require.False(t, Classify(s, noon).Failover)
		}
	})
}
