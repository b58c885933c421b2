package catalog

import (
	"sort"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Environment is what a process knows from its environment and stands behind what is stored.
type Environment struct {
	// EgressShared names the kinds of providers, or providers, that limit by the address that
	// requests come from; nil means the built-in ones (guide section 8).
	EgressShared []string
	// Resilience are the defaults that variables replace.
	Resilience resilience.Settings
}

// BuildSnapshot works out what the hot path reads from the stored catalog: indexes, effective
// settings, and every name a client may call.
func BuildSnapshot(s *Stored, e Environment) *Snapshot {
	b := &builder{stored: s, environment: e, universe: newUniverse(&s.Document), families: map[models.ProviderID]families{}, snapshot: &Snapshot{
		Revision:    s.Revision,
		Providers:   make(map[models.ProviderID]*ProviderView, len(s.Providers)),
		Connections: make(map[models.ConnectionID]*ConnectionView, len(s.Connections)),
		Models:      make(map[models.ModelRef]*ModelView, len(s.Models)),
		Combos:      make(map[string]*ComboView, len(s.Combos)),
		Keys:        make(map[[32]byte]*KeyView, len(s.APIKeys)),
		Routes:      make(map[string]*Route, 2*len(s.Models)+len(s.Combos)),
	}}
	b.settings()
	b.providers()
	b.connections()
	b.models()
	b.combos()
	b.virtualCombos()
	b.mappings()
	b.emergency()
	b.keys()
	sort.Strings(b.snapshot.Names)
	return b.snapshot
}

type builder struct {
	stored      *Stored
	environment Environment
	universe    *universe
	expander    *expander
	snapshot    *Snapshot
	families    map[models.ProviderID]families
}

func (b *builder) settings() {
	b.snapshot.Settings = b.stored.Settings.Over(b.environment)
	b.expander = b.universe.expander()
}

// models also routes each model by its full name, and by its bare id where only one
// provider has it.
func (b *builder) models() {
	bare := map[string][]*Route{}
	for _, m := range b.stored.Models {
		provider := b.snapshot.Providers[m.Provider]
		if provider == nil {
			continue
		}
		ref := models.ModelRef{Provider: m.Provider, Model: m.ID}
		view := &ModelView{
			Ref:           ref,
			Family:        b.families[m.Provider].of(m.ID),
			ContextWindow: m.ContextWindow,
			MaxOutput:     m.MaxOutput,
			Price:         m.Price.known(),
			Capabilities:  m.Capabilities,
			CreatedAt:     b.stored.ModelsCreated[ref],
		}
		b.snapshot.Models[ref] = view
		route := &Route{Name: ref.String(), Legs: []Leg{b.plainLeg(view)}}
		b.snapshot.Routes[route.Name] = route
		b.snapshot.Names = append(b.snapshot.Names, route.Name)
		bare[m.ID] = append(bare[m.ID], route)
	}
	for id, routes := range bare {
		// A full name wins over a bare id that happens to look like it.
		if _, taken := b.snapshot.Routes[id]; len(routes) == 1 && !taken {
			b.snapshot.Routes[id] = routes[0]
		}
	}
}

// plainLeg is the one leg of a plain model.
func (b *builder) plainLeg(m *ModelView) Leg {
	return Leg{Key: m.Ref.String(), Model: m, Connections: b.snapshot.Providers[m.Ref.Provider].Connections}
}

func (b *builder) keys() {
	for _, k := range b.stored.APIKeys {
		stored := b.stored.Keys[k.Name]
		view := &KeyView{ID: stored.ID, Name: k.Name, Scopes: map[string]bool{}, ExpiresAt: k.ExpiresAt}
		for _, scope := range k.Scopes {
			view.Scopes[scope] = true
		}
		if len(k.AllowedConnections) > 0 {
			view.Connections = map[models.ConnectionID]bool{}
			for _, id := range k.AllowedConnections {
				view.Connections[id] = true
			}
		}
		if len(k.AllowedModels) > 0 {
			view.Models = b.allowed(k.AllowedModels)
		}
		b.snapshot.Keys[stored.Hash] = view
	}
}

// allowed lists every name of what the listed names mean: whoever may call "openai/gpt-x"
// may call it by its bare id too, and the other way round.
func (b *builder) allowed(listed []string) map[string]bool {
	routes := map[*Route]bool{}
	names := map[string]bool{}
	for _, name := range listed {
		names[name] = true
		if route := b.snapshot.Routes[name]; route != nil {
			routes[route] = true
		}
	}
	for name, route := range b.snapshot.Routes {
		if routes[route] {
			names[name] = true
		}
	}
	return names
}
