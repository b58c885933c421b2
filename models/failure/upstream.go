package failure

import (
	"math"
	"net/http"
	"strings"
)

const (
	// longestText bounds how much of a message counts, in bytes.
	longestText = 16 << 10
	// longestSaid bounds how much of it is searched for phrases: what a message means is said
	// early, and the patterns cost the same for an answer of any size.
	longestSaid = 2 << 10
)

// upstreamError is what an upstream's error object says, in whichever dialect it says it.
// Everything is empty when the body is not a JSON error.
type upstreamError struct {
	words  string   // the message as it was written
	cut    bool     // of which the end is missing, and with it maybe half a secret: not for the client
	lower  string   // its start in lower case
	plain  string   // that without quotations, for words of rules
	said   grams    // the start of that, for phrases
	code   string   // "insufficient_quota"; Google's "resource_exhausted"; lower case
	kind   string   // the "type" of OpenAI's and Anthropic's envelopes; lower case
	number int      // an HTTP status written as the code; 0 when none
	names  rawNames // for the client
}

// message is the upstream's own sentence, as far as a client may see it.
func (e *upstreamError) message() string {
	if e.cut {
		return ""
	}
	return e.words
}

// says reports whether the message, the code or the type has a part, given in lower case. What
// the message quotes may be the user's words and counts only for a part that has quotes itself.
func (e *upstreamError) says(part string) bool {
	return strings.Contains(e.plain, part) || strings.Contains(e.code, part) || strings.Contains(e.kind, part) ||
		strings.Contains(e.lower, part) && containsAny(part, openers)
}

// parse reads the envelopes of OpenAI, Anthropic, Google and the usual servers that
// imitate them: {"error":{...}}, {"error":"text"}, [{"error":{...}}], {"message":...},
// {"detail":...}, {"errors":[{...}]}, {"response":{"error":{...}}} and a bare error object.
func (e *upstreamError) parse(root []byte) {
	for _, level := range levelsOf(root) {
		if level != nil {
			e.fill(level)
		}
	}
	if bare := stringOf(member(root, "error")); bare != "" {
		if e.words == "" {
			e.words, e.cut = bare, !isWhole(member(root, "error"))
		}
		if e.code == "" && len(bare) <= longestName && !strings.Contains(bare, " ") {
			e.code = bare
		}
	}
	e.lower = strings.ToLower(e.words[:min(len(e.words), longestText)])
	e.plain = withoutQuotations(e.lower)
	e.said.read(e.plain[:min(len(e.plain), longestSaid)])
	e.code, e.kind = strings.ToLower(e.code), strings.ToLower(e.kind)
}

// levelsOf are the objects of an error answer that may carry its fields, most specific first.
func levelsOf(root []byte) (levels [6][]byte) {
	for m := membersOf(root); m.next(); {
		switch string(m.key) {
		case "error":
			levels[0] = objectIn(m.value)
		case "response":
			levels[1] = objectIn(member(m.value, "error"))
		case "errors":
			levels[2] = objectIn(m.value)
		case "detail":
			levels[3] = objectIn(m.value)
		case "base_resp": // MiniMax
			levels[4] = objectIn(m.value)
		}
	}
	levels[5] = root
	return levels
}

// objectIn is a value that is an object, or the first element of an array when that is one.
func objectIn(value []byte) []byte {
	if list := itemsOf(value); list.next() {
		value = list.value
	}
	if !isObject(value) {
		return nil
	}
	return value
}

// The names under which a level has its message, best first.
var messageKeys = [...]string{"message", "detail", "error_description", "msg", "status_msg"}

// fill takes from a level what more specific ones have left empty.
func (e *upstreamError) fill(level []byte) {
	var words [len(messageKeys)][]byte
	var code, status, kind, param []byte
	for m := membersOf(level); m.next(); {
		switch string(m.key) {
		case "code":
			code = m.value
		case "status", "status_code":
			status = m.value
		case "type":
			kind = m.value
		case "param":
			param = m.value
		default:
			for i, key := range messageKeys {
				if string(m.key) == key {
					words[i] = m.value
				}
			}
		}
	}
	for _, value := range words {
		if e.words == "" && content(value) != nil {
			e.words, e.cut = stringOf(value), !isWhole(value)
		}
	}
	e.fillCode(code)
	e.fillCode(status)
	if e.kind == "" {
		e.kind = stringOf(kind)
	}
	e.names.fill(code, param, kind)
}

