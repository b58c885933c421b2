package relay

import (
	"slices"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// spent is what a request has learned is out for the rest of it, whatever becomes of it for
// others meanwhile: asking again would only ask what has just been answered.
type spent struct {
	providers   []models.ProviderID
	connections []models.ConnectionID
	families    []familyOf
}

// familyOf is a family of models on one connection, or one model where it has none.
type familyOf struct {
	connection models.ConnectionID
	key        resilience.LockKey
}

// learn takes what a verdict puts out beyond the target itself.
func (s *spent) learn(target models.Target, family string, v *failure.Verdict) {
	switch {
	case v.Scope == models.ScopeProvider:
		s.providers = append(s.providers, target.Model.Provider)
	case v.Scope == models.ScopeConnection:
		s.connections = append(s.connections, target.Connection)
	case v.Scope == models.ScopeModel && v.Lock == models.LockFamily:
		s.families = append(s.families, familyOf{target.Connection, resilience.KeyOf(v.Lock, target.Model.Model, family)})
	}
}

// covers reports whether the target, whose model is of the family, is out.
func (s *spent) covers(target models.Target, family string) bool {
	return slices.Contains(s.providers, target.Model.Provider) ||
		slices.Contains(s.connections, target.Connection) ||
		len(s.families) > 0 && slices.Contains(s.families, familyOf{target.Connection, resilience.KeyOf(models.LockFamily, target.Model.Model, family)})
}

// family is the quota family of a model; empty when it has none.
func (r *run) family(model models.ModelRef) string {
	if view := r.snapshot.Models[model]; view != nil {
		return view.Family
	}
	return ""
}
