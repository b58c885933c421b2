package live

import (
	"sync"

	"omniroute/models/catalog"
	"omniroute/models/routing"
)

// comboMemory is what the strategy of one combo remembers, which one request at a time reads and
// changes.
type comboMemory struct {
	mu     sync.Mutex
	memory routing.Memory
}

// With runs f on what the strategy of a combo remembers, alone. f is short and does not call With.
// What is remembered of a combo that has left the catalog is forgotten; a request that is still
// under way to one gets a memory that nobody else sees.
func (l *Live) With(combo string, f func(*routing.Memory)) {
	m := (*l.memories.Load())[combo]
	if m == nil {
		m = &comboMemory{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.memory)
}

// memories finds what is remembered of a combo; it is replaced as a whole with the catalog.
type memories = map[string]*comboMemory

// remembering are the memories of the combos that a catalog has, those of the one before kept.
func remembering(before memories, snapshot *catalog.Snapshot) *memories {
	next := make(memories, len(snapshot.Combos))
	keep := func(name string) {
		if next[name] == nil {
			next[name] = before[name]
		}
		if next[name] == nil {
			next[name] = &comboMemory{}
		}
	}
	for name := range snapshot.Combos {
		keep(name)
	}
	// Some combos are nobody's entry but follow from the others' names.
	for _, route := range snapshot.Routes {
		if route.Combo != nil {
			keep(route.Combo.Name)
		}
	}
	return &next
}
