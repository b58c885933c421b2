package failure

import (
	"bytes"
	"net/http"
	"strings"
)

// longestSeen bounds how much of an answer predicates look at, in bytes.
const longestSeen = 64 << 10

// predicate is a Predicate as it is applied.
type predicate struct {
	Predicate
	contains []byte // lower case
}

func compilePredicate(p Predicate) predicate {
	return predicate{Predicate: p, contains: bytes.ToLower([]byte(p.Contains))}
}

// status is what the answer amounts to.
func (p *Predicate) status() int {
	if p.Status >= 400 && p.Status <= 599 {
		return p.Status
	}
	return http.StatusBadGateway
}

// Lookup reads the value at a JSON path of a document; ok is false where there is none.
type Lookup func(document []byte, path string) (value string, ok bool)

// Recognise finds the predicate that an answer, or one event of a stream, meets; nil when none
// does. Of either the first 64 KiB count.
func (r *Rules) Recognise(answer []byte, at Lookup) *Predicate {
	if r == nil || len(r.predicates) == 0 {
		return nil
	}
	answer = answer[:min(len(answer), longestSeen)]
	var lower []byte
	for i := range r.predicates {
		p := &r.predicates[i]
		if len(p.contains) > 0 && lower == nil {
			lower = bytes.ToLower(unescape(answer))
		}
		if p.meets(answer, lower, at) {
			return &p.Predicate
		}
	}
	return nil
}

func (p *predicate) meets(answer, lower []byte, at Lookup) bool {
	if len(p.contains) == 0 && p.Path == "" || !bytes.Contains(lower, p.contains) {
		return false
	}
	if p.Path == "" {
		return true
	}
	value, ok := at(answer, p.Path)
	return ok && (p.Equals == "" || p.Equals == value)
}

// Overhears finds the predicate whose text is in what an answer has said so far; nil when none
// does.
func (r *Rules) Overhears(said string) *Predicate {
	if r == nil {
		return nil
	}
	lower := strings.ToLower(said[:min(len(said), longestSeen)])
	for i := range r.predicates {
		p := &r.predicates[i]
		if len(p.contains) > 0 && p.Path == "" && strings.Contains(lower, string(p.contains)) {
			return &p.Predicate
		}
	}
	return nil
}

// Watches reports whether there are predicates at all.
func (r *Rules) Watches() bool { return r != nil && len(r.predicates) > 0 }

// Listens reports whether there are predicates about what an answer says.
func (r *Rules) Listens() bool {
	if r == nil {
		return false
	}
	for i := range r.predicates {
		if len(r.predicates[i].contains) > 0 && r.predicates[i].Path == "" {
			return true
		}
	}
	return false
}
