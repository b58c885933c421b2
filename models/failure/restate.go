package failure

import (
	"slices"
	"strings"
	"time"
)

// restatement is a Restatement as it is applied.
type restatement struct {
	id         string
	from       []int
	to         int
	markers    []string // lower case
	exclude    []string
	retryAfter time.Duration // what a client is told when the upstream says nothing; no cooldown
}

// builtinRestatements by kind of provider (guide section 7). AgentRouter reports a used-up quota
// as if the caller were forbidden to call; a model that the account may not use stays what it is.
var builtinRestatements = map[string][]Restatement{
	"agentrouter": {{
		ID: "agentrouter-quota-misstatus", FromStatuses: []int{403, 400}, ToStatus: 429,
		TextMarkers: []string{"额度不足"}, ExcludeMarkers: []string{"无权访问"}, DefaultRetryAfterMs: 60_000,
	}},
}

func compileRestatement(id string, s Restatement) restatement {
	return restatement{
		id: id, from: s.FromStatuses, to: s.ToStatus, markers: lowered(s.TextMarkers), exclude: lowered(s.ExcludeMarkers),
		retryAfter: milliseconds(s.DefaultRetryAfterMs),
	}
}

func lowered(texts []string) []string {
	out := make([]string, 0, len(texts))
	for _, text := range texts {
		if text != "" {
			out = append(out, strings.ToLower(text))
		}
	}
	return out
}

// restatement is the first that applies to an answer as it was sent; nil when none does.
func (r *Rules) restatement(f *facts) *restatement {
	if r == nil {
		return nil
	}
	for i := range r.restate {
		s := &r.restate[i]
		if slices.Contains(s.from, f.sent) && slices.ContainsFunc(s.markers, f.says) && !slices.ContainsFunc(s.exclude, f.says) {
			return s
		}
	}
	return nil
}
