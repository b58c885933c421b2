package failure

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// closing is what ends a quotation that a character begins.
var closing = map[rune]rune{
	'"': '"', '\'': '\'', '`': '`', '“': '”', '‘': '’', '«': '»', '「': '」',
}

var openers = []string{`"`, "'", "`", "“", "‘", "«", "「"}

// withoutQuotations is text without what it quotes: servers quote the request where they
// complain about it, and what the user wrote decides nothing. The quotes stay, so that what is
// left still reads: "the model “ does not exist". A quotation that is not closed goes on to
// the end; an apostrophe begins none.
func withoutQuotations(text string) string {
	if !containsAny(text, openers) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	before := ' '
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		b.WriteString(text[at : at+size])
		at += size
		end, opens := closing[r]
		if opens && !inWordRune(before) {
			at += quotationLength(text[at:], end)
			if at < len(text) {
				b.WriteRune(end)
				at += utf8.RuneLen(end)
			}
			r = end
		}
		before = r
	}
	return b.String()
}

// quotationLength is how long the quotation is that text begins in. A single quote ends one
// only where no letter follows, for it may be an apostrophe.
func quotationLength(text string, end rune) int {
	for at, r := range text {
		if r != end {
			continue
		}
		after, _ := utf8.DecodeRuneInString(text[at+utf8.RuneLen(r):])
		if r != '\'' && r != '’' || !inWordRune(after) {
			return at
		}
	}
	return len(text)
}

func inWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
