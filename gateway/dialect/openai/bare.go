package openai

import (
	"bytes"

	"omniroute/gateway/dialect/wire"
)

// lookAtBare finds the signs of an error without an envelope in an object without any choice:
// {"message":...}, {"code":..,"msg":...}, {"detail":...}, {"errors":[...]}, {"type":"error"}, and
// MiniMax's base_resp. A message of something that says what else it is, is none.
func lookAtBare(data []byte) Meaning {
	says, other := false, false
	fields := wire.ObjectOf(data)
	for fields.Next() {
		switch {
		case fields.Is("choices"), fields.Is("object"):
			other = true
		case fields.Is("message"), fields.Is("msg"), fields.Is("detail"), fields.Is("error_description"):
			says = says || wire.KindOf(fields.Value) == wire.String && present(fields.Value)
		case fields.Is("type"):
			if string(fields.Value) == `"error"` {
				return Failed
			}
			other = other || wire.KindOf(fields.Value) == wire.String && !bytes.Contains(fields.Value, errorWord)
		case fields.Is("errors"):
			if wire.KindOf(fields.Value) == wire.Array && present(fields.Value) {
				return Failed
			}
		case fields.Is("base_resp"):
			if wire.Int(wire.Field(fields.Value, "status_code")) != 0 {
				return Failed
			}
		}
	}
	if says && !other {
		return Bare
	}
	return 0
}

var errorWord = []byte("error")

// Words appends what the choices of an event say to dst: text, reasoning and refusals.
func Words(dst, event []byte) []byte {
	event = trim(event)
	if wire.KindOf(event) != wire.Object || !wire.Valid(event) {
		return dst
	}
	for choices := wire.ArrayOf(wire.Field(event, "choices")); choices.Next(); {
		for fields := wire.ObjectOf(choices.Value); fields.Next(); {
			switch {
			case fields.Is("text"):
				dst = append(dst, wire.Text(fields.Value)...)
			case fields.Is("delta"), fields.Is("message"):
				dst = appendWords(dst, fields.Value)
			}
		}
	}
	return dst
}

func appendWords(dst, delta []byte) []byte {
	for fields := wire.ObjectOf(delta); fields.Next(); {
		if fields.Is("content") || fields.Is("reasoning_content") || fields.Is("reasoning") || fields.Is("refusal") {
			dst = append(dst, wire.Text(fields.Value)...)
		}
	}
	return dst
}
