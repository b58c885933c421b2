package catalog

import (
	"slices"
	"strings"

	"omniroute/models"
)

// tiers of virtual combos are the packs of weights that they choose by.
var tiers = []struct{ name, pack string }{{"", ""}, {"fast", packFast}, {"cheap", packCheap}, {"reliable", packReliable}}

// categories narrow what virtual combos choose from. The first test that any model passes
// decides; when none does, all models are in.
var categories = []struct {
	name  string
	tests []func(has func(string) bool) bool
}{
	{name: ""},
	{"chat", nil},
	{"coding", oneByOne(CapabilityCoding, CapabilityTools)},
	{"reasoning", oneByOne(CapabilityReasoning)},
	{"vision", oneByOne(CapabilityVision)},
	{"multimodal", []func(func(string) bool) bool{
		func(has func(string) bool) bool {
			return has(CapabilityVision) && (has(CapabilityAudioInput) || has(CapabilityAudioOutput))
		},
		func(has func(string) bool) bool {
			return has(CapabilityVision) || has(CapabilityAudioInput) || has(CapabilityAudioOutput)
		},
	}},
}

func oneByOne(capabilities ...string) (tests []func(func(string) bool) bool) {
	for _, capability := range capabilities {
		tests = append(tests, func(has func(string) bool) bool { return has(capability) })
	}
	return tests
}

// virtual are the names of combos that nobody has to make: auto, auto/<category>, auto/<tier> and
// auto/<category>:<tier>.
var virtual = virtualNames()

func virtualNames() []string {
	var names []string
	for _, category := range categories {
		for _, tier := range tiers {
			names = append(names, virtualName(category.name, tier.name))
		}
	}
	return names
}

func virtualName(category, tier string) string {
	switch {
	case category == "" && tier == "":
		return strategyAuto
	case category == "" || tier == "":
		return strategyAuto + "/" + category + tier
	default:
		return strategyAuto + "/" + category + ":" + tier
	}
}

// virtualCombos chooses from all models that can be used. What the catalog itself has under such
// a name wins.
func (b *builder) virtualCombos() {
	usable := b.usable()
	for _, category := range categories {
		pool := narrow(b, usable, category.tests)
		if category.name == "" && len(pool) > maxTargets {
			b.warn("%s chooses from the first %d of %d models", strategyAuto, maxTargets, len(pool))
		}
		pool = pool[:min(len(pool), maxTargets)]
		var legs []Leg
		for _, tier := range tiers {
			name := virtualName(category.name, tier.name)
			if b.snapshot.Routes[name] != nil {
				continue
			}
			c := &DocCombo{Name: name, Strategy: strategyAuto}
			if tier.pack != "" {
				c.Config.ModePack = &tier.pack
			}
			config := b.expander.effective(c)
			view := newCombo(name, strategyAuto, &config)
			view.Virtual = true
			if legs == nil {
				legs = b.legs(c, pool)
			}
			view.Route.Legs = legs
			b.snapshot.Routes[name] = view.Route
		}
	}
}

// usable lists the models that answer in words and have a connection that is not disabled, by
// name.
func (b *builder) usable() []step {
	var all []step
	for ref, model := range b.snapshot.Models {
		connected := slices.ContainsFunc(b.snapshot.Providers[ref.Provider].Connections, func(c *ConnectionView) bool { return !c.Disabled })
		if connected && !slices.Contains(model.Capabilities, CapabilityEmbeddings) {
			all = append(all, step{key: ref.String(), target: &DocTarget{Model: ref.String()}, ref: ref})
		}
	}
	slices.SortFunc(all, func(x, y step) int { return strings.Compare(x.key, y.key) })
	return all
}

func narrow(b *builder, pool []step, tests []func(has func(string) bool) bool) []step {
	for _, test := range tests {
		var passed []step
		for _, s := range pool {
			if test(func(capability string) bool {
				return slices.Contains(b.snapshot.Models[s.ref].Capabilities, capability)
			}) {
				passed = append(passed, s)
			}
		}
		if len(passed) > 0 {
			return passed
		}
	}
	return pool
}

// pooled is what a combo of the strategy auto chooses from: its targets, or without any all models
// that can be used, narrowed to its candidatePool.
func (b *builder) pooled(c *DocCombo, steps []step) []step {
	if len(c.Targets) == 0 {
		steps = slices.DeleteFunc(b.usable(), func(s step) bool { return !c.allows(s.ref.Provider) })
	}
	config := b.expander.effective(c)
	if len(config.CandidatePool) == 0 {
		return steps
	}
	var pool []step
	for _, s := range steps {
		if slices.ContainsFunc(config.CandidatePool, func(entry string) bool { return inPool(entry, s.ref) }) {
			pool = append(pool, s)
		}
	}
	if len(pool) == 0 {
		b.warn("combo %q: nothing fits its candidatePool, so it chooses from all its targets", c.Name)
		return steps
	}
	return pool
}

// inPool reports whether an entry of a candidatePool, a provider or a pattern of full names,
// fits a model.
func inPool(entry string, ref models.ModelRef) bool {
	if !strings.Contains(entry, "/") {
		return entry == string(ref.Provider)
	}
	return pattern(entry).MatchString(ref.String())
}
