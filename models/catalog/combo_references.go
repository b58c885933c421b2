package catalog

import (
	"fmt"
	"slices"
	"strings"

	"omniroute/models"
)

// combo finds what a combo points to that is not there, and nesting that cannot be
// worked out.
func (r *referrer) combo(at string, c *DocCombo) {
	for j, provider := range c.AllowedProviders {
		r.provider(fmt.Sprintf("%s.allowedProviders[%d]", at, j), provider)
	}
	config := c.Config.Over(r.u.defaults()).Effective()
	r.callable(at+".config.judgeModel", c.Config.JudgeModel)
	r.callable(at+".config.handoffModel", c.Config.HandoffModel)
	for j := range c.Targets {
		path := fmt.Sprintf("%s.targets[%d]", at, j)
		if t := &c.Targets[j]; t.Combo != "" {
			r.nested(path+".combo", c, t.Combo, &config)
		} else {
			r.target(path, t)
		}
	}
}

func (r *referrer) target(at string, t *DocTarget) {
	ref, ok := models.ParseModelRef(t.Model)
	if !ok {
		return
	}
	switch {
	case t.Wildcard():
		r.provider(at+".model", ref.Provider)
	case r.u.models[ref] == nil:
		r.missing(at+".model", "model", t.Model, r.u.names())
	}
	if t.Connection != "" {
		r.connection(at+".connection", t.Connection, ref.Provider)
	}
	for k, id := range t.AllowedConnections {
		r.connection(fmt.Sprintf("%s.allowedConnections[%d]", at, k), id, ref.Provider)
	}
}

func (r *referrer) connection(path string, id models.ConnectionID, provider models.ProviderID) {
	switch found := r.u.connections[id]; {
	case id == "":
	case found == nil:
		r.missing(path, "connection", string(id), names(r.u.connections))
	case found.Provider != provider:
		r.bad(path, "connection %q belongs to provider %q, the model to %q", id, found.Provider, provider)
	}
}

func (r *referrer) nested(path string, c *DocCombo, name string, config *ComboConfig) {
	if r.u.combos[name] == nil {
		r.missing(path, "combo", name, keys(r.u.combos))
		return
	}
	if *config.NestedComboMode == NestedExecute && !unitStrategies[c.Strategy] {
		r.bad(path, "the strategy %s cannot run a combo as one target; set nestedComboMode to %s, or the strategy to one of %s",
			c.Strategy, NestedFlatten, strings.Join(sorted(keys(unitStrategies)), ", "))
		return
	}
	circle, longest := r.u.nesting([]string{c.Name, name}, r.u.chains())
	switch limit := *config.MaxComboDepth; {
	case name == c.Name:
		r.bad(path, "the combo would be a target of itself")
	case circle != nil:
		r.bad(path, "goes round in a circle: %s", strings.Join(circle, " > "))
	case len(longest) > limit:
		r.bad(path, "nests %d levels deep, at most maxComboDepth = %d are allowed: %s", len(longest), limit,
			strings.Join(append([]string{c.Name}, longest...), " > "))
	}
}

// overlong finds combos of the document that have more targets than a combo may have, once nested
// combos and wildcards are worked out.
func (d *Document) overlong(u *universe) []Problem {
	var problems []Problem
	for i := range d.Combos {
		at := fmt.Sprintf("combos[%d].targets", i)
		if len(d.Combos[i].Targets) <= maxTargets && u.tooMany(&d.Combos[i]) {
			problems = append(problems, d.problem(at, "a combo has at most %d targets, this one has more with its nested combos and wildcards worked out", maxTargets))
		}
	}
	return problems
}

func (u *universe) tooMany(c *DocCombo) bool { return len(u.expander().steps(c)) > maxTargets }

func (u *universe) expander() *expander { return &expander{u: u, defaults: u.defaults()} }

// defaults are what every combo of this catalog begins with.
func (u *universe) defaults() ComboConfig {
	if u.settings == nil || u.settings.ComboDefaults == nil {
		return ComboConfig{}
	}
	return *u.settings.ComboDefaults
}

// chains remembers the longest chain of nested combos from each; see nesting.
func (u *universe) chains() map[string][]string {
	if u.longest == nil {
		u.longest = map[string][]string{}
	}
	return u.longest
}

// nesting finds a chain of nested combos, from the last one of a path on, that comes back to the
// path; else the longest there is, that last one included. Disabled combos count: they may be
// enabled again.
func (u *universe) nesting(path []string, chains map[string][]string) (circle, longest []string) {
	name := path[len(path)-1]
	if known, done := chains[name]; done {
		return nil, known
	}
	if c := u.combos[name]; c != nil {
		for i := range c.Targets {
			inner := c.Targets[i].Combo
			switch {
			case inner == "" || u.combos[inner] == nil:
				continue
			case slices.Contains(path, inner):
				return append(slices.Clone(path), inner), nil
			}
			circle, below := u.nesting(append(path[:len(path):len(path)], inner), chains)
			if circle != nil {
				return circle, nil
			}
			if len(below) > len(longest) {
				longest = below
			}
		}
	}
	longest = append([]string{name}, longest...)
	chains[name] = longest
	return nil, longest
}
