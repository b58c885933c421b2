package fakeprovider

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Usage of the healthy answer.
const (
	InputTokens  = 11
	OutputTokens = 60
)

// Tokens are the 60 pieces of the healthy answer, with scripts and emoji of two, three and
// four UTF-8 bytes, a joined emoji and every character JSON must escape.
var Tokens = []string{
	"Hello", ",", " ", "世界", "!", " ", "This", " is", " the", " fixed",
	" answer", " of", " the", " scripted", " provider", ":", " ", "你好", "，", "こんにちは",
	"、", "안녕", "하세요", ".", " 🚀", " 👩‍💻", " and", " a", " naïve", " café",
	";", " quotes", " \"", "so", "\"", ",", " a", " back", "\\", "slash",
	",", " a", " tab", "\t", "and", " a", " new", "\n", "line", ",",
	" Привет", " мир", ",", " ∑", "≈", "π", " done", " 🎉", " ", "完了。",
}

// Text is the healthy answer as one string.
var Text = strings.Join(Tokens, "")

// ToolName is the function that an answer with tool arguments calls.
const ToolName = "store_document"

// ToolArguments is the JSON argument text of about n bytes that Style.ToolArgumentBytes asks for.
func ToolArguments(n int) string {
	const unit = "0123456789abcdef 世界🚀 \\\" "
	var b strings.Builder
	b.WriteString(`{"document":"`)
	for b.Len() < n {
		b.WriteString(unit)
	}
	b.WriteString(`"}`)
	return b.String()
}

// completion is the answer to a call without streaming.
func completion(seq int64, model string, s Step) []byte {
	message := map[string]any{"role": "assistant", "content": Text}
	finish := "stop"
	if n := s.Style.ToolArgumentBytes; n > 0 {
		finish = "tool_calls"
		message["tool_calls"] = []any{map[string]any{
			"id": "call_1", "type": "function",
			"function": map[string]any{"name": ToolName, "arguments": ToolArguments(n)},
		}}
	}
	choices := []any{map[string]any{"index": 0, "message": message, "finish_reason": finish, "logprobs": nil}}
	if s.Empty {
		choices = []any{}
	}
	return mustJSON(map[string]any{
		"id": answerID(seq), "object": "chat.completion", "created": created, "model": model,
		"choices": choices, "usage": usage(), "system_fingerprint": "fp_fake",
		"x_provider_extension": map[string]any{"kept": true},
	})
}

// created is the fixed time stamp of every answer, in seconds since the epoch.
const created = 1_760_000_000

func answerID(seq int64) string { return fmt.Sprintf("chatcmpl-fake-%d", seq) }

func usage() map[string]any {
	return map[string]any{
		"prompt_tokens": InputTokens, "completion_tokens": OutputTokens,
		"total_tokens": InputTokens + OutputTokens,
	}
}

// chunk is one event of a stream with a delta; a nil delta makes the usage event.
func chunk(seq int64, model string, delta map[string]any, finish any) []byte {
	event := map[string]any{
		"id": answerID(seq), "object": "chat.completion.chunk", "created": created, "model": model,
		"system_fingerprint": "fp_fake",
	}
	if delta == nil {
		event["choices"] = []any{}
		event["usage"] = usage()
		return mustJSON(event)
	}
	event["choices"] = []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": nil}}
	return mustJSON(event)
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values above are maps of strings and numbers
	}
	return b
}
