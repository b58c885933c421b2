package catalog

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"omniroute/models"
	"omniroute/models/routing"
)

// Bounds of combos.
const (
	maxTargets       = 200 // nested combos and wildcards worked out
	maxWeight        = 100
	maxDescription   = 2_000
	maxPrompt        = 20_000
	maxLabel         = 200
	maxTags          = 20
	maxTag           = 100
	maxListed        = 100 // entries of an allow-list
	minContextLength = 1_000
	maxContextLength = 2_000_000
	maxTiers         = 50
	maxModelMappings = 200
)

// unitStrategies are those that can run a nested combo as one target.
var unitStrategies = map[string]bool{
	routing.Priority: true, "weighted": true, "round-robin": true, "random": true, "strict-random": true, "fill-first": true,
}

func (c *checker) combos() {
	seen := map[string]string{}
	for i := range c.doc.Combos {
		combo, at := &c.doc.Combos[i], fmt.Sprintf("combos[%d]", i)
		if c.required(at+".name", combo.Name) {
			if !comboPattern.MatchString(combo.Name) {
				c.bad(at+".name", "must be 1 to 100 letters, digits, spaces or any of _ / . - [ ]")
			}
			c.once(at+".name", combo.Name, seen)
		}
		c.oneOf(at+".strategy", combo.Strategy, routing.Strategies())
		c.prose(at+".description", combo.Description, maxDescription)
		listedIn(c, at+".allowedProviders", combo.AllowedProviders)
		if combo.ContextLength != 0 {
			c.between(at+".contextLength", int64(combo.ContextLength), minContextLength, maxContextLength)
		}
		c.comboConfig(at+".config", combo.Config, ScopeCombo)
		c.targets(at+".targets", combo)
		c.tiers(at+".config.compositeTiers", combo)
	}
}

func (c *checker) targets(at string, combo *DocCombo) {
	switch n := len(combo.Targets); {
	case !c.decoded(at):
		return
	case n == 0 && combo.Strategy != strategyAuto:
		c.bad(at, "a combo needs at least one target, at most %d", maxTargets)
	case n > maxTargets:
		c.bad(at, "a combo has at most %d targets, this one has %d", maxTargets, n)
	}
	seen := map[string]string{}
	for i := range combo.Targets {
		c.target(fmt.Sprintf("%s[%d]", at, i), combo, &combo.Targets[i], seen)
	}
}

func (c *checker) target(at string, combo *DocCombo, t *DocTarget, seen map[string]string) {
	switch {
	case t.Combo != "" && t.Model != "":
		c.bad(at+".combo", "a target is a model or a combo, not both")
	case t.Combo != "":
		c.unit(at, t)
	case c.decoded(at+".combo") && c.required(at+".model", t.Model):
		c.model(at+".model", t)
	}
	if id := t.ID; id != "" {
		t.ID = ""
		if t.StepID() != id { // else it says nothing
			t.ID = id
		}
		if problem := badName(id, maxLabel); problem != "" {
			c.bad(at+".id", "%s", problem)
		}
		if strings.Contains(id, keySeparator) {
			c.bad(at+".id", "must not contain %q, which stands between the ids of nested combos", keySeparator)
		}
	}
	if id := t.StepID(); id != "" {
		if first, twice := seen[id]; twice {
			c.bad(at, "%q is already at %s, line %d; give one of them an id", id, first, c.doc.line(first))
		} else {
			seen[id] = at
		}
	}
	c.within(at+".weight", t.Weight, 0, maxWeight)
	c.prose(at+".label", t.Label, maxLabel)
	c.count(at+".tags", len(t.Tags), 0, maxTags)
	for i, tag := range t.Tags {
		c.text(fmt.Sprintf("%s.tags[%d]", at, i), tag, maxTag)
	}
	if t.Prompt != "" {
		if combo.Strategy != strategyPipeline {
			c.bad(at+".prompt", "has a meaning only in a combo of the strategy %s", strategyPipeline)
		} else if n := utf8.RuneCountInString(t.Prompt); n > maxPrompt {
			c.bad(at+".prompt", "must have 1 to %d characters, this one has %d", maxPrompt, n)
		}
	}
	if t.FallbackOnlyOnQuotaExhaustion && combo.Strategy != routing.Priority {
		c.bad(at+".fallbackOnlyOnQuotaExhaustion", "has a meaning only in a combo of the strategy %s", routing.Priority)
	}
}

