package ingress

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gorilla/mux"

	"omniroute/gateway/dialect/openai"
	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
)

// ownedByUs is the owner of a combo.
const ownedByUs = "omniroute"

// listModels serves GET /v1/models: what the key may use, combos included.
func (e *edge) listModels(w http.ResponseWriter, r *http.Request) {
	snapshot := e.Health.Snapshot()
	key, refusal := e.principal(r, snapshot)
	if refusal != nil {
		e.refuse(w, r, key, refusal)
		return
	}
	list := openai.ModelList{Object: "list", Data: []openai.Model{}}
	for _, name := range snapshot.Names {
		if route := snapshot.Routes[name]; route != nil && visible(key, name, route) {
			list.Data = append(list.Data, describeModel(name, route))
		}
	}
	writeJSON(w, http.StatusOK, list.JSON())
}

// getModel serves GET /v1/models/{id}. The id may hold slashes, plain or escaped.
func (e *edge) getModel(w http.ResponseWriter, r *http.Request) {
	snapshot := e.Health.Snapshot()
	key, refusal := e.principal(r, snapshot)
	if refusal != nil {
		e.refuse(w, r, key, refusal)
		return
	}
	name, err := url.PathUnescape(mux.Vars(r)["id"])
	route := snapshot.Resolve(name)
	if err != nil || route == nil || !visible(key, name, route) {
		hint := ""
		if near := snapshot.Near(name, key.Models); len(near) > 0 {
			hint = " Did you mean " + strings.Join(near, ", ") + "?"
		}
		e.refuse(w, r, key, models.Errorf(models.CodeModelNotFound, "The model %q does not exist.%s", clip(name), hint).WithParam("model"))
		return
	}
	writeJSON(w, http.StatusOK, describeModel(name, route).JSON())
}

// visible reports whether a key may use a route and at least one connection behind it.
func visible(key *catalog.KeyView, name string, route *catalog.Route) bool {
	if !relay.MayUse(key, name, route) {
		return false
	}
	if key.Connections == nil {
		return true
	}
	return served(route, key.Connections)
}

// served reports whether any of the connections is behind a route.
func served(route *catalog.Route, allowed map[models.ConnectionID]bool) bool {
	for _, leg := range route.Legs {
		if leg.Combo != nil && served(leg.Combo.Route, allowed) {
			return true
		}
		for _, conn := range leg.Connections {
			if allowed[conn.ID] {
				return true
			}
		}
	}
	return false
}

func describeModel(name string, route *catalog.Route) openai.Model {
	model := openai.Model{ID: name, Object: "model", OwnedBy: ownedByUs}
	if route.Combo == nil && len(route.Legs) > 0 {
		view := route.Legs[0].Model
		model.OwnedBy = string(view.Ref.Provider)
		if !view.CreatedAt.IsZero() {
			model.Created = view.CreatedAt.Unix()
		}
	}
	return model
}
