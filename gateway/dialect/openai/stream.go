// Package openai knows the shapes of OpenAI's chat completions: what in a stream is content,
// when it is finished, what it cost, and how errors look.
package openai

import (
	"math/bits"

	"omniroute/gateway/dialect/wire"
)

// Meaning is what one event of a stream is about, as a set.
type Meaning uint8

// Meanings of an event. An event without any is a prelude: a role, an empty delta, metadata.
const (
	// Malformed says that the event is not a JSON object in UTF-8 and must not reach a client.
	Malformed Meaning = 1 << iota
	// Done is the end marker.
	Done
	// Failed says that the event reports an error.
	Failed
	// Content is anything a user or an agent can use: text, reasoning, refusal, tool calls.
	Content
	// Finish says that a choice ended with a reason.
	Finish
	// UsageOnly is the event that a client gets only when it asked for it.
	UsageOnly
	// Bare says that the event is no part of an answer but has a message of its own, as errors
	// without an envelope have.
	Bare
)

// Has reports whether all of what are in m.
func (m Meaning) Has(what Meaning) bool { return m&what == what }

// Usage is what an answer cost, as far as the upstream said.
type Usage struct {
	Known  bool
	Input  int64
	Output int64
}

// Tap follows a stream without changing it. The zero value is ready.
type Tap struct {
	Usage Usage
	// MayBeEmpty says that the request itself explains an answer that stops without content:
	// it carried stop sequences, one of which came first.
	MayBeEmpty bool
	// started and finished have a bit for each of the first 64 choices.
	started, finished uint64
	contentful        bool
	useful            []byte // the string that made the event at hand content; nil for another kind
	likeness          likeness
}

// Finished reports whether every choice that began has ended with a finish reason. It may
// become false again: with n > 1 some upstreams send one choice after the other.
func (t *Tap) Finished() bool {
	return t.finished != 0 && t.started&^t.finished == 0
}

// FinishedAll reports whether that many choices have ended, none of them half way. Choices
// beyond the 64th are not told apart.
func (t *Tap) FinishedAll(choices int64) bool {
	return t.Finished() && int64(bits.OnesCount64(t.finished)) >= min(choices, 64)
}

// Look reads the payload of one event.
func (t *Tap) Look(data []byte) Meaning {
	if t.likeness.covers(data) {
		return Content
	}
	if string(data) == "[DONE]" {
		return Done
	}
	if wire.KindOf(data) != wire.Object || !wire.Valid(data) {
		return t.lookAtOdd(data)
	}
	return t.lookAtObject(data)
}

// lookAtOdd gives a payload with space around it a second look.
func (t *Tap) lookAtOdd(data []byte) Meaning {
	trimmed := trim(data)
	switch {
	case len(trimmed) == len(data):
		return Malformed
	case string(trimmed) == "[DONE]":
		return Done
	case wire.KindOf(trimmed) == wire.Object && wire.Valid(trimmed):
		return t.lookAtObject(trimmed)
	default:
		return Malformed
	}
}

func trim(data []byte) []byte {
	for len(data) > 0 && isSpace(data[0]) {
		data = data[1:]
	}
	for len(data) > 0 && isSpace(data[len(data)-1]) {
		data = data[:len(data)-1]
	}
	return data
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (t *Tap) lookAtObject(data []byte) Meaning {
	var meaning Meaning
	choices, usage := 0, false
	t.useful = nil
	fields := wire.ObjectOf(data)
	for fields.Next() {
		switch {
		case fields.Is("choices"):
			items := wire.ArrayOf(fields.Value)
			for items.Next() {
				choices++
				meaning |= t.lookAtChoice(items.Value)
			}
		case fields.Is("usage"):
			usage = t.Usage.read(fields.Value) || usage
		case fields.Is("error"):
			if present(fields.Value) {
				meaning |= Failed
			}
		case fields.Is("object"):
			if string(fields.Value) == `"error"` {
				meaning |= Failed
			}
		}
	}
	if choices == 0 {
		meaning |= lookAtBare(data)
	}
	if usage && choices == 0 {
		meaning |= UsageOnly
	}
	if meaning == Content && choices == 1 && !usage && t.useful != nil {
		t.likeness.learn(data, t.useful)
	}
	return meaning
}

func (t *Tap) lookAtChoice(choice []byte) Meaning {
	var (
		meaning Meaning
		bit     uint64 = 1
		finish  []byte
	)
	fields := wire.ObjectOf(choice)
	for fields.Next() {
		switch {
		case fields.Is("index"):
			if index := wire.Int(fields.Value); index >= 0 && index < 64 {
				bit = 1 << index
			}
		case fields.Is("delta"), fields.Is("message"):
			if t.isUseful(fields.Value) {
				meaning |= Content
			}
		case fields.Is("text"):
			if present(fields.Value) {
				meaning |= Content
			}
		case fields.Is("finish_reason"):
			if wire.KindOf(fields.Value) == wire.String && present(fields.Value) {
				finish = fields.Value
			}
		}
	}
	t.started |= bit
	t.contentful = t.contentful || meaning.Has(Content)
	if finish == nil {
		return meaning
	}
	return meaning | t.finish(finish, bit)
}

// finish notes the end of a choice. An answer that simply stops without having said anything
// is empty, and not content, unless the request explains it; one that was filtered, or ran out
// of tokens while it reasoned, says so by its reason.
func (t *Tap) finish(reason []byte, bit uint64) Meaning {
	if string(reason) == `"error"` {
		return Failed
	}
	t.finished |= bit
	if !t.contentful && (t.MayBeEmpty || string(reason) != `"stop"`) {
		return Finish | Content
	}
	return Finish
}

// The fields of a delta or a message that carry something of use. A role or a name alone do not.
var usefulFields = [...]string{
	"content", "tool_calls", "reasoning_content", "reasoning", "reasoning_details", "refusal",
	"function_call", "audio", "thinking", "thinking_blocks",
}

func (t *Tap) isUseful(delta []byte) bool {
	fields := wire.ObjectOf(delta)
	for fields.Next() {
		if !present(fields.Value) {
			continue
		}
		for _, name := range usefulFields {
			if fields.Is(name) {
				if wire.KindOf(fields.Value) == wire.String {
					t.useful = fields.Value
				}
				return true
			}
		}
	}
	return false
}

// present reports whether a value is there and not empty.
func present(value []byte) bool {
	switch wire.KindOf(value) {
	case wire.Missing, wire.Null:
		return false
	case wire.String:
		return len(value) > len(`""`)
	case wire.Array:
		items := wire.ArrayOf(value)
		return items.Next()
	case wire.Object:
		fields := wire.ObjectOf(value)
		return fields.Next()
	default:
		return true
	}
}

// read takes a usage object over and reports whether it was one. The last one of a stream
// counts: some upstreams repeat a growing total.
func (u *Usage) read(value []byte) bool {
	if wire.KindOf(value) != wire.Object {
		return false
	}
	fields := wire.ObjectOf(value)
	for fields.Next() {
		switch {
		case fields.Is("prompt_tokens"), fields.Is("input_tokens"):
			u.Input = max(0, wire.Int(fields.Value))
		case fields.Is("completion_tokens"), fields.Is("output_tokens"):
			u.Output = max(0, wire.Int(fields.Value))
		}
	}
	u.Known = true
	return true
}
