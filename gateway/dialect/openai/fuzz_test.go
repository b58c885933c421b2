package openai

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"omniroute/models/failure"
)

// answers are seeds: whole answers, errors in every envelope, and what is neither.
var answers = []string{
	`{"choices":[{"message":{"role":"assistant","content":"Hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":60}}`,
	`{"choices":[]}`, `{"choices":null}`, `{}`, `[]`, ` `, `null`, `{"error":{"message":"x","code":429}}`, `{"error":null,"choices":[{}]}`,
	`{"message":"x"}`, `{"type":"error"}`, `{"errors":[{"message":"x"}]}`, `{"base_resp":{"status_code":1002}}`, `<html>`, "{\"a\":\"\xff\"}", `{"choices":[{"message":`,
	`{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}`,
}

func FuzzCheckAnswer(f *testing.F) {
	for _, answer := range answers {
		f.Add([]byte(answer), true)
		f.Add([]byte(answer), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, mayBeEmpty bool) {
		usage, kind := CheckAnswer(body, mayBeEmpty)
		require.Contains(t, []failure.Kind{"", failure.KindEmpty, failure.KindMalformed, failure.KindInStream}, kind)
		require.GreaterOrEqual(t, usage.Input, int64(0))
		require.GreaterOrEqual(t, usage.Output, int64(0))
		if kind == "" {
			var object map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(body, &object), "what passes for an answer is an object")
			require.NotEmpty(t, object["choices"])
		}
		if kind == "" && !mayBeEmpty {
			_, whatever := CheckAnswer(body, true)
			require.Empty(t, whatever, "an answer with content is one for any request")
		}
	})
}

// An event that is taken for like another without being parsed is JSON as the other was.
func FuzzLikeness(f *testing.F) {
	f.Add(delta(`{"content":"one"}`), "two", uint8(0))
	f.Add(delta(`{"content":"世界"}`), "\"\\", uint8(3))
	f.Add(`{"choices":[{"delta":{"content":"a"},"index":1}]}`, "\xe4\xb8", uint8(9))
	f.Fuzz(func(t *testing.T, event, text string, cut uint8) {
		var tap Tap
		tap.Look([]byte(event))
		before, after := string(tap.likeness.before), string(tap.likeness.after)
		for _, next := range []string{before + text + after, before + text, text + after, event[:min(len(event), int(cut))], event + text} {
			if tap.likeness.covers([]byte(next)) {
				require.True(t, json.Valid([]byte(next)) && utf8.ValidString(next), "%q", next)
				var fresh Tap
				require.Equal(t, Content, fresh.Look([]byte(next)), "%q", next)
			}
		}
	})
}

func FuzzWords(f *testing.F) {
	for _, answer := range answers {
		f.Add([]byte(answer))
	}
	f.Add([]byte(delta(`{"content":"a\u00e9\ud83d","refusal":"no","reasoning":"because"}`)))
	f.Add([]byte(`{"choices":[{"text":"old"},{"delta":{"content":["not","text"]}}]}`))
	f.Fuzz(func(t *testing.T, event []byte) {
		said := Words([]byte("kept "), event)
		require.Equal(t, "kept ", string(said[:5]))
		require.True(t, utf8.Valid(said), "%q", said)
		if !json.Valid(event) {
			require.Len(t, said, 5, "what is no JSON says nothing")
		}
	})
}
