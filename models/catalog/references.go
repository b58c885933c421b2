package catalog

import (
	"fmt"
	"slices"
	"strings"

	"omniroute/models"
)

// universe is what references can point to: the names of a whole catalog.
type universe struct {
	providers   map[models.ProviderID]*DocProvider
	connections map[models.ConnectionID]*DocConnection
	models      map[models.ModelRef]*DocModel
	combos      map[string]*DocCombo
	bare        map[string]int // how many providers have a model of this id
	settings    *DocSettings

	byProvider map[models.ProviderID][]string // see modelsOf
	longest    map[string][]string            // see chains
}

func newUniverse(d *Document) *universe {
	u := &universe{
		providers:   map[models.ProviderID]*DocProvider{},
		connections: map[models.ConnectionID]*DocConnection{},
		models:      map[models.ModelRef]*DocModel{},
		combos:      map[string]*DocCombo{},
		bare:        map[string]int{},
		settings:    d.Settings,
	}
	for i := range d.Providers {
		u.providers[d.Providers[i].ID] = &d.Providers[i]
	}
	for i := range d.Connections {
		u.connections[d.Connections[i].ID] = &d.Connections[i]
	}
	for i := range d.Models {
		u.models[models.ModelRef{Provider: d.Models[i].Provider, Model: d.Models[i].ID}] = &d.Models[i]
		u.bare[d.Models[i].ID]++
	}
	for i := range d.Combos {
		u.combos[d.Combos[i].Name] = &d.Combos[i]
	}
	return u
}

// references finds the document's references that point to nothing in the universe, which
// where describes for the message. Empty references are missing fields, which have their own
// problem.
func (d *Document) references(u *universe, where string) []Problem {
	r := &referrer{doc: d, u: u, where: where}
	for i, c := range d.Connections {
		r.provider(fmt.Sprintf("connections[%d].provider", i), c.Provider)
	}
	for i, m := range d.Models {
		r.provider(fmt.Sprintf("models[%d].provider", i), m.Provider)
	}
	for i := range d.Combos {
		r.combo(fmt.Sprintf("combos[%d]", i), &d.Combos[i])
	}
	for i, key := range d.APIKeys {
		for j, id := range key.AllowedConnections {
			if id != "" && u.connections[id] == nil {
				r.missing(fmt.Sprintf("apiKeys[%d].allowedConnections[%d]", i, j), "connection", string(id), names(u.connections))
			}
		}
		for j, name := range key.AllowedModels {
			r.callable(fmt.Sprintf("apiKeys[%d].allowedModels[%d]", i, j), &name)
		}
	}
	if d.Settings != nil {
		r.settings("settings.", d.Settings)
	}
	return r.problems
}

// referrer gathers references that point to nothing.
type referrer struct {
	doc      *Document
	u        *universe
	where    string
	problems []Problem
}

func (r *referrer) bad(path, format string, args ...any) {
	r.problems = append(r.problems, r.doc.problem(path, format, args...))
}

func (r *referrer) missing(path, kind, name string, candidates []string) {
	r.bad(path, "there is no %s %q%s%s", kind, name, r.where, maybe(name, candidates))
}

func (r *referrer) provider(path string, id models.ProviderID) {
	if id != "" && r.u.providers[id] == nil {
		r.missing(path, "provider", string(id), names(r.u.providers))
	}
}

// callable is for the name of something that answers.
func (r *referrer) callable(path string, name *string) {
	if name != nil && *name != "" && !r.u.callable(*name) {
		r.missing(path, "model or combo", *name, r.u.names())
	}
}

func (r *referrer) settings(at string, s *DocSettings) {
	if c := s.ComboDefaults; c != nil {
		r.callable(at+"comboDefaults.judgeModel", c.JudgeModel)
		r.callable(at+"comboDefaults.handoffModel", c.HandoffModel)
	}
	for i, m := range s.ModelMappings {
		if m.Combo != "" && r.u.combos[m.Combo] == nil {
			r.missing(fmt.Sprintf("%smodelMappings[%d].combo", at, i), "combo", m.Combo, keys(r.u.combos))
		}
	}
	if e := s.EmergencyFallback; e != nil && e.Model != nil {
		if ref, ok := models.ParseModelRef(*e.Model); ok && r.u.models[ref] == nil {
			r.missing(at+"emergencyFallback.model", "model", *e.Model, r.u.names())
		}
	}
}

// callable reports whether a client could call the name.
func (u *universe) callable(name string) bool {
	if u.combos[name] != nil || u.bare[name] == 1 || slices.Contains(virtual, name) {
		return true
	}
	if second, ok := strings.CutPrefix(name, comboPrefix); ok && u.combos[second] != nil {
		return true
	}
	ref, ok := models.ParseModelRef(name)
	return ok && u.models[ref] != nil
}

func (u *universe) names() []string {
	all := keys(u.combos)
	for ref := range u.models {
		all = append(all, ref.String())
	}
	return all
}

func names[K ~string, V any](m map[K]V) []string {
	all := make([]string, 0, len(m))
	for name := range m {
		all = append(all, string(name))
	}
	return all
}

// maybe is the tail of a "there is no" message when something near exists.
func maybe(name string, candidates []string) string {
	if near := models.Near(name, candidates); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	return ""
}
