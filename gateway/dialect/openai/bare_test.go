package openai

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnErrorWithoutAnEnvelopeIsSeen(t *testing.T) {
	for event, want := range map[string]Meaning{
		`{"message":"no"}`:                                      Bare,
		`{"code":1302,"msg":"no"}`:                              Bare,
		`{"detail":"no"}`:                                       Bare,
		`{"error_description":"no"}`:                            Bare,
		`{"type":"invalid_request_error","message":"x"}`:        Bare,
		`{"type":"error"}`:                                      Failed,
		`{"errors":[{"message":"no"}]}`:                         Failed,
		`{"choices":[],"base_resp":{"status_code":1}}`:          Failed,
		`{"choices":[],"base_resp":{"status_code":0}}`:          0,
		`{"message":""}`:                                        0,
		`{"message":{"content":"x"}}`:                           0,
		`{"errors":[]}`:                                         0,
		`{"type":"ping"}`:                                       0,
		`{"type":"info","message":"in the queue"}`:              0,
		`{"choices":[],"message":"x"}`:                          0,
		`{"object":"chat.completion.chunk","detail":"x"}`:       0,
		`{"choices":[{"delta":{"content":"x"}}],"message":"y"}`: Content,
	} {
		require.Equal(t, want, new(Tap).Look([]byte(event)), event)
	}
}

func TestTheWordsOfAnEventAreThoseOfItsChoices(t *testing.T) {
	said := []byte("before ")
	for _, event := range []string{
		` {"choices":[{"delta":{"role":"assistant","content":"a\u00e9\n"}},{"delta":{"reasoning":"b"}}]} `,
		`{"choices":[{"text":"c"}],"message":"not this"}`,
		`{"choices":[{"message":{"refusal":"d","reasoning_content":"e"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"not this"}}],"content":null}}]}`,
		`not JSON`, `{"choices":{}}`, `{"choices":[5]}`, ``,
	} {
		said = Words(said, []byte(event))
	}
	require.Equal(t, "before aé\nbcde", string(said))
}
