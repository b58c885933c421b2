package relay

import (
	"omniroute/gateway/dialect/openai"
	"omniroute/gateway/dialect/wire"
	"omniroute/models/failure"
)

// listenFor is how much of what a stream says is heard before it is committed, in bytes, where
// predicates of the operator's are about that: a refusal in disguise is short and comes first.
const listenFor = 256

// ear looks at the beginning of a stream for failures that predicates recognise.
type ear struct {
	rules  *failure.Rules
	said   []byte
	enough bool // what came is not said, such as a tool call
}

// listen takes an event and returns the predicate that it meets, alone or with what was said
// before it; nil when there is none.
func (e *ear) listen(event []byte, meaning openai.Meaning) *failure.Predicate {
	if !e.rules.Watches() {
		return nil
	}
	if p := e.rules.Recognise(event, wire.Lookup); p != nil || !e.rules.Listens() {
		return p
	}
	before := len(e.said)
	e.said = openai.Words(e.said, event)
	e.enough = e.enough || len(e.said) == before && meaning.Has(openai.Content)
	return e.rules.Overhears(string(e.said))
}

// wantsMore reports whether the stream should be held back for what it says next.
func (e *ear) wantsMore() bool {
	return !e.enough && len(e.said) < listenFor && e.rules.Listens()
}
