package catalog

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// DocSettings are the sections of the operator's settings, as a file and the database have
// them. A section that is present replaces the stored one as a whole; one that is present and
// empty takes it away.
type DocSettings struct {
	Resilience          *resilience.Settings              `json:"resilience,omitempty" yaml:"resilience,omitempty"`
	Timeouts            *TimeoutSettings                  `json:"timeouts,omitempty" yaml:"timeouts,omitempty"`
	Limits              *LimitSettings                    `json:"limits,omitempty" yaml:"limits,omitempty"`
	ProviderErrorRules  map[string][]failure.OperatorRule `json:"providerErrorRules,omitempty" yaml:"providerErrorRules,omitempty"`
	StatusRestatements  map[string][]failure.Restatement  `json:"statusRestatements,omitempty" yaml:"statusRestatements,omitempty"`
	ResponsePredicates  map[string][]failure.Predicate    `json:"responsePredicates,omitempty" yaml:"responsePredicates,omitempty"`
	CustomBannedSignals []string                          `json:"customBannedSignals,omitempty" yaml:"customBannedSignals,omitempty"`
	// ComboDefaults are what every combo begins with; ProviderOverrides, by the provider's id, are
	// what its targets begin with then.
	ComboDefaults     *ComboConfig            `json:"comboDefaults,omitempty" yaml:"comboDefaults,omitempty"`
	ProviderOverrides map[string]TargetConfig `json:"providerOverrides,omitempty" yaml:"providerOverrides,omitempty"`
	ModelMappings     []ModelMapping          `json:"modelMappings,omitempty" yaml:"modelMappings,omitempty"`
	EmergencyFallback *EmergencySettings      `json:"emergencyFallback,omitempty" yaml:"emergencyFallback,omitempty"`
}

var sectionNames = func() []string {
	t := reflect.TypeFor[DocSettings]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
	}
	return names
}()

// SettingSections lists the names of the sections in the order of the document.
func SettingSections() []string { return slices.Clone(sectionNames) }

// Section returns one section as JSON; nil when it is absent or the name is not known.
func (s *DocSettings) Section(name string) ([]byte, error) {
	v := s.section(name)
	if !v.IsValid() || v.IsNil() {
		return nil, nil
	}
	return json.Marshal(v.Interface())
}

// SetSection reads one section from its JSON; a name that is not known is left alone, since an
// older version may meet the sections of a newer one.
func (s *DocSettings) SetSection(name string, value []byte) error {
	v := s.section(name)
	if !v.IsValid() {
		return nil
	}
	if err := json.Unmarshal(value, v.Addr().Interface()); err != nil {
		return fmt.Errorf("settings section %q: %w", name, err)
	}
	return nil
}

func (s *DocSettings) section(name string) reflect.Value {
	i := slices.Index(sectionNames, name)
	if i < 0 {
		return reflect.Value{}
	}
	return reflect.ValueOf(s).Elem().Field(i)
}

// Over is the settings as they are in force, over what the environment says.
func (s *DocSettings) Over(e Environment) Settings {
	if s == nil {
		s = &DocSettings{}
	}
	settings := Settings{
		Resilience:          e.Resilience,
		ProviderErrorRules:  s.ProviderErrorRules,
		StatusRestatements:  s.StatusRestatements,
		ResponsePredicates:  s.ResponsePredicates,
		CustomBannedSignals: s.CustomBannedSignals,
		ProviderOverrides:   s.ProviderOverrides,
		ModelMappings:       s.ModelMappings,
	}
	if s.Resilience != nil {
		settings.Resilience = s.Resilience.Over(e.Resilience)
	}
	if s.Timeouts != nil {
		settings.Timeouts = *s.Timeouts
	}
	if s.Limits != nil {
		settings.Limits = *s.Limits
	}
	if s.ComboDefaults != nil {
		settings.ComboDefaults = *s.ComboDefaults
	}
	if s.EmergencyFallback != nil {
		settings.EmergencyFallback = *s.EmergencyFallback
	}
	return settings
}

// PlanSettings works out what the new settings change of the stored ones; a section that is
// absent or empty goes.
func PlanSettings(stored, settings *DocSettings) (*Diff, *DocSettings) {
	p := &planner{
		stored: &Stored{Document: Document{Settings: stored}}, doc: &Document{Settings: settings}, prune: true, diff: &Diff{},
	}
	result := p.settings()
	return p.diff, result
}

// FitSettings refuses, with a *DocumentError, new settings that name a model or a combo which is
// not in the catalog, or with which its combos do not go.
func (s *Stored) FitSettings(settings *DocSettings) error {
	after := s.Document
	after.Settings = settings
	u := newUniverse(&after)
	r := &referrer{doc: &Document{}, u: u}
	r.settings("", settings)
	combos := &Document{Combos: s.Combos}
	for _, p := range combos.references(u, "") {
		r.problems = append(r.problems, Problem{Path: combos.storedPath(p.Path), Message: p.Message})
	}
	if len(r.problems) > 0 {
		return newDocumentError("settings", r.problems)
	}
	return nil
}

// settings lays the document's sections over the stored ones. Each section is an entity of
// the diff, with its leaves as fields.
func (p *planner) settings() *DocSettings {
	stored, written := p.stored.Settings, p.doc.Settings
	if stored == nil {
		stored = &DocSettings{}
	}
	result := *stored
	if written == nil {
		return &result
	}
	for _, name := range sectionNames {
		into := result.section(name)
		into.Set(p.section(name, stored.section(name), written.section(name)))
	}
	return &result
}

func (p *planner) section(name string, stored, written reflect.Value) reflect.Value {
	old, now := leaves("", stored.Interface()), leaves("", written.Interface())
	change := Change{Action: ActionUpdate, Kind: KindSetting, ID: name}
	switch {
	case written.IsNil() && !p.prune:
		return stored
	case len(now) == 0:
		// A section without a value is a section that is not there.
		if len(old) == 0 {
			return reflect.Zero(stored.Type())
		}
		written, change.Action = reflect.Zero(stored.Type()), ActionDelete
	case len(old) == 0:
		change.Action, change.Fields = ActionCreate, changedFields(nil, now, false)
	default:
		if change.Fields = changedFields(old, now, false); len(change.Fields) == 0 {
			return stored
		}
	}
	p.diff.Changes = append(p.diff.Changes, change)
	return written
}
