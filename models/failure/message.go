package failure

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a client is shown of an upstream's own words, in characters.
const (
	longestMessage = 500
	longestName    = 100
)

// masked stands where an upstream's message named an id or a secret.
const masked = "[masked]"

// authorizations are secrets that a word before them gives away.
var authorizations = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"',;]+`)

// secrets match what must not leave the gateway even inside an upstream's own message: keys,
// tokens, account and request ids, addresses. None has space inside, and each is looked for
// only in a word where it may be: patterns cost more than the rest of a verdict.
var secrets = []struct {
	maybe   func(word string) bool
	pattern *regexp.Regexp
}{
	{has("="), regexp.MustCompile(`(?i)\b(api[-_]?key|key|token|access_token|secret|password|authorization|sig|signature)=[^&\s"']+`)},
	{hasStem(keyStems), regexp.MustCompile(`(?i)\b(` + strings.Join(keyStems, "|") + `)[-_][\w*.…-]{4,}[\w*]`)},
	{hasStem(idStems), regexp.MustCompile(`(?i)\b(` + strings.Join(idStems, "|") + `)[-_][\w*-]*[0-9*][\w*-]*`)},
	{has("AIza"), regexp.MustCompile(`\bAIza[\w-]{8,}`)},
	{has("eyJ"), regexp.MustCompile(`\beyJ[\w-]+(\.[\w-]*){0,4}`)},
	{hasHyphens, regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)},
	{has("@"), regexp.MustCompile(`[\w.+-]+@[\w-]+\.[\w.-]+\w`)},
}

// What keys, and the ids of accounts and requests, begin with.
var (
	keyStems = []string{"sk", "pk", "rk", "omr", "gsk", "xai", "ghp", "gho", "vlo", "whsec"}
	idStems  = []string{"key", "pat", "org", "proj", "acct", "account", "req", "user", "sess", "team"}
)

func has(part string) func(word string) bool {
	return func(word string) bool { return strings.Contains(word, part) }
}

func hasHyphens(word string) bool { return strings.Count(word, "-") >= 4 }

// hasStem looks for a stem with a hyphen or an underscore after it.
func hasStem(stems []string) func(word string) bool {
	return func(word string) bool {
		for at := 1; at < len(word); at++ {
			if c := word[at]; c != '-' && c != '_' {
				continue
			}
			for _, stem := range stems {
				if at >= len(stem) && strings.EqualFold(word[at-len(stem):at], stem) {
					return true
				}
			}
		}
		return false
	}
}

// clientMessage makes an upstream's parsed message fit for a client; without one it says
// only which status came. The credential goes before anything is cut: half of one is a secret
// that nothing recognizes any more.
func clientMessage(message string, credential Credential, status int) string {
	message = oneLine(credential.keepOutOf(message))
	message = maskSecrets(beginning(message))
	if message == "" {
		return fmt.Sprintf("The upstream answered with status %d.", status)
	}
	if after(message, longestMessage) < len(message) {
		return message[:after(message, longestMessage-1)] + "…"
	}
	return message
}

// slack is how much more than is shown is looked through for secrets, in bytes.
const slack = 256

// beginning is as much of a message as can be shown and a few words more, so that what is shown
// ends with no part of a secret.
func beginning(message string) string {
	shown := after(message, longestMessage)
	end := shown + slack
	if end >= len(message) {
		return message
	}
	if space := strings.LastIndexByte(message[:end], ' '); space > shown {
		end = space
	}
	return strings.ToValidUTF8(message[:end], "")
}

// after is the offset after so many characters, or the length where there are fewer.
func after(text string, characters int) int {
	for at := range text {
		if characters == 0 {
			return at
		}
		characters--
	}
	return len(text)
}

// shown are the names that are fit for a client. One that is too long or not printable ASCII
// is no name that a program could branch on.
func (n *rawNames) shown(credential Credential) Names {
	name := func(raw []byte) string {
		name := maskSecrets(credential.keepOutOf(stringOf(raw)))
		if len(name) > longestName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
			return ""
		}
		return name
	}
	return Names{Code: name(n.code), Param: name(n.param), Type: name(n.kind)}
}

func maskSecrets(text string) string {
	if mayAuthorize(text) {
		text = authorizations.ReplaceAllString(text, masked)
	}
	var b strings.Builder
	kept := 0 // up to where text is in b
	for from := 0; from < len(text); {
		word, _, _ := strings.Cut(text[from:], " ")
		if shown := maskWord(word); shown != word {
			b.WriteString(text[kept:from])
			b.WriteString(shown)
			kept = from + len(word)
		}
		from += len(word) + 1
	}
	if kept == 0 {
		return text
	}
	return b.String() + text[kept:]
}

func maskWord(word string) string {
	if !suspicious(word) {
		return word
	}
	for _, secret := range secrets {
		if secret.maybe(word) {
			word = secret.pattern.ReplaceAllString(word, masked)
		}
	}
	if len(word) < shortestToken {
		return word
	}
	return longToken.ReplaceAllStringFunc(word, maskToken)
}

// mayAuthorize reports whether a word that gives a secret away is in text.
func mayAuthorize(text string) bool {
	for at := 0; at+len("basic") < len(text); at++ {
		if text[at]|0x20 == 'b' && (strings.EqualFold(text[at:at+len("basic")], "basic") ||
			at+len("bearer") < len(text) && strings.EqualFold(text[at:at+len("bearer")], "bearer")) {
			return true
		}
	}
	return false
}

// suspicious reports whether a word has anything that some pattern of a secret needs: a mark
// that joins, the beginning of a key, or many letters and digits in a row.
func suspicious(word string) bool {
	run := 0
	for i := range len(word) {
		switch c := word[i]; {
		case c == '=' || c == '-' || c == '_' || c == '@':
			return true
		case c == 'J' || c == 'I': // of "eyJ" and "AIza"
			return true
		case isLetter(c) || isDigit(c):
			run++
		default:
			run = 0
		}
		if run == shortestToken {
			return true
		}
	}
	return false
}

// shortestToken is how many letters and digits in a row may be a secret by themselves.
const shortestToken = 16

// longToken matches candidates for masking by their mixture of characters.
var longToken = regexp.MustCompile(`[A-Za-z0-9]{` + strconv.Itoa(shortestToken) + `,}`)

// maskToken masks hexadecimal strings of 16 or more, and strings of 24 or more that mix lower
// case, upper case and digits as generated keys do; names of models and fields do not.
func maskToken(token string) string {
	var lower, upper, digit, other bool
	for _, r := range token {
		switch {
		case r >= '0' && r <= '9':
			digit = true
		case r >= 'a' && r <= 'f', r >= 'A' && r <= 'F':
		default:
			other = true
		}
		lower = lower || unicode.IsLower(r)
		upper = upper || unicode.IsUpper(r)
	}
	if digit && !other || len(token) >= 24 && lower && upper && digit {
		return masked
	}
	return token
}

// oneLine replaces control characters and runs of space by one space, and broken UTF-8 by U+FFFD.
func oneLine(s string) string {
	s = strings.TrimFunc(strings.ToValidUTF8(s, "\uFFFD"), isGap)
	if isOneLine(s) {
		return s
	}
	return strings.Join(strings.FieldsFunc(s, isGap), " ")
}

func isOneLine(s string) bool {
	gap := false
	for _, r := range s {
		before := gap
		if gap = isGap(r); gap && (before || r != ' ') {
			return false
		}
	}
	return true
}

func isGap(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7f
	}
	return unicode.IsSpace(r) || unicode.IsControl(r)
}
