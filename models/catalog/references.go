package catalog

import (
	"fmt"

	"omniroute/models"
)

// universe is what references can point to: the names of a whole catalog.
type universe struct {
	providers   map[models.ProviderID]*DocProvider
	connections map[models.ConnectionID]*DocConnection
	models      map[models.ModelRef]*DocModel
	combos      map[string]*DocCombo
	bare        map[string]int // how many providers have a model of this id
}

func newUniverse(d *Document) *universe {
	u := &universe{
		providers:   map[models.ProviderID]*DocProvider{},
		connections: map[models.ConnectionID]*DocConnection{},
		models:      map[models.ModelRef]*DocModel{},
		combos:      map[string]*DocCombo{},
		bare:        map[string]int{},
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
	var problems []Problem
	bad := func(path, format string, args ...any) {
		problems = append(problems, d.problem(path, format, args...))
	}
	missing := func(path, kind, name string, candidates []string) {
		bad(path, "there is no %s %q%s%s", kind, name, where, maybe(name, candidates))
	}
	provider := func(path string, id models.ProviderID) {
		if id != "" && u.providers[id] == nil {
			missing(path, "provider", string(id), names(u.providers))
		}
	}
	for i, c := range d.Connections {
		provider(fmt.Sprintf("connections[%d].provider", i), c.Provider)
	}
	for i, m := range d.Models {
		provider(fmt.Sprintf("models[%d].provider", i), m.Provider)
	}
	for i, combo := range d.Combos {
		for j, target := range combo.Targets {
			at := fmt.Sprintf("combos[%d].targets[%d]", i, j)
			ref, ok := models.ParseModelRef(target.Model)
			if !ok {
				continue
			}
			if u.models[ref] == nil {
				missing(at+".model", "model", target.Model, u.names())
			}
			switch pinned := u.connections[target.Connection]; {
			case target.Connection == "":
			case pinned == nil:
				missing(at+".connection", "connection", string(target.Connection), names(u.connections))
			case pinned.Provider != ref.Provider:
				bad(at+".connection", "connection %q belongs to provider %q, the model to %q",
					target.Connection, pinned.Provider, ref.Provider)
			}
		}
	}
	for i, key := range d.APIKeys {
		for j, id := range key.AllowedConnections {
			if id != "" && u.connections[id] == nil {
				missing(fmt.Sprintf("apiKeys[%d].allowedConnections[%d]", i, j), "connection", string(id), names(u.connections))
			}
		}
		for j, name := range key.AllowedModels {
			if name != "" && !u.callable(name) {
				missing(fmt.Sprintf("apiKeys[%d].allowedModels[%d]", i, j), "model or combo", name, u.names())
			}
		}
	}
	return problems
}

// callable reports whether a client could call the name.
func (u *universe) callable(name string) bool {
	if u.combos[name] != nil || u.bare[name] == 1 {
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
