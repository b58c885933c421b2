package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Bounds of the operator's rules (guide section 7).
const (
	maxRules      = 50 // of one section, all providers together
	maxMarkers    = 20 // of one restatement
	maxMatch      = 200
	maxRuleName   = 100
	maxSignals    = 100
	maxCooldownMs = 86_400_000
)

// ruleReasons are what an operator's rule can make of a failure.
var ruleReasons = []string{
	string(models.ReasonQuotaExhausted), string(models.ReasonRateLimited), string(models.ReasonModelCapacity),
	string(models.ReasonServerError), string(models.ReasonAuth), string(models.ReasonUnknown),
}

var ruleScopes = []string{string(models.ScopeModel), string(models.ScopeConnection), string(models.ScopeProvider)}

// Validate lists everything that is wrong with the values of the settings, by paths such as
// resilience.modelLockout.baseCooldownMs. Bounds that follow from other values follow from the
// environment's defaults too.
func (s *DocSettings) Validate(e Environment) []Problem {
	c := &checker{doc: &Document{}, decoded: func(string) bool { return true }}
	c.settings("", s, e.Resilience)
	return c.problems
}

// settings checks every section; at is empty or ends with a dot.
func (c *checker) settings(at string, s *DocSettings, defaults resilience.Settings) {
	if s.Resilience != nil {
		for _, problem := range s.Resilience.ValidateOver(defaults) {
			if path := at + "resilience." + problem.Path; c.decoded(path) {
				c.bad(path, "%s", problem.Message)
			}
		}
	}
	if s.Timeouts != nil {
		c.timeouts(at+"timeouts", *s.Timeouts)
	}
	if l := s.Limits; l != nil {
		c.optional(at+"limits.maxBodyBytes", l.MaxBodyBytes, 1_024, maxBytes)
		c.optional(at+"limits.maxEventBytes", l.MaxEventBytes, 1_024, maxBytes)
		if l.MaxAttempts != nil {
			c.between(at+"limits.maxAttempts", int64(*l.MaxAttempts), 1, maxAttempts)
		}
	}
	for path, rule := range rulesIn(c, at+"providerErrorRules", s.ProviderErrorRules) {
		c.number(path+".status", rule.Status, 100, 599)
		c.text(path+".match", rule.Match, maxMatch)
		c.oneOf(path+".scope", string(rule.Scope), ruleScopes)
		c.reason(path+".reason", rule.Reason)
		c.between(path+".cooldownMs", rule.CooldownMs, 0, maxCooldownMs)
	}
	for path, rule := range rulesIn(c, at+"statusRestatements", s.StatusRestatements) {
		c.ruleID(path, rule.ID)
		c.count(path+".fromStatuses", len(rule.FromStatuses), 1, maxMarkers)
		for i, status := range rule.FromStatuses {
			c.number(fmt.Sprintf("%s.fromStatuses[%d]", path, i), status, 100, 599)
		}
		c.number(path+".toStatus", rule.ToStatus, 400, 599)
		c.count(path+".textMarkers", len(rule.TextMarkers), 1, maxMarkers)
		c.texts(path+".textMarkers", rule.TextMarkers)
		c.count(path+".excludeMarkers", len(rule.ExcludeMarkers), 0, maxMarkers)
		c.texts(path+".excludeMarkers", rule.ExcludeMarkers)
		c.between(path+".defaultRetryAfterMs", rule.DefaultRetryAfterMs, 0, maxCooldownMs)
	}
	for path, rule := range rulesIn(c, at+"responsePredicates", s.ResponsePredicates) {
		c.ruleID(path, rule.ID)
		switch {
		case rule.Contains == "" && rule.Path == "" && c.decoded(path+".contains") && c.decoded(path+".path"):
			c.bad(path, "needs contains or path")
		case rule.Equals != "" && rule.Path == "" && c.decoded(path+".path"):
			c.bad(path+".equals", "has a meaning only beside path")
		}
		for name, text := range map[string]string{"contains": rule.Contains, "path": rule.Path, "equals": rule.Equals} {
			if text != "" {
				c.text(path+"."+name, text, maxMatch)
			}
		}
		if rule.Status != 0 {
			c.number(path+".status", rule.Status, 400, 599)
		}
		c.reason(path+".reason", rule.Reason)
	}
	c.count(at+"customBannedSignals", len(s.CustomBannedSignals), 0, maxSignals)
	c.texts(at+"customBannedSignals", s.CustomBannedSignals)
	c.comboSettings(at, s)
}

