package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

// plainKey is a provider's key that no pattern of secrets would recognize.
const plainKey = "SECRETKEY-c1-zzzzzzzz"

// withPlainKey scripts c1, whose key is now plainKey; c2 and c3 are out of the way.
func (w *world) withPlainKey(handler http.HandlerFunc) {
	w.health.snapshot.Connections["c1"].APIKey = catalog.NewSecret(plainKey)
	w.health.snapshot.Connections["c2"].Disabled = true
	w.health.snapshot.Connections["c3"].Disabled = true
	w.script("Bearer "+plainKey, handler)
}

func saying(message string) string {
	encoded, _ := json.Marshal(message)
	return fmt.Sprintf(`{"error":{"message":%s,"type":"x","code":"y"}}`, encoded)
}

func TestTheProvidersKeyReachesNoClientInWhateverTheUpstreamSays(t *testing.T) {
	const told = "bad param key " + plainKey
	cases := map[string]struct {
		script http.HandlerFunc
		stream bool
		status int
		shown  string
	}{
		"400":                              {refuse(400, saying(told)), false, 400, "bad param key [redacted]"},
		"400 to a stream":                  {refuse(400, saying(told)), true, 400, "bad param key [redacted]"},
		"429":                              {refuse(429, saying(told)), false, 429, "bad param key [redacted]"},
		"500":                              {refuse(500, saying(told)), false, 502, "bad param key [redacted]"},
		"404":                              {refuse(404, saying(told)), false, 404, "bad param key [redacted]"},
		"an error with status 200":         {refuse(200, saying(told)), false, 502, "bad param key [redacted]"},
		"that, to a stream":                {refuse(200, saying(told)), true, 502, "bad param key [redacted]"},
		"an error event before any token":  {cut(0, true, saying(told)), true, 502, "bad param key [redacted]"},
		"an error event among the tokens":  {cut(2, true, saying(told)), true, 200, "bad param key [redacted]"},
		"the client's mistake in a stream": {cut(2, true, strings.Replace(saying(told), `"y"`, `"invalid_prompt"`, 1)), true, 200, "bad param key [redacted]"},
		"across the limit of a message":    {refuse(400, saying(strings.Repeat("x ", 245)+plainKey+strings.Repeat(" tail", 50))), false, 400, strings.Repeat("x ", 245) + "[redacted"},
		"in code, param and type":          {refuse(400, fmt.Sprintf(`{"error":{"message":"m","type":%q,"param":%q,"code":%q}}`, plainKey, plainKey, plainKey)), false, 400, "m"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.withPlainKey(c.script)
				got := w.chat("p/m", c.stream)
				require.Equal(t, c.status, got.status)
				p := problem{}
				if got.status == http.StatusOK {
					p = got.lastError(t)
				} else {
					p = got.problem(t)
				}
				require.True(t, strings.HasPrefix(p.Error.Message, c.shown), p.Error.Message)
				require.NotContains(t, got.body, "SECRET")
				require.NotContains(t, fmt.Sprint(got.header), "SECRET")
				require.Len(t, w.attempts(), 1)
			})
		})
	}
}

const tooLong = `{"error":{"message":"This model's maximum context length is 8192 tokens","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`

