package catalog

import (
	"regexp"
)

// ModelMapping leads every name that fits a pattern to a combo.
type ModelMapping struct {
	Pattern string `json:"pattern" yaml:"pattern"` // "*" stands for any text; letter case does not count
	Combo   string `json:"combo" yaml:"combo"`
}

// Mapping is a mapping of names that leads to an enabled combo.
type Mapping struct {
	Pattern *regexp.Regexp
	Route   *Route
}

// Resolve finds what a client means by a name: a combo, then what the first mapping that fits the
// name leads to, then a model, then a virtual combo. It is nil when there is none.
func (s *Snapshot) Resolve(name string) *Route {
	route := s.Routes[name]
	if len(s.Mappings) == 0 || route != nil && route.Combo != nil && !route.Combo.Virtual {
		return route
	}
	for i := range s.Mappings {
		if s.Mappings[i].Pattern.MatchString(name) {
			return s.Mappings[i].Route
		}
	}
	return route
}

func (b *builder) mappings() {
	for _, m := range b.snapshot.Settings.ModelMappings {
		combo := b.snapshot.Combos[m.Combo]
		if combo == nil {
			b.warn("settings.modelMappings: %q leads to the combo %q, which is not there or disabled", m.Pattern, m.Combo)
			continue
		}
		b.snapshot.Mappings = append(b.snapshot.Mappings, Mapping{pattern(m.Pattern), combo.Route})
	}
}