// fillCode takes a code for what it is: an HTTP status, or a name. A number that is no status
// is a name, too.
func (e *upstreamError) fillCode(value []byte) {
	name := stringOf(value)
	if n, ok := numeric(value); ok && n == math.Trunc(n) {
		if n >= 400 && n <= 599 {
			if e.number == 0 {
				e.number = int(n)
			}
			return
		}
		if name == "" && n != 0 {
			name = string(value)
		}
	}
	if e.code == "" && len(name) <= longestText {
		e.code = name
	}
}

// rawNames are the names as they stand in the answer.
type rawNames struct{ code, param, kind []byte }

// fill takes the names that are text. A status is none, however it is written, and neither is
// the "error" by which Anthropic's envelope says what it is.
func (n *rawNames) fill(code, param, kind []byte) {
	for _, part := range [...]struct {
		name  *[]byte
		value []byte
	}{{&n.code, code}, {&n.param, param}, {&n.kind, kind}} {
		if *part.name == nil && isWhole(part.value) && string(part.value) != `""` && string(part.value) != `"error"` && !isStatus(content(part.value)) {
			*part.name = part.value
		}
	}
}

func isStatus(name []byte) bool {
	return len(name) == 3 && (name[0] == '4' || name[0] == '5') && isDigit(name[1]) && isDigit(name[2])
}

// impliedStatus is the HTTP status that an error inside a 200 answer amounts to: what it calls
// itself, else what it says of a limit or of a model's capacity; 502 when it says nothing about
// its nature.
func (e *upstreamError) impliedStatus() int {
	if e.number != 0 {
		return e.number
	}
	for _, name := range []string{e.code, e.kind} {
		if status := namedStatus[name]; status != 0 {
			return status
		}
	}
	switch {
	case tooMany.in(e), quotaWords.in(e), creditWords.in(e), periodWords.in(e):
		return http.StatusTooManyRequests
	case crowdedWords.in(e):
		return statusOverloaded
	default:
		return http.StatusBadGateway
	}
}

// statusOverloaded is Anthropic's status for a model without capacity.
const statusOverloaded = 529

var namedStatus = map[string]int{
	"rate_limit_exceeded":          429,
	"rate_limit_error":             429,
	"rate_limited":                 429,
	"too_many_requests":            429,
	"resource_exhausted":           429,
	"insufficient_quota":           429,
	"insufficient_balance":         429,
	"exceeded_current_quota_error": 429,
	"quota_exceeded":               429,
	"usage_limit_reached":          429,
	"tokens":                       429, // OpenAI's type of a token-rate error
	"requests":                     429,
	"overloaded_error":             529,
	"overloaded":                   529,
	"model_overloaded":             529,
	"engine_overloaded_error":      529,
	"server_error":                 500,
	"internal_error":               500,
	"internal_server_error":        500,
	"internal":                     500,
	"api_error":                    500,
	"unavailable":                  503,
	"service_unavailable":          503,
	"server_overloaded":            503,
	"deadline_exceeded":            504,
	"timeout":                      504,
	"timeout_error":                504,
	"authentication_error":         401,
	"invalid_api_key":              401,
	"unauthenticated":              401,
	"billing_error":                402,
	"permission_error":             403,
	"permission_denied":            403,
	"model_not_found":              404,
	"not_found_error":              404,
	"not_found":                    404,
	"request_too_large":            413,
	"invalid_request_error":        400,
	"invalid_argument":             400,
	"failed_precondition":          400,
	"context_length_exceeded":      400,
	"content_policy_violation":     400,
	"content_filter":               400,
	"invalid_prompt":               400,
	"bad_request":                  400,
	"unauthorized":                 401,
	"payment_required":             402,
	"forbidden":                    403,
	"bad_gateway":                  502,
}