func TestTheClientsMistakeIsNamedAsTheUpstreamNamesIt(t *testing.T) {
	cases := map[string]struct {
		body              string
		code, param, kind string
	}{
		"all of it":       {tooLong, "context_length_exceeded", "messages", "invalid_request_error"},
		"another type":    {`{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}`, "upstream_rejected", "", "BadRequestError"},
		"nothing":         {`{}`, "upstream_rejected", "", "invalid_request_error"},
		"not for clients": {`{"error":{"message":"m","code":"` + strings.Repeat("long_", 21) + `","param":"é","type":7}}`, "upstream_rejected", "", "invalid_request_error"},
		"a code of ours":  {`{"error":{"message":"m","code":"all_accounts_inactive"}}`, "all_accounts_inactive", "", "invalid_request_error"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", refuse(400, c.body))
				got := w.chat("best", false)
				require.Equal(t, 400, got.status)
				p := got.problem(t)
				param := ""
				if p.Error.Param != nil {
					param = *p.Error.Param
					require.NotEmpty(t, param, "none is null")
				}
				require.Equal(t, []string{c.code, c.param, c.kind}, []string{p.Error.Code, param, p.Error.Type})
				require.Equal(t, "upstream_rejected", p.Diagnostics.TerminalReason, "what the gateway itself goes by")
				require.Equal(t, "fix-request", p.Diagnostics.Recovery.Action)
			})
		})
	}
	t.Run("in a stream", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.script("c1", cut(2, true, tooLong))
			p := w.chat("p/m", true).lastError(t)
			require.Equal(t, "context_length_exceeded", p.Error.Code)
			require.Equal(t, "messages", *p.Error.Param)
		})
	})
	t.Run("but what is not the client's stays the gateway's", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.withPlainKey(refuse(401, `{"error":{"message":"m","type":"authentication_error","param":"key","code":"invalid_api_key"}}`))
			p := w.chat("p/m", false).problem(t)
			require.Equal(t, "all_accounts_inactive", p.Error.Code)
			require.Equal(t, "service_unavailable", p.Error.Type)
			require.Nil(t, p.Error.Param)
		})
	})
}

func TestARequestThatIsTooLongIsToldToShortenOrToGrow(t *testing.T) {
	const advice = "Shorten the request or call a model with a larger context window."
	for name, c := range map[string]struct {
		script http.HandlerFunc
		advice string
	}{
		"by code":   {refuse(400, tooLong), advice},
		"by words":  {refuse(400, `{"message":"prompt is too long: 9 tokens > 8 maximum"}`), advice},
		"by status": {refuse(413, ``), advice},
		"neither":   {refuse(422, `{"error":{"message":"bad tool"}}`), "Change the request; the same one will be refused again."},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", c.script)
				got := w.chat("best", false).problem(t)
				require.Equal(t, c.advice, got.Diagnostics.Recovery.NextStep)
				require.Equal(t, "fix-request", got.Diagnostics.Recovery.Action)
				require.Equal(t, []models.ConnectionID{"c1"}, w.attempts())
			})
		})
	}
}

func TestWheneverATimerIsKnownTheAnswerSaysWhenToComeBack(t *testing.T) {
	tooBig := func(w http.ResponseWriter, _ *http.Request) {
		openStream(w)
		say(w, fmt.Sprintf(`{"choices":[{"index":0,"delta":{"content":%q}}]}`, strings.Repeat("x", 9<<10)))
	}
	for name, c := range map[string]struct {
		script     http.HandlerFunc
		status     int
		retryAfter string
	}{
		"429":                               {refuse(429, `{}`, "Retry-After", "30"), 429, "30"},
		"500":                               {refuse(500, `{}`), 502, "3"},
		"502 with its own wait":             {refuse(502, `{}`, "Retry-After", "17"), 502, "17"},
		"503":                               {refuse(503, `{}`), 503, "3"},
		"504":                               {refuse(504, `{}`), 504, "3"},
		"no headers":                        {hang, 504, "3"},
		"a broken connection":               {cut(0, false), 502, "3"},
		"an event too big puts nothing out": {tooBig, 502, ""},
		"the client's mistake":              {refuse(400, `{}`), 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				small := int64(8 << 10)
				w.health.snapshot.Settings.Limits.MaxEventBytes = &small
				w.withPlainKey(c.script)
				got := w.chat("p/m", true)
				require.Equal(t, c.status, got.status)
				require.Equal(t, c.retryAfter, got.header.Get("Retry-After"))
				next := got.problem(t).Diagnostics.Recovery
				require.Equal(t, c.retryAfter != "", next.Action == "wait")
				require.Equal(t, c.retryAfter != "", next.Seconds > 0)
			})
		})
	}
	t.Run("the first of several", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.script("c1", refuse(503, `{}`, "Retry-After", "40"))
			w.script("d1", refuse(500, `{}`, "Retry-After", "90"))
			started := time.Now()
			got := w.chat("best", false)
			require.Equal(t, 502, got.status)
			require.Equal(t, "40", got.header.Get("Retry-After"))
			require.Less(t, time.Since(started), time.Second)
		})
	})
}
