package failure

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// members walks the members of a JSON object without allocating. An error answer is cut where
// more is not kept of it, so that the last value may be half one; what came before still counts.
// On anything but JSON the walk just ends. Key and value are views into what is walked; a value
// is raw, strings with their quotes.
type members struct {
	rest       []byte
	key, value []byte
}

// membersOf begins a walk; anything but an object has no members.
func membersOf(object []byte) members {
	if !isObject(object) {
		return members{}
	}
	return members{rest: object[1:]}
}

func (m *members) next() bool {
	rest := skipSpace(m.rest)
	if len(rest) > 0 && rest[0] == ',' {
		rest = skipSpace(rest[1:])
	}
	m.rest = nil
	if len(rest) == 0 || rest[0] != '"' {
		return false
	}
	end, closed := stringEnd(rest)
	if !closed {
		return false
	}
	m.key = rest[1 : end-1]
	rest = skipSpace(rest[end:])
	if len(rest) == 0 || rest[0] != ':' {
		return false
	}
	rest = skipSpace(rest[1:])
	end = valueEnd(rest)
	m.value, m.rest = rest[:end], rest[end:]
	return end > 0
}

// member is the value of an object's first member of that name; nil when there is none.
func member(object []byte, name string) []byte {
	for m := membersOf(object); m.next(); {
		if string(m.key) == name {
			return m.value
		}
	}
	return nil
}

// items walks the elements of a JSON array in the same way.
type items struct{ rest, value []byte }

func itemsOf(array []byte) items {
	if len(array) == 0 || array[0] != '[' {
		return items{}
	}
	return items{rest: array[1:]}
}

func (i *items) next() bool {
	rest := skipSpace(i.rest)
	if len(rest) > 0 && rest[0] == ',' {
		rest = skipSpace(rest[1:])
	}
	end := valueEnd(rest)
	i.value, i.rest = rest[:end], rest[end:]
	return end > 0
}

// object is the JSON object that a body is, or begins with where the body was cut; also the
// first one of an array. It is nil for anything else.
func object(body []byte) []byte {
	body = skipSpace(body)
	end := valueEnd(body)
	if len(skipSpace(body[end:])) > 0 {
		return nil // something follows, so it is not one JSON value
	}
	body = body[:end]
	if list := itemsOf(body); list.next() {
		body = list.value
	}
	if !isObject(body) {
		return nil
	}
	return body
}

func isObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

func skipSpace(data []byte) []byte {
	for len(data) > 0 && (data[0] == ' ' || data[0] == '\n' || data[0] == '\t' || data[0] == '\r') {
		data = data[1:]
	}
	return data
}

// valueEnd is the offset after the value that data begins with; 0 when it begins with none.
// Brackets are counted, not recursed into.
func valueEnd(data []byte) int {
	if len(data) == 0 {
		return 0
	}
	switch data[0] {
	case '"':
		end, _ := stringEnd(data)
		return end
	case '{', '[':
		return nestedEnd(data)
	default:
		end := bytes.IndexAny(data, ",]} \t\r\n:\"[{")
		if end < 0 {
			end = len(data)
		}
		return end
	}
}

func nestedEnd(data []byte) int {
	depth := 0
	for at := 0; at < len(data); {
		switch data[at] {
		case '"':
			end, _ := stringEnd(data[at:])
			at += end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
		at++
	}
	return len(data)
}

// stringEnd is the offset after the string that data begins with, and whether it is closed.
func stringEnd(data []byte) (end int, closed bool) {
	for at := 1; at < len(data); {
		next := bytes.IndexByte(data[at:], '"')
		if next < 0 {
			break
		}
		at += next + 1
		slashes := 0
		for i := at - 2; i > 0 && data[i] == '\\'; i-- {
			slashes++
		}
		if slashes%2 == 0 {
			return at, true
		}
	}
	return len(data), false
}

// content is what stands between the quotes of a raw string, of which the closing one may be
// cut off; nil for any other value.
func content(value []byte) []byte {
	switch {
	case len(value) == 0 || value[0] != '"':
		return nil
	case isWhole(value):
		return value[1 : len(value)-1 : len(value)-1]
	default:
		return value[1:]
	}
}

// isWhole reports whether a value is a string that has its closing quote.
func isWhole(value []byte) bool {
	if len(value) == 0 || value[0] != '"' {
		return false
	}
	_, closed := stringEnd(value)
	return closed
}

// stringOf is a raw string with its escapes resolved; empty for any other value.
func stringOf(value []byte) string {
	raw := content(value)
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return string(unescape(raw))
}

// unescape resolves the escapes of JSON strings wherever they stand in data. What is no escape
// is left as it is; half a surrogate pair becomes U+FFFD.
func unescape(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		next := bytes.IndexByte(data, '\\')
		if next < 0 || next+1 == len(data) {
			break
		}
		out = append(out, data[:next]...)
		data = data[next:]
		r, size := escaped(data)
		out = utf8.AppendRune(out, r)
		data = data[size:]
	}
	return append(out, data...)
}

// escaped reads the escape that data begins with: a backslash and at least one byte more.
func escaped(data []byte) (r rune, size int) {
	switch c := data[1]; c {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'u':
		first, ok := unit(data)
		if !ok {
			return '\\', 1
		}
		if second, ok := unit(data[6:]); ok && utf16.IsSurrogate(first) {
			if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return first, 6 // half a pair is written as U+FFFD
	case '"', '\\', '/':
		return rune(c), 2
	default:
		return '\\', 1
	}
}

// unit reads \uXXXX.
func unit(data []byte) (r rune, ok bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	for _, c := range data[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}
