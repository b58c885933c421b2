package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"omniroute/models"
)

// step is one target of a combo when wildcards and nested combos are worked out: a model, or a
// nested combo that is run as one target.
type step struct {
	key    string // the execution key
	target *DocTarget
	ref    models.ModelRef // of a model
	unit   string          // name of a combo
	weight float64
}

// expander works out the steps of combos. Each has the settings that all combos begin with.
type expander struct {
	u        *universe
	defaults ComboConfig // settings.comboDefaults

	// Of the combo at hand.
	depth    int  // levels of nesting
	execute  bool // its nested combos are run as one target each
	budget   int  // nested combos that are still looked into, which bounds what nesting multiplies
	warnings []string
}

// maxExpansions bounds how many nested combos one combo looks into: with ten levels and two
// hundred targets each, there could be more than any machine can count.
const maxExpansions = 1_000

// steps works out the steps of a combo, at most one more than a combo may have. Whatever is not
// there, or goes round in a circle, is left out: a catalog is refused for that when it is
// applied. Warnings are about the combo's own targets.
func (x *expander) steps(c *DocCombo) []step {
	config := x.effective(c)
	x.depth, x.execute = *config.MaxComboDepth, *config.NestedComboMode == NestedExecute
	x.budget, x.warnings = maxExpansions, nil
	return x.expand(c, []string{c.Name})
}

func (x *expander) effective(c *DocCombo) ComboConfig { return c.Config.Over(x.defaults).Effective() }

// expand lays out one combo. path names the combos from the outermost one to it.
func (x *expander) expand(c *DocCombo, path []string) []step {
	var steps []step
	taken := map[string]bool{}
	targets := c.inTiers()
	for i := range targets {
		if t := &targets[i]; !t.Wildcard() {
			taken[t.StepID()], taken[keyOf(t.Model, t.Connection)] = true, true
		}
	}
	for i := range targets {
		t := &targets[i]
		switch {
		case len(steps) > maxTargets:
			return steps
		case t.Combo != "":
			steps = append(steps, x.nested(c, t, path)...)
		case t.Wildcard():
			steps = append(steps, x.wildcard(c, t, taken, len(path) == 1)...)
		default:
			if ref, ok := models.ParseModelRef(t.Model); ok && x.u.models[ref] != nil && c.allows(ref.Provider) {
				steps = append(steps, step{key: t.StepID(), target: t, ref: ref, weight: t.Weight})
			}
		}
	}
	return steps
}

// wildcard is every model that fits, in the order of their names, without those that the combo
// has as targets of their own or has already. They share the target's weight.
func (x *expander) wildcard(c *DocCombo, t *DocTarget, taken map[string]bool, tell bool) []step {
	provider, glob, _ := strings.Cut(t.Model, "/")
	if !c.allows(models.ProviderID(provider)) {
		return nil
	}
	fits := pattern(glob)
	var steps []step
	matched := false
	for _, id := range x.u.modelsOf(models.ProviderID(provider)) {
		if !fits.MatchString(id) {
			continue
		}
		matched = true
		ref := models.ModelRef{Provider: models.ProviderID(provider), Model: id}
		own := keyOf(ref.String(), t.Connection)
		if taken[own] {
			continue
		}
		taken[own] = true
		key := own
		if t.ID != "" {
			key = t.ID + keySeparator + own
		}
		steps = append(steps, step{key: key, target: t, ref: ref})
	}
	if !matched && tell {
		x.warn("combo %q: no model fits the target %q", c.Name, t.Model)
	}
	for i := range steps {
		steps[i].weight = t.Weight / float64(len(steps))
	}
	return steps
}

// nested is the steps of a nested combo in the place of the target, or the combo as one step. Its
// steps share the target's weight as they would share requests among themselves.
func (x *expander) nested(c *DocCombo, t *DocTarget, path []string) []step {
	inner := x.u.combos[t.Combo]
	switch {
	case inner == nil || slices.Contains(path, t.Combo) || len(path) > x.depth || x.budget == 0:
		return nil
	case inner.Disabled:
		if len(path) == 1 {
			x.warn("combo %q: the nested combo %q is disabled", c.Name, t.Combo)
		}
		return nil
	}
	x.budget--
	if x.execute {
		return []step{{key: t.StepID(), target: t, unit: t.Combo, weight: t.Weight}}
	}
	steps := x.expand(inner, append(path[:len(path):len(path)], t.Combo))
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.unit == "" && !c.allows(s.ref.Provider) })
	sum := 0.0
	for i := range steps {
		sum += steps[i].weight
	}
	for i := range steps {
		s := &steps[i]
		s.key = t.StepID() + keySeparator + s.key
		if sum > 0 {
			s.weight *= t.Weight / sum
		} else {
			s.weight = t.Weight / float64(len(steps))
		}
	}
	return steps
}

func (x *expander) warn(format string, args ...any) {
	x.warnings = append(x.warnings, fmt.Sprintf(format, args...))
}

// allows reports whether the combo may use a provider.
func (c *DocCombo) allows(provider models.ProviderID) bool {
	return len(c.AllowedProviders) == 0 || slices.Contains(c.AllowedProviders, provider)
}

// modelsOf lists the ids of a provider's models in their order.
func (u *universe) modelsOf(provider models.ProviderID) []string {
	if u.byProvider == nil {
		u.byProvider = map[models.ProviderID][]string{}
		for ref := range u.models {
			u.byProvider[ref.Provider] = append(u.byProvider[ref.Provider], ref.Model)
		}
		for _, ids := range u.byProvider {
			slices.SortFunc(ids, cmp.Compare[string])
		}
	}
	return u.byProvider[provider]
}
