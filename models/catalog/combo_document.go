package catalog

import (
	"slices"
	"strings"

	"omniroute/models"
)

// DocCombo is a combo in a file.
type DocCombo struct {
	Name        string      `yaml:"name"`
	Description string      `yaml:"description,omitempty"`
	Strategy    string      `yaml:"strategy"`
	Targets     []DocTarget `yaml:"targets,omitempty"`
	// AllowedProviders leaves out targets at any other; absent or empty allows all.
	AllowedProviders []models.ProviderID `yaml:"allowedProviders,omitempty"`
	ContextLength    int                 `yaml:"contextLength,omitempty"` // tokens that a request may have; 0 = as its targets
	Disabled         bool                `yaml:"disabled,omitempty"`
	Config           ComboConfig         `yaml:"config,omitempty"`
}

// DocTarget is one leg of a combo in a file: a model as provider/model, perhaps bound to some
// connections; all models of a provider whose id fits a pattern such as provider/gpt-4*; or
// another combo.
type DocTarget struct {
	Model      string              `yaml:"model,omitempty"`
	Connection models.ConnectionID `yaml:"connection,omitempty"`
	// AllowedConnections are those that may serve; absent or empty allows all of the provider.
	AllowedConnections []models.ConnectionID `yaml:"allowedConnections,omitempty"`
	Combo              string                `yaml:"combo,omitempty"`
	Weight             float64               `yaml:"weight,omitempty"`
	// ID names the target in its combo, whatever its position; empty means what it points to.
	ID     string   `yaml:"id,omitempty"`
	Label  string   `yaml:"label,omitempty"` // for people
	Tags   []string `yaml:"tags,omitempty"`
	Prompt string   `yaml:"prompt,omitempty"` // of a step of the strategy pipeline
	// FallbackOnlyOnQuotaExhaustion lets the strategy priority go on to the next target only when
	// every failure of this one was a used-up quota.
	FallbackOnlyOnQuotaExhaustion bool `yaml:"fallbackOnlyOnQuotaExhaustion,omitempty"`
}

// keySeparator stands between the ids of steps in an execution key.
const keySeparator = ">"

// comboPrefix begins the second name of every combo, which no model can take.
const comboPrefix = "combo/"

// StepID is the target's own id, else what it points to.
func (t *DocTarget) StepID() string {
	switch {
	case t.ID != "":
		return t.ID
	case t.Combo != "":
		return comboPrefix + t.Combo
	default:
		return keyOf(t.Model, t.Connection)
	}
}

func keyOf(model string, pinned models.ConnectionID) string {
	if pinned == "" {
		return model
	}
	return model + "@" + string(pinned)
}

// Wildcard reports whether the target stands for every model that fits its pattern.
func (t *DocTarget) Wildcard() bool { return strings.Contains(t.Model, "*") }

// inTiers is the targets in the order of the combo's tiers: from the default one along what each
// falls back on, until a tier is missing or comes again; the other targets follow as they stand.
func (c *DocCombo) inTiers() []DocTarget {
	tiers := c.Config.CompositeTiers
	if tiers == nil {
		return c.Targets
	}
	ordered := make([]DocTarget, 0, len(c.Targets))
	rest := slices.Clone(c.Targets)
	seen := map[string]bool{}
	for name := tiers.DefaultTier; !seen[name]; {
		seen[name] = true
		tier := tiers.Tiers[name]
		if i := slices.IndexFunc(rest, func(t DocTarget) bool { return t.StepID() == tier.StepID }); i >= 0 {
			ordered = append(ordered, rest[i])
			rest = slices.Delete(rest, i, i+1)
		}
		if tier.FallbackTier == "" {
			break
		}
		name = tier.FallbackTier
	}
	return append(ordered, rest...)
}