func (c *checker) model(path string, t *DocTarget) {
	ref, ok := models.ParseModelRef(t.Model)
	switch {
	case len(t.Model) > maxModelLength:
		c.bad(path, "must have at most %d characters", maxModelLength)
	case !ok:
		c.bad(path, "must be written provider/model")
	case strings.Contains(string(ref.Provider), "*"):
		c.bad(path, "the provider must be written out; * stands for any text of a model's id")
	}
	at := strings.TrimSuffix(path, ".model")
	listedIn(c, at+".allowedConnections", t.AllowedConnections)
	if t.Connection != "" && len(t.AllowedConnections) > 0 {
		c.bad(at+".allowedConnections", "is of no use beside connection, which names the only one")
	}
}

// unit checks a target that is a combo: what is said of accounts has no place there.
func (c *checker) unit(at string, t *DocTarget) {
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"connection", t.Connection != ""},
		{"allowedConnections", len(t.AllowedConnections) > 0},
		{"tags", len(t.Tags) > 0},
		{"prompt", t.Prompt != ""},
		{"fallbackOnlyOnQuotaExhaustion", t.FallbackOnlyOnQuotaExhaustion},
	} {
		if field.set {
			c.bad(at+"."+field.name, "has no meaning for a nested combo; set it on the targets of %q", t.Combo)
		}
	}
}

func (c *checker) tiers(at string, combo *DocCombo) {
	tiers := combo.Config.CompositeTiers
	if tiers == nil || !c.decoded(at) {
		return
	}
	names := keys(tiers.Tiers)
	c.count(at+".tiers", len(names), 1, maxTiers)
	c.oneOf(at+".defaultTier", tiers.DefaultTier, names)
	var steps []string
	for i := range combo.Targets {
		steps = append(steps, combo.Targets[i].StepID())
	}
	taken := map[string]string{}
	for _, name := range sorted(names) {
		tier, path := tiers.Tiers[name], at+".tiers."+name
		if problem := badName(name, maxLabel); name == "" || problem != "" {
			c.bad(path, "the name of a tier must have 1 to %d characters, none of them a control character", maxLabel)
		}
		c.oneOf(path+".stepId", tier.StepID, steps)
		if first, twice := taken[tier.StepID]; twice && tier.StepID != "" {
			c.bad(path+".stepId", "%q is already the target of the tier %q", tier.StepID, first)
		}
		taken[tier.StepID] = name
		if tier.FallbackTier != "" {
			c.oneOf(path+".fallbackTier", tier.FallbackTier, names)
		}
	}
}

// comboSettings checks the sections of settings that are about combos.
func (c *checker) comboSettings(at string, s *DocSettings) {
	if s.ComboDefaults != nil {
		c.comboConfig(at+"comboDefaults", *s.ComboDefaults, ScopeDefaults)
	}
	for _, name := range sorted(keys(s.ProviderOverrides)) {
		path := at + "providerOverrides." + name
		if !idPattern.MatchString(name) {
			c.bad(path, "the name of a provider %s", badID)
		}
		c.comboConfig(path, s.ProviderOverrides[name].config(), ScopeTarget)
	}
	c.count(at+"modelMappings", len(s.ModelMappings), 0, maxModelMappings)
	seen := map[string]string{}
	for i, m := range s.ModelMappings {
		path := fmt.Sprintf("%smodelMappings[%d]", at, i)
		if c.required(path+".pattern", m.Pattern) {
			if problem := badName(m.Pattern, maxModelLength); problem != "" {
				c.bad(path+".pattern", "%s", problem)
			}
			c.once(path+".pattern", m.Pattern, seen)
		}
		c.required(path+".combo", m.Combo)
	}
	if e := s.EmergencyFallback; e != nil {
		if e.Model != nil {
			if _, ok := models.ParseModelRef(*e.Model); !ok && c.decoded(at+"emergencyFallback.model") {
				c.bad(at+"emergencyFallback.model", "must be written provider/model, not %q", *e.Model)
			}
		}
		if e.MaxOutputTokens != nil {
			c.between(at+"emergencyFallback.maxOutputTokens", int64(*e.MaxOutputTokens), 1, maxEmergencyOutput)
		}
	}
}

// prose checks text that may be empty.
func (c *checker) prose(path, text string, longest int) {
	if !c.decoded(path) || text == "" {
		return
	}
	if n := utf8.RuneCountInString(text); n > longest {
		c.bad(path, "must have at most %d characters, this one has %d", longest, n)
	} else if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
		c.bad(path, "contains a control character")
	}
}

// listedIn checks an allow-list; that its entries are there is a reference.
func listedIn[S ~string](c *checker, path string, entries []S) {
	c.count(path, len(entries), 0, maxListed)
	seen := map[S]int{}
	for i, entry := range entries {
		at := fmt.Sprintf("%s[%d]", path, i)
		if first, twice := seen[entry]; twice {
			c.bad(at, "%q is already at %s[%d]", string(entry), path, first)
		} else if c.required(at, string(entry)) {
			seen[entry] = i
		}
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
