package catalog

import (
	"fmt"
	"slices"

	"omniroute/models"
	"omniroute/models/routing"
)

// Strategies that the catalog itself treats apart.
const (
	strategyAuto     = "auto"
	strategyPipeline = "pipeline"
)

// combos come after the models: a combo's name wins over a model's, and so does its second name,
// which begins with "combo/".
func (b *builder) combos() {
	listed := make(map[string]bool, len(b.snapshot.Names))
	for _, name := range b.snapshot.Names {
		listed[name] = true
	}
	for i := range b.stored.Combos {
		if c := &b.stored.Combos[i]; !c.Disabled {
			b.combo(c)
			b.snapshot.Routes[comboPrefix+c.Name] = b.snapshot.Combos[c.Name].Route
		}
	}
	for name, combo := range b.snapshot.Combos {
		if !listed[name] {
			b.snapshot.Names = append(b.snapshot.Names, name)
		}
		b.snapshot.Routes[name] = combo.Route
	}
}

// combo makes the view of a combo, and of those that it runs as targets; nil while it is being
// made, so that no circle of combos comes about.
func (b *builder) combo(c *DocCombo) *ComboView {
	if view, begun := b.snapshot.Combos[c.Name]; begun {
		return view
	}
	b.snapshot.Combos[c.Name] = nil
	steps := b.expander.steps(c)
	for _, warning := range b.expander.warnings {
		b.warn("%s", warning)
	}
	if c.Strategy == strategyAuto {
		steps = b.pooled(c, steps)
	}
	if len(steps) > maxTargets {
		steps = steps[:maxTargets]
		b.warn("combo %q has more than %d targets; the first %d are used", c.Name, maxTargets, maxTargets)
	}
	config := b.expander.effective(c)
	view := newCombo(c.Name, c.Strategy, &config)
	view.ContextLength = c.ContextLength
	view.Route.Legs = b.legs(c, steps)
	if len(view.Route.Legs) == 0 {
		b.warn("combo %q has no targets", c.Name)
	}
	b.snapshot.Combos[c.Name] = view
	return view
}

func newCombo(name, strategy string, config *ComboConfig) *ComboView {
	view := &ComboView{
		Name: name, Strategy: strategy, Tuning: config.tuning(), Loop: config.loop(), Fusion: config.fusion(), Handoff: config.handoff(),
	}
	view.Route = &Route{Name: name, Combo: view}
	return view
}

// legs are the steps with what serves them.
func (b *builder) legs(c *DocCombo, steps []step) []Leg {
	policies := map[models.ProviderID]TargetPolicy{}
	policy := func(provider models.ProviderID) TargetPolicy {
		if _, known := policies[provider]; !known {
			config := c.Config.Over(b.snapshot.Settings.ProviderOverrides[string(provider)].config()).Over(b.expander.defaults).Effective()
			policies[provider] = config.target()
		}
		return policies[provider]
	}
	legs := make([]Leg, 0, len(steps))
	for _, s := range steps {
		leg := Leg{Key: s.key, Label: s.target.Label, Weight: s.weight, Tags: s.target.Tags, Policy: policy(s.ref.Provider)}
		if c.Strategy == strategyPipeline {
			leg.Prompt = s.target.Prompt
		}
		leg.OnlyOnQuota = c.Strategy == routing.Priority && s.target.FallbackOnlyOnQuotaExhaustion
		if s.unit != "" {
			if leg.Combo = b.combo(b.universe.combos[s.unit]); leg.Combo == nil {
				continue
			}
		} else {
			leg.Model = b.snapshot.Models[s.ref]
			leg.Connections = s.target.servedBy(b.snapshot.Providers[s.ref.Provider])
		}
		legs = append(legs, leg)
	}
	return legs
}

// servedBy is the provider's connections that the target may use.
func (t *DocTarget) servedBy(provider *ProviderView) []*ConnectionView {
	if t.Connection == "" && len(t.AllowedConnections) == 0 {
		return provider.Connections
	}
	var some []*ConnectionView
	for _, c := range provider.Connections {
		if c.ID == t.Connection || slices.Contains(t.AllowedConnections, c.ID) {
			some = append(some, c)
		}
	}
	return some
}

func (b *builder) warn(format string, args ...any) {
	b.snapshot.Warnings = append(b.snapshot.Warnings, fmt.Sprintf(format, args...))
}
