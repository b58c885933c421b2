package failure

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
)

// Credential is the secret that an attempt was sent with. It prints as a placeholder.
type Credential string

// redacted stands where an upstream's own words held our credential.
const redacted = "[redacted]"

// String implements fmt.Stringer without the value.
func (Credential) String() string { return redacted }

// GoString implements fmt.GoStringer without the value.
func (Credential) GoString() string { return redacted }

// MarshalText implements encoding.TextMarshaler without the value.
func (Credential) MarshalText() ([]byte, error) { return []byte(redacted), nil }

const (
	shortCredential = 4 // characters; a shorter one would also be found inside innocent words
	shortestPiece   = 8 // of a base64 text that holds the credential among other things
)

// keepOutOf replaces the credential in text, as it is and as servers encode it. The patterns of
// secrets know what keys usually look like; this one needs no pattern, for it is known.
func (c Credential) keepOutOf(text string) string {
	switch {
	case c == "" || text == "":
		return text
	case len(c) < shortCredential:
		return replaceWord(text, string(c), redacted)
	case !c.mayBeIn(text):
		return text
	default:
		for _, form := range c.forms() {
			text = strings.ReplaceAll(text, form, redacted)
		}
		return text
	}
}

// mayBeIn rules out, without allocating, what most messages can be ruled out by: they hold
// neither the credential, nor anything escaped, nor a word as long as its base64.
func (c Credential) mayBeIn(text string) bool {
	if strings.Contains(text, string(c)) || strings.Contains(text, "%") || strings.Contains(text, "+") {
		return true
	}
	run := 0
	for i := range len(text) {
		if run++; !isBase64(text[i]) {
			run = 0
		}
		if run == len(c) { // no form is shorter
			return true
		}
	}
	return false
}

func isBase64(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '+' || c == '/' || c == '-' || c == '_' || c == '='
}

// forms lists how the credential may be written, the longer before those that they begin with:
// as it is, in a URL, and in base64, alone or anywhere inside.
func (c Credential) forms() []string {
	value, raw := string(c), []byte(c)
	forms := make([]string, 0, 16)
	add := func(form string) { forms = append(forms, form) }
	for _, escaped := range []string{url.QueryEscape(value), url.PathEscape(value)} {
		if escaped != value {
			add(escaped)
			add(escape.ReplaceAllStringFunc(escaped, strings.ToLower))
		}
	}
	add(value)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		add(encoding.EncodeToString(raw))
		unpadded := encoding.WithPadding(base64.NoPadding)
		add(unpadded.EncodeToString(raw))
		for shift := range 3 {
			if piece := pieceOf(unpadded, raw, shift); len(piece) >= shortestPiece {
				add(piece)
			}
		}
	}
	return forms
}

var escape = regexp.MustCompile(`%[0-9A-F]{2}`)

// pieceOf is the part of a base64 text that depends on nothing but raw, which begins shift
// bytes after a group of three, as in "user:key" or "Bearer key".
func pieceOf(encoding *base64.Encoding, raw []byte, shift int) string {
	text := encoding.EncodeToString(append(make([]byte, shift, shift+len(raw)), raw...))
	if (shift+len(raw))%3 != 0 {
		text = text[:len(text)-1] // it also holds bits of what follows
	}
	return text[(shift*8+5)/6:]
}

// replaceWord replaces word where it is not part of a longer one.
func replaceWord(text, word, with string) string {
	var b strings.Builder
	from := 0
	for at := 0; at+len(word) <= len(text); {
		if !strings.HasPrefix(text[at:], word) || inWord(text, at-1) || inWord(text, at+len(word)) {
			at++
			continue
		}
		b.WriteString(text[from:at])
		b.WriteString(with)
		at += len(word)
		from = at
	}
	b.WriteString(text[from:])
	return b.String()
}

func inWord(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80
}
