package failure

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// plain is a key that looks like nothing: no prefix, no mixture of characters.
const plain = "SECRETKEY-c1-zzzzzzzz"

func sent(with Credential, status int, body string) Verdict {
	s := answer(status, body)
	s.Credential = with
	return Classify(s, noon)
}

func TestTheCredentialIsKeptOutOfWhatAClientIsShown(t *testing.T) {
	const odd = "s3/cr t+key=&end"
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		with        Credential
		said, shown string
	}{
		{plain, "bad param key SECRETKEY-c1-zzzzzzzz", "bad param key [redacted]"},
		{plain, "SECRETKEY-c1-zzzzzzzzSECRETKEY-c1-zzzzzzzz", "[redacted][redacted]"},
		{plain, "x" + plain + "y", "x[redacted]y"},
		{plain, "in base64 " + b64([]byte(plain)) + ".", "in base64 [redacted]."},
		{"aaaa-bbbb-cccc!", "unpadded " + strings.TrimRight(b64([]byte("aaaa-bbbb-cccc!")), "=") + ".", "unpadded [redacted]."},
		{odd, "in a URL " + url.QueryEscape(odd) + ".", "in a URL [redacted]."},
		{odd, "in a path " + url.PathEscape(odd) + ".", "in a path [redacted]."},
		{odd, "in small letters " + strings.NewReplacer("%2F", "%2f", "%3D", "%3d", "%2B", "%2b").Replace(url.QueryEscape(odd)) + ".", "in small letters [redacted]."},
		{"cat", "the category of cat is concat, cat-like", "the category of [redacted] is concat, cat-like"},
		{"cat", "cat cat,cat", "[redacted] [redacted],[redacted]"},
		{"", "nothing was sent", "nothing was sent"},
	} {
		require.Equal(t, c.shown, sent(c.with, 400, said(c.said)).Message, c.said)
		require.Equal(t, c.shown, sent(c.with, 429, said(c.said)).Message, c.said)
		inside := Signal{Kind: KindInStream, Status: 200, Body: []byte(said(c.said)), Credential: c.with, Committed: true}
		require.Equal(t, c.shown, Classify(inside, noon).Message, c.said)
	}
}

func TestTheCredentialIsFoundAnywhereInsideBase64(t *testing.T) {
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 4 {
			for after := range 4 {
				whole := encoding.EncodeToString([]byte("user"[:before] + plain + "tail"[:after]))
				shown := sent(plain, 400, said("header "+whole)).Message
				require.Contains(t, shown, redacted)
				others := (before*8+5)/6 + len(whole) - (before+len(plain))*8/6 // letters that are not the credential's alone
				require.LessOrEqual(t, len(shown)-len("header "+redacted), others, shown)
			}
		}
	}
}

func TestNoCutLeavesAPieceOfTheCredential(t *testing.T) {
	for _, limit := range []int{longestMessage, longestText} {
		for at := limit - len(plain) - 2; at <= limit+2; at++ {
			for _, filler := range []string{"x ", " ", "\n", "é "} {
				text := strings.Repeat(filler, at)
				text = text[:at-1] + " " + plain + " " + plain + strings.Repeat(" tail", 40)
				encoded, err := json.Marshal(map[string]any{"error": map[string]any{"message": strings.ToValidUTF8(text, "")}})
				require.NoError(t, err)
				message := sent(plain, 400, string(encoded)).Message
				require.NotContains(t, message, "SECR")
				require.NotContains(t, message, "zzz")
				require.LessOrEqual(t, len([]rune(message)), longestMessage)
			}
		}
	}
}

func TestTheCredentialDecidesNothing(t *testing.T) {
	body := said("unknown model, quota exceeded")
	for _, with := range []Credential{"model", "quota exceeded", "unknown"} {
		require.Equal(t, effectOf(sent("", 400, body)), effectOf(sent(with, 400, body)))
	}
}

func TestACredentialIsNeverPrinted(t *testing.T) {
	s := Signal{Credential: plain}
	encoded, err := json.Marshal(s)
	require.NoError(t, err)
	for _, printed := range []string{fmt.Sprint(s), fmt.Sprintf("%+v %#v %s %q %x", s, s, s.Credential, s.Credential, s.Credential), string(encoded)} {
		require.NotContains(t, printed, "SECRET")
		require.NotContains(t, printed, "534543")
	}
}

func TestTheUpstreamsOwnNamesOfTheClientsMistakeArePassedOn(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   Names
	}{
		"OpenAI's": {
			400, `{"error":{"message":"maximum context length is 8192","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`,
			Names{"context_length_exceeded", "messages", "invalid_request_error"},
		},
		"Anthropic's":                 {400, `{"type":"error","error":{"type":"invalid_request_error","message":"m"}}`, Names{Type: "invalid_request_error"}},
		"a server that imitates them": {422, `{"object":"error","message":"m","type":"BadRequestError","param":null,"code":422}`, Names{Type: "BadRequestError"}},
		"a status written as text":    {400, `{"error":{"message":"m","code":"400"}}`, Names{}},
		"upper case stays":            {400, `{"error":{"message":"m","code":"DataInspectionFailed"}}`, Names{Code: "DataInspectionFailed"}},
		"numbers, lists and objects":  {400, `{"error":{"message":"m","code":7,"param":["a"],"type":{}}}`, Names{}},
		"a hundred characters":        {400, `{"error":{"param":"` + strings.Repeat("p.", 50) + `"}}`, Names{Param: strings.Repeat("p.", 50)}},
		"more":                        {400, `{"error":{"param":"` + strings.Repeat("p.", 50) + `p"}}`, Names{}},
		"not ASCII":                   {400, `{"error":{"code":"é","type":"\u0001","param":"a\nb"}}`, Names{}},
		"the credential":              {400, `{"error":{"code":"SECRETKEY-c1-zzzzzzzz","type":"x SECRETKEY-c1-zzzzzzzz","param":"[SECRETKEY-c1-zzzzzzzz]"}}`, Names{"[redacted]", "[[redacted]]", "x [redacted]"}},
		"an id":                       {400, `{"error":{"param":"jane@example.com"}}`, Names{Param: "[masked]"}},
		"not the client's: 429":       {429, `{"error":{"code":"slow_down","param":"x","type":"y"}}`, Names{}},
		"not the client's: 500":       {500, `{"error":{"code":"boom","param":"x","type":"y"}}`, Names{}},
		"not the client's: 401":       {401, `{"error":{"code":"invalid_api_key","param":"x","type":"y"}}`, Names{}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, sent(plain, c.status, c.body).Names)
		})
	}
}

func TestARequestThatIsTooLongForTheModelIsToldApart(t *testing.T) {
	for body, want := range map[string]bool{
		coded("context_length_exceeded", "m"):                                    true,
		said("This model's maximum context length is 8192 tokens."):              true,
		said("prompt is too long: 210000 tokens > 200000 maximum"):               true,
		said("Your input exceeds the context window of this model."):             true,
		said("The context length was exceeded"):                                  true,
		said("messages[0].context must be text"):                                 false,
		coded("invalid_value", "temperature exceeds the maximum"):                false,
		`{"error":{"message":"m"},"input":"context_length_exceeded in my logs"}`: false,
	} {
		require.Equal(t, want, Classify(answer(400, body), noon).TooLong, body)
	}
	require.True(t, Classify(answer(413, ""), noon).TooLong)
	require.False(t, Classify(answer(429, said("maximum context length")), noon).TooLong)
}
