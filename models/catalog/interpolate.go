package catalog

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// One token of interpolation: an escape, a placeholder, or a dollar-brace that is neither.
var placeholderToken = regexp.MustCompile(`\$\$\{|\$\{[A-Za-z_][A-Za-z0-9_]*\}|\$\{`)

// interpolate replaces ${ENV} in a secret field; "$${" stands for "${" itself. placeholder
// is the text when it consists of one placeholder only, which an export can repeat.
func interpolate(text string, env func(string) (string, bool)) (value, placeholder string, problems []string) {
	value = placeholderToken.ReplaceAllStringFunc(text, func(token string) string {
		switch token {
		case "$${":
			return "${"
		case "${":
			problems = append(problems, "a placeholder is written ${NAME}; $${ stands for the text itself")
			return ""
		}
		name := token[2 : len(token)-1]
		content, set := env(name)
		switch {
		case !set:
			problems = append(problems, fmt.Sprintf("the environment variable %s is not set", name))
		case content == "":
			problems = append(problems, fmt.Sprintf("the environment variable %s is empty", name))
		}
		if token == text {
			placeholder = token
		}
		return content
	})
	return value, placeholder, problems
}

// unescape reads "$${" in an ordinary field and refuses a placeholder there: a reference to
// the environment that silently stayed text would be worse than none.
func unescape(text string) (value, problem string) {
	value = placeholderToken.ReplaceAllStringFunc(text, func(token string) string {
		if token != "$${" {
			problem = "${NAME} is replaced in credential and key fields only; write $${ for the text itself"
		}
		return "${"
	})
	return value, problem
}

// escape is the inverse of unescape, for an export.
func escape(text string) string { return strings.ReplaceAll(text, "${", "$${") }

// badSecret says what makes a secret unusable in a header, without showing it.
func badSecret(value string) string {
	switch {
	case value == "":
		return "is empty"
	case !utf8.ValidString(value):
		return "is not valid UTF-8"
	case strings.TrimSpace(value) != value:
		return "begins or ends with white space"
	case strings.ContainsFunc(value, unicode.IsControl):
		return "contains a control character or a line break"
	default:
		return ""
	}
}