// rulesIn checks the names and the number of the rules of a section and yields each with its
// path, in the order of the providers' names.
func rulesIn[T any](c *checker, at string, rules map[string][]T) func(yield func(string, T) bool) {
	names := keys(rules)
	slices.Sort(names)
	total := 0
	for _, name := range names {
		if path := at + "." + name; strings.TrimSpace(name) == "" {
			c.bad(path, "the name of a provider is empty")
		} else if problem := badName(name, maxRuleName); problem != "" {
			c.bad(path, "the name of a provider %s", problem)
		}
		total += len(rules[name])
	}
	if total > maxRules {
		c.bad(at, "has %d rules, at most %d are allowed", total, maxRules)
	}
	return func(yield func(string, T) bool) {
		for _, name := range names {
			for i, rule := range rules[name] {
				if !yield(fmt.Sprintf("%s.%s[%d]", at, name, i), rule) {
					return
				}
			}
		}
	}
}

// strangers are warnings about rules for what is neither a provider nor the kind of one.
func (s *DocSettings) strangers(providers []DocProvider) []string {
	known := map[string]bool{}
	for _, p := range providers {
		known[string(p.ID)], known[p.Kind] = true, true
	}
	var warnings []string
	find := func(section string, names []string) {
		slices.Sort(names)
		for _, name := range names {
			if !known[name] {
				warnings = append(warnings, fmt.Sprintf("settings.%s: %q is neither a provider nor the kind of one; its rules have no effect", section, name))
			}
		}
	}
	find("providerErrorRules", keys(s.ProviderErrorRules))
	find("statusRestatements", keys(s.StatusRestatements))
	find("responsePredicates", keys(s.ResponsePredicates))
	for _, name := range sorted(keys(s.ProviderOverrides)) {
		if !slices.ContainsFunc(providers, func(p DocProvider) bool { return string(p.ID) == name }) {
			warnings = append(warnings, fmt.Sprintf("settings.providerOverrides: there is no provider %q; its entry has no effect", name))
		}
	}
	return warnings
}

func (c *checker) ruleID(path, id string) {
	if c.required(path+".id", id) {
		if problem := badName(id, maxRuleName); problem != "" {
			c.bad(path+".id", "%s", problem)
		}
	}
}

func (c *checker) reason(path string, reason models.Reason) {
	if reason != "" {
		c.oneOf(path, string(reason), ruleReasons)
	}
}

// number is between for a value without which its rule means nothing.
func (c *checker) number(path string, value int, low, high int64) {
	if value == 0 && c.decoded(path) {
		c.bad(path, "is required, from %d to %d", low, high)
		return
	}
	c.between(path, int64(value), low, high)
}

func (c *checker) count(path string, n, low, high int) {
	switch {
	case !c.decoded(path):
	case n < low:
		c.bad(path, "needs at least %d", low)
	case n > high:
		c.bad(path, "has %d entries, at most %d are allowed", n, high)
	}
}

func (c *checker) texts(path string, texts []string) {
	for i, text := range texts {
		c.text(fmt.Sprintf("%s[%d]", path, i), text, maxMatch)
	}
}

// text checks what is looked for in an answer.
func (c *checker) text(path, text string, longest int) {
	if !c.decoded(path) {
		return
	}
	switch n := utf8.RuneCountInString(text); {
	case strings.TrimSpace(text) == "":
		c.bad(path, "is empty; it would be found in everything")
	case n > longest:
		c.bad(path, "must have 1 to %d characters, this one has %d", longest, n)
	}
}
