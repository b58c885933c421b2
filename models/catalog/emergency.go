package catalog

import "omniroute/models"

// DefaultEmergencyOutput bounds the answers of the emergency fallback, in tokens.
const DefaultEmergencyOutput = 4_096

const maxEmergencyOutput = 1_000_000

// EmergencySettings name the model that answers a request, never one with tools, when what it
// asked for is out of credit. Nothing is done until one is named.
type EmergencySettings struct {
	Model           *string `json:"model,omitempty" yaml:"model,omitempty"`                     // as provider/model
	Enabled         *bool   `json:"enabled,omitempty" yaml:"enabled,omitempty"`                 // default true
	MaxOutputTokens *int    `json:"maxOutputTokens,omitempty" yaml:"maxOutputTokens,omitempty"` // 1..1000000, default 4096
}

// EmergencyView is the emergency fallback as the hot path sees it.
type EmergencyView struct {
	Route     *Route
	MaxOutput int // tokens
}

func (b *builder) emergency() {
	s := b.snapshot.Settings.EmergencyFallback
	if s.Model == nil || s.Enabled != nil && !*s.Enabled {
		return
	}
	ref, _ := models.ParseModelRef(*s.Model)
	model := b.snapshot.Models[ref]
	if model == nil {
		b.warn("settings.emergencyFallback.model: there is no model %q", *s.Model)
		return
	}
	// Not the route of that name, which may be a combo's.
	b.snapshot.Emergency = &EmergencyView{
		Route:     &Route{Name: ref.String(), Legs: []Leg{b.plainLeg(model)}},
		MaxOutput: *s.effective().MaxOutputTokens,
	}
}

// effective is the settings with every value set but the model, which has no default.
func (s EmergencySettings) effective() EmergencySettings {
	enabled, most := true, DefaultEmergencyOutput
	if s.Enabled == nil {
		s.Enabled = &enabled
	}
	if s.MaxOutputTokens == nil {
		s.MaxOutputTokens = &most
	}
	return s
}
