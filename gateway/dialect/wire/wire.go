// Package wire is the gateway's JSON seam: it validates once, walks validated JSON without
// copying, and edits request bodies surgically, so that unknown fields and their order
// survive on the way to an upstream.
package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/tidwall/gjson"
)

// deepest is how many opening brackets a text may hold before it is validated by the slower
// decoder that bounds nesting. gjson's validator recurses once per level; this many levels
// cost it some tens of megabytes of stack, the millions that fit into a request would
// exhaust the process.
const deepest = 100_000

// Valid reports whether data is one well-formed JSON value in UTF-8, which is the only encoding
// of JSON between systems (RFC 8259 8.1). It never panics and never recurses without bound.
func Valid(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	if len(data) > deepest && bytes.Count(data, openBracket)+bytes.Count(data, openBrace) > deepest {
		return json.Valid(data) // refuses nesting deeper than 10,000
	}
	return gjson.ValidBytes(data)
}

var (
	openBracket = []byte{'['}
	openBrace   = []byte{'{'}
)

// Explain says what is wrong with data that Valid refused and at which byte.
func Explain(data []byte) string {
	if at := notUTF8(data); at < len(data) {
		return fmt.Sprintf("the byte at offset %d is not valid UTF-8", at)
	}
	var discard json.RawMessage
	if err := json.Unmarshal(data, &discard); err != nil {
		return err.Error()
	}
	return "the text is not valid JSON"
}

// notUTF8 returns the offset of the first byte that is not part of a character in UTF-8, the
// length when there is none.
func notUTF8(data []byte) int {
	at := 0
	for at < len(data) {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// Kind is the type of a JSON value, told by its first byte.
type Kind byte

// Kinds of JSON values.
const (
	Missing Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// KindOf tells the kind of a validated value; Missing for an empty one.
func KindOf(value []byte) Kind {
	if len(value) == 0 {
		return Missing
	}
	switch value[0] {
	case '{':
		return Object
	case '[':
		return Array
	case '"':
		return String
	case 't', 'f':
		return Bool
	case 'n':
		return Null
	default:
		return Number
	}
}

// Text returns the unescaped content of a validated string value, and "" for any other kind.
func Text(value []byte) string {
	if KindOf(value) != String {
		return ""
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	return gjson.ParseBytes(value).String()
}

// Int returns the integer of a validated number value and 0 for any other kind. A fraction
// is cut off; a number beyond int64 saturates.
func Int(value []byte) int64 {
	if KindOf(value) != Number {
		return 0
	}
	return gjson.Parse(view(value)).Int()
}

// view reads bytes as a string without copying. The result must not outlive the bytes nor
// be used after they change.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
