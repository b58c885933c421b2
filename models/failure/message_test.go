package failure

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryDialectsEnvelopeIsRead(t *testing.T) {
	for _, body := range []string{
		`{"error":{"message":"the words"}}`,
		`{"type":"error","error":{"type":"invalid_request_error","message":"the words"}}`,
		`[{"error":{"code":400,"message":"the words","status":"INVALID_ARGUMENT"}}]`,
		`{"error":"the words"}`,
		`{"message":"the words"}`,
		`{"detail":"the words"}`,
		`{"detail":{"message":"the words"}}`,
		`{"errors":[{"message":"the words"}]}`,
		`{"error":"invalid_grant","error_description":"the words"}`,
		`{"response":{"error":{"message":"the words"}}}`,
	} {
		require.Equal(t, "the words", Classify(answer(400, body), noon).Message, body)
	}
}

func TestNoSecretAndNoNoiseReachesTheClient(t *testing.T) {
	for _, c := range []struct{ said, shown string }{
		{"Incorrect API key provided: sk-abcd1234***wxyz. See docs.", "Incorrect API key provided: [masked]. See docs."},
		{"Bearer eyJhbGciOi.eyJzdWIi.sig is invalid", "[masked] is invalid"},
		{"token eyJhbGciOi.eyJzdWIi.sig expired", "token [masked] expired"},
		{"key omr_Zm9vYmFyYmF6 unknown", "key [masked] unknown"},
		{"AIzaSyD-1234567890abcdef is not valid", "[masked] is not valid"},
		{"see https://x.test/v1?key=abc&alt=sse", "see https://x.test/v1?[masked]&alt=sse"},
		{"Request 01234567-89ab-cdef-0123-456789abcdef failed", "Request [masked] failed"},
		{"trace 0123456789abcdef0123", "trace [masked]"},
		{"organization org-AbC123xyz on tokens", "organization [masked] on tokens"},
		{"request req_011CPx failed", "request [masked] failed"},
		{"owner jane.doe+ai@example.com must pay", "owner [masked] must pay"},
		{"secret Zk3mQ9vT1xW7yB5nR2sD8fGh rejected", "secret [masked] rejected"},
		{"two\nlines\tand\x00 control", "two lines and control"},
		{"broken \xff text", "broken \uFFFD text"},
		// what must survive
		{"model Qwen2-VL-72B-Instruct-Turbo-128k is limited to 32768 tokens", "model Qwen2-VL-72B-Instruct-Turbo-128k is limited to 32768 tokens"},
		{"user-provided key_value for tool_call_id in messages[3]", "user-provided key_value for tool_call_id in messages[3]"},
		{"claude-3-5-sonnet-20241022 accounts/fireworks/models/llama-v3p1-405b-instruct", "claude-3-5-sonnet-20241022 accounts/fireworks/models/llama-v3p1-405b-instruct"},
		{"额度 日本語 🎉", "额度 日本語 🎉"},
	} {
		body := `{"error":{"message":` + quote(c.said) + `}}`
		require.Equal(t, c.shown, Classify(answer(400, body), noon).Message)
	}
	long := Classify(answer(400, said(strings.Repeat("word 字 ", 400))), noon).Message
	require.Len(t, []rune(long), 500)
	require.True(t, strings.HasSuffix(long, "…"))
	require.Equal(t, "The upstream answered with status 418.", Classify(answer(418, said(" \n ")), noon).Message)
}

// quote writes a JSON string without touching bytes that are not UTF-8.
func quote(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, "\n", `\n`, "\t", `\t`, "\x00", `\u0000`).Replace(s) + `"`
}
