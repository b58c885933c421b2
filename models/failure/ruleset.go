package failure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"omniroute/models"
)

// OperatorRule is one entry of the setting providerErrorRules: what a status with a text in it
// means at one provider.
type OperatorRule struct {
	Status     int           `json:"status" yaml:"status"`                             // 100..599
	Match      string        `json:"match" yaml:"match"`                               // 1..200 characters, found in the parsed error, letter case aside
	Scope      models.Scope  `json:"scope" yaml:"scope"`                               // model, connection or provider
	Reason     models.Reason `json:"reason,omitempty" yaml:"reason,omitempty"`         // default quota_exhausted
	CooldownMs int64         `json:"cooldownMs,omitempty" yaml:"cooldownMs,omitempty"` // 0..86400000, for a model at most the longest lockout; 0 = backoff
}

// Restatement says that a provider means another status where a text says so (guide section 7).
type Restatement struct {
	ID                  string   `json:"id" yaml:"id"`
	FromStatuses        []int    `json:"fromStatuses" yaml:"fromStatuses"`
	ToStatus            int      `json:"toStatus" yaml:"toStatus"`
	TextMarkers         []string `json:"textMarkers" yaml:"textMarkers"`                           // any of them
	ExcludeMarkers      []string `json:"excludeMarkers,omitempty" yaml:"excludeMarkers,omitempty"` // none of them
	DefaultRetryAfterMs int64    `json:"defaultRetryAfterMs,omitempty" yaml:"defaultRetryAfterMs,omitempty"`
}

// Predicate recognises a failure that a provider dresses as a successful answer. With a text
// and a path it needs both.
type Predicate struct {
	ID       string        `json:"id" yaml:"id"`
	Contains string        `json:"contains,omitempty" yaml:"contains,omitempty"` // found in the answer's text, letter case aside
	Path     string        `json:"path,omitempty" yaml:"path,omitempty"`         // a JSON path (gjson) that exists in the answer
	Equals   string        `json:"equals,omitempty" yaml:"equals,omitempty"`     // the value at the path; empty = any
	Status   int           `json:"status,omitempty" yaml:"status,omitempty"`     // what it amounts to, 400..599; default 502
	Reason   models.Reason `json:"reason,omitempty" yaml:"reason,omitempty"`     // default: what the status means
}

// Rules are what one provider's answers are held against before the general table: compiled
// once per catalog, never changed. A nil *Rules has none.
type Rules struct {
	kind       string
	operator   []operatorRule
	builtin    []*builtinRule
	restate    []restatement
	predicates []predicate
	bans       []string // lower case
}

// operatorRule is an OperatorRule as it is applied.
type operatorRule struct {
	status int
	match  string // lower case
	ruling
}

// NewRules compiles the built-in rules of a kind of provider with the operator's. The operator's
// come first. Each is known in verdicts by its id, or by its place in its setting.
func NewRules(kind string, operator []OperatorRule, restate []Restatement, predicates []Predicate, bans []string) *Rules {
	r := &Rules{kind: strings.ToLower(kind)}
	for i, o := range operator {
		if o.Match != "" {
			r.operator = append(r.operator, compileRule(i, o))
		}
	}
	for i := range builtinRules {
		if slices.Contains(builtinRules[i].kinds, r.kind) {
			r.builtin = append(r.builtin, &builtinRules[i])
		}
	}
	for i, s := range restate {
		r.restate = append(r.restate, compileRestatement(nameOf(s.ID, "statusRestatements", i), s))
	}
	for _, s := range builtinRestatements[r.kind] {
		r.restate = append(r.restate, compileRestatement(s.ID, s))
	}
	for i, p := range predicates {
		p.ID = nameOf(p.ID, "responsePredicates", i)
		r.predicates = append(r.predicates, compilePredicate(p))
	}
	for _, ban := range bans {
		if ban = strings.ToLower(strings.TrimSpace(ban)); ban != "" {
			r.bans = append(r.bans, ban)
		}
	}
	return r
}

func nameOf(id, setting string, at int) string {
	if id != "" {
		return id
	}
	return fmt.Sprintf("%s[%d]", setting, at)
}

func compileRule(at int, o OperatorRule) operatorRule {
	rule := operatorRule{status: o.Status, match: strings.ToLower(o.Match), ruling: ruling{
		id: nameOf("", "providerErrorRules", at), reason: o.Reason, scope: o.Scope, cooldown: milliseconds(o.CooldownMs),
	}}
	if rule.reason == "" {
		rule.reason = models.ReasonQuotaExhausted
	}
	rule.lock = ruleLock(rule.reason)
	return rule
}

// ruleLock says which models a rule of scope model puts out: those that share a limit, else the
// one, by what it is.
func ruleLock(reason models.Reason) models.LockScope {
	if limits(reason) {
		return models.LockFamily
	}
	return models.LockModel
}

// ruling is what the first rule that applies says: of the operator's, then of the built-in ones;
// nil when none does. An operator's rule may name the status of the answer, the one that an error
// inside it amounts to, or the one that either was restated to.
func (r *Rules) ruling(f *facts) *ruling {
	if r == nil {
		return nil
	}
	for i := range r.operator {
		rule := &r.operator[i]
		if (rule.status == f.status || rule.status == f.sent || rule.status == f.Status) && f.says(rule.match) {
			return &rule.ruling
		}
	}
	for _, rule := range r.builtin {
		if rule.applies(f) {
			return rule.ruling(f)
		}
	}
	return nil
}

// banned reports whether the error has one of the operator's signals of a ban.
func (r *Rules) banned(e *upstreamError) bool {
	return r != nil && slices.ContainsFunc(r.bans, e.says)
}

// is reports whether the provider is of one of the kinds.
func (r *Rules) is(kinds ...string) bool { return r != nil && slices.Contains(kinds, r.kind) }

func milliseconds(ms int64) time.Duration {
	return time.Duration(max(ms, 0)) * time.Millisecond
}
