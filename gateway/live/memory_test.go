package live_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models/catalog"
	"omniroute/models/routing"
)

// withCombos is a catalog that has combos of these names, the last of which is nobody's entry.
func withCombos(names ...string) *catalog.Snapshot {
	s := newCatalog(1)
	s.Combos, s.Routes = map[string]*catalog.ComboView{}, map[string]*catalog.Route{}
	for i, name := range names {
		combo := &catalog.ComboView{Name: name}
		s.Routes["combo/"+name] = &catalog.Route{Name: name, Combo: combo}
		if i < len(names)-1 {
			s.Combos[name] = combo
		}
	}
	return s
}

// memory is where what a combo's strategy remembers is kept.
func (r *replica) memory(combo string) (kept *routing.Memory) {
	r.With(combo, func(m *routing.Memory) { kept = m })
	return kept
}

func TestOneRequestAtATimeSeesWhatACombosStrategyRemembers(t *testing.T) {
	r := newReplica(t, "a", nil, withCombos("best", "auto"))
	var group sync.WaitGroup
	requests := 0
	for range 8 {
		group.Go(func() {
			for range 100 {
				r.With("best", func(*routing.Memory) { requests++ })
			}
		})
	}
	group.Wait()
	require.Equal(t, 800, requests)
}

func TestWhatACombosStrategyRemembersLivesAsLongAsTheCombo(t *testing.T) {
	r := newReplica(t, "a", nil, withCombos("best", "cheap", "auto"))
	best, auto := r.memory("best"), r.memory("auto")
	require.Same(t, best, r.memory("best"))
	require.NotSame(t, best, r.memory("cheap"))

	r.CatalogChanged(withCombos("best", "auto"))
	require.Same(t, best, r.memory("best"))
	require.Same(t, auto, r.memory("auto"), "also of a combo that follows from others' names")
	require.NotSame(t, r.memory("cheap"), r.memory("cheap"), "one that has gone leaves nothing behind")

	r.CatalogChanged(withCombos("cheap", "auto"))
	r.CatalogChanged(withCombos("best", "auto"))
	require.NotSame(t, best, r.memory("best"), "one that comes back is another")
}

func TestAPanicWhileRememberingLocksNobodyOut(t *testing.T) {
	r := newReplica(t, "a", nil, withCombos("best", "auto"))
	require.Panics(t, func() { r.With("best", func(*routing.Memory) { panic("no") }) })
	require.NotNil(t, r.memory("best"))
}
