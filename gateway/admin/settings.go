package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// sectionResilience is the section that GET and PATCH /api/resilience are about.
const sectionResilience = "resilience"

// ResilienceDocument is the resilience settings in force: each section as PATCH takes it, and
// what is known of each value.
type ResilienceDocument struct {
	OK bool `json:"ok,omitempty"` // of a change
	resilience.Settings
	// Schema describes every value by its path, such as modelLockout.baseCooldownMs.
	Schema map[string]SettingDocument `json:"schema"`
}

// SettingDocument is what is known of one value.
type SettingDocument struct {
	Value   any               `json:"value"`
	Default any               `json:"default"` // what it is when it is not set
	Source  resilience.Source `json:"source"`
	Type    resilience.Kind   `json:"type"`
	// Min and Max bound a number, or each entry of a list, beside the other values as they are.
	Min         *int64 `json:"min,omitempty"`
	Max         *int64 `json:"max,omitempty"`
	Unit        string `json:"unit,omitempty"`
	Env         string `json:"env,omitempty"` // variable that replaces the built-in default
	Description string `json:"description"`
}

// SettingsDocument is every section of the operator's settings in force.
type SettingsDocument struct {
	OK bool `json:"ok,omitempty"` // of a change
	catalog.EffectiveSettings
}

// settingsView is one of the two documents that settings are shown as.
type settingsView struct {
	section  string // that it is about; empty for all
	document func(stored *catalog.DocSettings, e catalog.Environment, changed bool) any
}

var (
	resilienceView = settingsView{sectionResilience, describeResilience}
	allSettings    = settingsView{"", func(stored *catalog.DocSettings, e catalog.Environment, changed bool) any {
		return SettingsDocument{changed, stored.Over(e).Effective()}
	}}
)

func describeResilience(stored *catalog.DocSettings, e catalog.Environment, changed bool) any {
	var settings resilience.Settings
	if stored.Resilience != nil {
		settings = *stored.Resilience
	}
	document := ResilienceDocument{
		OK: changed, Settings: settings.Over(e.Resilience).Effective(), Schema: map[string]SettingDocument{},
	}
	for _, v := range settings.Values(e.Resilience) {
		d := SettingDocument{
			Value: v.Effective, Default: v.Otherwise, Source: v.Source, Type: v.Kind, Unit: v.Unit, Env: v.Env, Description: v.Meaning,
		}
		if v.Kind != resilience.KindSwitch {
			d.Min, d.Max = &v.Low, &v.High
		}
		document.Schema[v.Path] = d
	}
	return document
}

// tag is the strong entity tag of the view of settings (RFC 9110, section 8.8.3).
func (v settingsView) tag(stored *catalog.DocSettings, e catalog.Environment) (string, error) {
	text, err := json.Marshal(v.document(stored, e, false))
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:]) + `"`, nil
}

// answerSettings shows settings with their tag.
func (s *Service) answerSettings(w http.ResponseWriter, v settingsView, stored *catalog.DocSettings, changed bool) error {
	tag, err := v.tag(stored, s.o.Environment)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	answer(w, http.StatusOK, v.document(stored, s.o.Environment, changed))
	return nil
}

// changeSettings lays a merge patch over the settings, all or nothing. ifMatch is a list of
// entity tags of the view, one of which the settings must still have; empty asks nothing.
func (s *Service) changeSettings(ctx context.Context, actor string, v settingsView, patch map[string]any, ifMatch string) (*catalog.DocSettings, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	var changed *catalog.DocSettings
	_, err := s.o.Store.ChangeSettings(ctx, actor, func(stored *catalog.DocSettings) (*catalog.DocSettings, error) {
		tag, err := v.tag(stored, s.o.Environment)
		if err != nil {
			return nil, err
		}
		if !matches(ifMatch, tag) {
			return nil, models.Errorf(models.CodePreconditionFailed, "The settings are not those of If-Match any more; get them again. Nothing was changed.")
		}
		if changed, err = merged(stored, patch); err != nil {
			return nil, err
		}
		var problems []fieldProblem
		for _, p := range changed.Validate(s.o.Environment) {
			problems = append(problems, fieldProblem{strings.TrimPrefix(p.Path, prefixOf(v.section)), p.Message})
		}
		if len(problems) > 0 {
			return nil, refusedFields(problems)
		}
		return changed, nil
	})
	var dangling *catalog.DocumentError
	if errors.As(err, &dangling) {
		var problems []fieldProblem
		for _, p := range dangling.Problems {
			problems = append(problems, fieldProblem{strings.TrimPrefix(p.Path, prefixOf(v.section)), p.Message})
		}
		return nil, refusedFields(problems)
	}
	if err != nil {
		return nil, databaseError(err)
	}
	return changed, nil
}

func prefixOf(section string) string {
	if section == "" {
		return ""
	}
	return section + "."
}

// matches is the strong comparison of If-Match.
func matches(ifMatch, tag string) bool {
	if ifMatch == "" {
		return true
	}
	for listed := range strings.SplitSeq(ifMatch, ",") {
		if listed = strings.TrimSpace(listed); listed == "*" || listed == tag {
			return true
		}
	}
	return false
}

// serveSettings is GET of a view.
func (s *Service) serveSettings(v settingsView) operation {
	return func(w http.ResponseWriter, r *http.Request, _ principal) error {
		ctx, cancel := context.WithTimeout(r.Context(), databaseTimeout)
		defer cancel()
		stored, err := s.o.Store.Settings(ctx)
		if err != nil {
			return databaseError(err)
		}
		return s.answerSettings(w, v, stored, false)
	}
}

// servePatch is PATCH of a view.
func (s *Service) servePatch(v settingsView) operation {
	return func(w http.ResponseWriter, r *http.Request, who principal) error {
		patch, err := readPatch(w, r, v.section)
		if err != nil {
			return err
		}
		settings, err := s.changeSettings(r.Context(), who.actor, v, patch, strings.Join(r.Header.Values("If-Match"), ","))
		if err != nil {
			return err
		}
		s.o.Log.WithField("actor", who.actor).WithField("sections", sortedKeys(patch)).Info("settings changed")
		return s.answerSettings(w, v, settings, true)
	}
}
