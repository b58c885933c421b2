package openai

import (
	"bytes"
	"unicode/utf8"
)

// likeness recognises an event that differs from one already understood only inside the
// string that is its content, as most events of a stream do. Between the same bytes before
// and after, any well-formed string makes the same JSON with the same meaning, so that it
// need not be parsed again.
type likeness struct {
	before []byte // up to and with the opening quote; empty when nothing was learned
	after  []byte // from the closing quote on
}

// learn remembers an event by its content, a string value inside data.
func (l *likeness) learn(data, content []byte) {
	at := cap(data) - cap(content) // both share one array
	l.before = append(l.before[:0], data[:at+1]...)
	l.after = append(l.after[:0], data[at+len(content)-1:]...)
}

// covers reports whether data is like the event that was learned and has content. A string
// with escapes is left to the parser.
func (l *likeness) covers(data []byte) bool {
	if len(l.before) == 0 || len(data) <= len(l.before)+len(l.after) ||
		!bytes.HasPrefix(data, l.before) || !bytes.HasSuffix(data, l.after) {
		return false
	}
	text := data[len(l.before) : len(data)-len(l.after)]
	var all byte
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return false
		}
		all |= c
	}
	return all < utf8.RuneSelf || utf8.Valid(text)
}
