package fakeprovider

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Any stands for every key or every model in a rule.
const Any = "*"

// Script is the whole behaviour of a provider. A call follows the most specific rule that
// matches it: key and model, then key, then model, then the rule for everything. Without a
// rule the answer is healthy.
type Script struct {
	Rules []Rule `json:"rules"`
}

// Rule is what the calls with one key for one model meet, step after step.
type Rule struct {
	Key   string `json:"key"`   // the clear key a caller presents, or "*"
	Model string `json:"model"` // the model as the caller names it, or "*"
	Steps []Step `json:"steps"`
	// Cycle starts again after the last step; otherwise a last step with Times set is
	// followed by healthy answers.
	Cycle bool `json:"cycle,omitempty"`
}

// Step is one behaviour. The zero Step is the healthy answer.
type Step struct {
	Times     int               `json:"times,omitempty"`     // how many calls it serves; 0 = all that follow (1 in a cycle)
	LatencyMs int64             `json:"latencyMs,omitempty"` // before the response headers
	Status    int               `json:"status,omitempty"`    // 0 = 200
	Headers   map[string]string `json:"headers,omitempty"`
	// Body replaces the answer. Without it a status other than 200 gets OpenAI's error object.
	Body string `json:"body,omitempty"`
	Hang HangAt `json:"hang,omitempty"`
	Cut  Cut    `json:"cut,omitempty"`
	// AfterTokens is where Hang mid_stream, Cut and InStreamError happen: after the role delta
	// and this many tokens.
	AfterTokens int   `json:"afterTokens,omitempty"`
	PaceMs      int64 `json:"paceMs,omitempty"` // between tokens
	// InStreamError is a JSON object sent as one event of a 200 stream, which then ends; a
	// call without streaming gets it as its whole 200 answer.
	InStreamError string `json:"inStreamError,omitempty"`
	Empty         bool   `json:"empty,omitempty"` // 200 without any content
	Style         Style  `json:"style,omitzero"`
}

// HangAt is where an answer stops until the caller leaves, Release, or Stop.
type HangAt string

// Places to hang.
const (
	HangHeaders      HangAt = "headers"
	HangFirstContent HangAt = "first_content" // headers sent, then nothing
	HangMidStream    HangAt = "mid_stream"    // after AfterTokens tokens
	HangAfterFinish  HangAt = "after_finish"  // finish reason sent, end marker not
)

// Cut is how a connection ends before its answer does.
type Cut string

// Ways to cut.
const (
	CutResetEarly Cut = "reset_before_headers" // TCP reset instead of an answer, after the body was read
	CutReset      Cut = "reset"                // TCP reset (HTTP/2: RST_STREAM) after AfterTokens tokens
	CutEOF        Cut = "eof"                  // a well-formed end of the body after AfterTokens tokens
	CutFIN        Cut = "fin"                  // the connection closes inside the chunked body
	CutGoAway     Cut = "goaway"               // HTTP/2 GOAWAY that disowns the call; HTTP/1.1: reset_before_headers
)

// Script replaces the whole script and starts every rule at its first step.
func (p *Provider) Script(s Script) error {
	if err := s.check(); err != nil {
		return err
	}
	p.scripts.replace(s)
	return nil
}

// On sets the rule of one (key, model), replacing an earlier one for the same pair.
func (p *Provider) On(key, model string, steps ...Step) {
	p.scripts.set(Rule{Key: key, Model: model, Steps: steps})
}

// ParseScript reads a script as PUT /__script takes it.
func ParseScript(r io.Reader) (Script, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	var s Script
	if err := dec.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("script: %w", err)
	}
	return s, s.check()
}

func (s Script) check() error {
	for i, rule := range s.Rules {
		if rule.Key == "" || rule.Model == "" {
			return fmt.Errorf("script: rules[%d] needs a key and a model (%q for any)", i, Any)
		}
		for j, step := range rule.Steps {
			if err := step.check(); err != nil {
				return fmt.Errorf("script: rules[%d].steps[%d]: %w", i, j, err)
			}
		}
	}
	return nil
}

func (s Step) check() error {
	hangs := []HangAt{"", HangHeaders, HangFirstContent, HangMidStream, HangAfterFinish}
	if !slices.Contains(hangs, s.Hang) {
		return fmt.Errorf("unknown hang %q", s.Hang)
	}
	cuts := []Cut{"", CutResetEarly, CutReset, CutEOF, CutFIN, CutGoAway}
	if !slices.Contains(cuts, s.Cut) {
		return fmt.Errorf("unknown cut %q", s.Cut)
	}
	if s.Status != 0 && (s.Status < 200 || s.Status > 599) {
		return fmt.Errorf("status %d is not one of an answer", s.Status)
	}
	return s.Style.check()
}

// scripts holds the rules and how far each has got.
type scripts struct {
	mu    sync.Mutex
	rules []*progress
}

type progress struct {
	rule  Rule
	step  int
	calls int // of the current step
}

func (s *scripts) replace(script Script) {
	rules := make([]*progress, 0, len(script.Rules))
	for _, rule := range script.Rules {
		rules = append(rules, &progress{rule: rule})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = rules
}

func (s *scripts) set(rule Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = slices.DeleteFunc(s.rules, func(p *progress) bool {
		return p.rule.Key == rule.Key && p.rule.Model == rule.Model
	})
	s.rules = append(s.rules, &progress{rule: rule})
}

func (s *scripts) current() Script {
	s.mu.Lock()
	defer s.mu.Unlock()
	script := Script{Rules: []Rule{}}
	for _, p := range s.rules {
		script.Rules = append(script.Rules, p.rule)
	}
	return script
}

// next takes one call of the rule that fits best.
func (s *scripts) next(key, model string) Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *progress
	rank := 0
	for _, p := range s.rules {
		if r := p.rule.rank(key, model); r > rank {
			best, rank = p, r
		}
	}
	if best == nil {
		return Step{}
	}
	return best.take()
}

// rank is 0 for no match; a key says more than a model.
func (r Rule) rank(key, model string) int {
	rank := 1
	switch r.Key {
	case key:
		rank += 2
	case Any:
	default:
		return 0
	}
	switch r.Model {
	case model:
		rank++
	case Any:
	default:
		return 0
	}
	return rank
}

func (p *progress) take() Step {
	if p.step >= len(p.rule.Steps) {
		return Step{}
	}
	step := p.rule.Steps[p.step]
	times := step.Times
	if times == 0 && p.rule.Cycle {
		times = 1
	}
	p.calls++
	if times != 0 && p.calls >= times {
		p.step++
		p.calls = 0
		if p.rule.Cycle && p.step == len(p.rule.Steps) {
			p.step = 0
		}
	}
	return step
}
