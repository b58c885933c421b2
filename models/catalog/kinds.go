package catalog

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"omniroute/models"
)

// Quota is what the operator says of a provider's quotas. What is left out is what the kind
// is known for.
type Quota struct {
	// PerModel says that a 402, 403 or 429 is about a model or its family, not the account.
	PerModel *bool `json:"perModel,omitempty" yaml:"perModel,omitempty"`
	// Families are names with patterns of model ids that share one quota. A "*" stands for any
	// text; letter case does not count. Given, they replace the built-in ones as a whole.
	Families map[string][]string `json:"families,omitzero" yaml:"families,omitzero"`
}

// facts are what is known of a kind of provider without being told (guide sections 3 and 8).
type facts struct {
	perModel bool
	families map[string][]string
	egress   bool // limits count by the address that requests come from
}

// kinds lists the kinds that differ from the rest. A name may end in "*"; all that match
// count together.
var kinds = []struct {
	name string
	facts
}{
	{"codex", facts{perModel: true, families: map[string][]string{
		"spark": {"gpt-5.3-codex-spark", "codex-spark-mini"},
		"codex": {"gpt-5*", "codex*"},
	}}},
	{"gemini", facts{perModel: true}},
	{"github", facts{perModel: true}},
	{"antigravity", facts{perModel: true}},
	{"agy", facts{perModel: true}},
	{"agentrouter", facts{perModel: true}},
	{"opencode", facts{perModel: true}},
	{"opencode-*", facts{perModel: true}},
	{"opencode-go", facts{egress: true}},
	{"opencode-cli", facts{egress: true}},
	{"novita", facts{perModel: true}},
	{"openai-compatible-*", facts{perModel: true}},
	{"anthropic-compatible-*", facts{perModel: true}},
}

// factsOf gathers what is known of a kind and class. A local provider's models share nothing.
func factsOf(kind string, class models.Class) facts {
	found := facts{perModel: class == models.ClassLocal}
	for _, k := range kinds {
		stem, open := strings.CutSuffix(k.name, "*")
		if k.name != kind && (!open || !strings.HasPrefix(kind, stem)) {
			continue
		}
		found.perModel = found.perModel || k.perModel
		found.egress = found.egress || k.egress
		if k.families != nil {
			found.families = k.families
		}
	}
	return found
}

// pattern compiles a name in which "*" stands for any text.
func pattern(glob string) *regexp.Regexp {
	return regexp.MustCompile("(?is)^" + strings.ReplaceAll(regexp.QuoteMeta(glob), `\*`, ".*") + "$")
}

// families finds the quota family of a model.
type families []familyPattern

type familyPattern struct {
	family string
	glob   string
	match  *regexp.Regexp
}

// newFamilies orders the patterns: the more of a name one spells out, the sooner it decides.
func newFamilies(named map[string][]string) families {
	var list families
	for family, globs := range named {
		for _, glob := range globs {
			list = append(list, familyPattern{family, glob, pattern(glob)})
		}
	}
	slices.SortFunc(list, func(a, b familyPattern) int {
		return cmp.Or(cmp.Compare(spelled(b.glob), spelled(a.glob)), cmp.Compare(a.family, b.family), cmp.Compare(a.glob, b.glob))
	})
	return list
}

func spelled(glob string) int { return len(glob) - strings.Count(glob, "*") }

// of is the family of a model; empty when it belongs to none.
func (f families) of(model string) string {
	for _, p := range f {
		if p.match.MatchString(model) {
			return p.family
		}
	}
	return ""
}
