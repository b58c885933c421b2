package feed

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
)

// recorder is a sink that remembers its calls, one line each.
type recorder struct {
	mu       sync.Mutex
	calls    []string
	arrived  chan struct{}
	snapshot *catalog.Snapshot
	states   map[models.ConnectionID]catalog.ConnectionState
	skew     time.Duration
	early    []int64 // eras that came before the catalog of their revision
}

func connectionID(name string) models.ConnectionID { return models.ConnectionID(name) }

func (r *recorder) CatalogChanged(s *catalog.Snapshot) {
	r.mu.Lock()
	r.snapshot = s
	r.mu.Unlock()
	r.note(fmt.Sprint("catalog ", s.Revision))
}

func (r *recorder) StatesChanged(s *catalog.States) {
	r.mu.Lock()
	if r.states == nil {
		r.states = map[models.ConnectionID]catalog.ConnectionState{}
	}
	for _, state := range s.Connections {
		r.states[state.Connection] = state
		if state.Era > r.snapshot.Revision {
			r.early = append(r.early, state.Era)
		}
	}
	r.skew = s.Skew
	r.mu.Unlock()
	if len(s.Connections) > 0 {
		r.note(fmt.Sprint("states ", s.Connections[0].Connection))
	}
}

func (r *recorder) FeedHealth(err error) { r.note(fmt.Sprint("health ", err)) }

func (r *recorder) note(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	if r.arrived != nil {
		close(r.arrived)
		r.arrived = nil
	}
}

// took returns the calls so far and forgets them.
func (r *recorder) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// await waits for a call; what came before it is kept.
func (r *recorder) await(call string) {
	for {
		r.mu.Lock()
		if slices.Contains(r.calls, call) {
			r.mu.Unlock()
			return
		}
		if r.arrived == nil {
			r.arrived = make(chan struct{})
		}
		arrived := r.arrived
		r.mu.Unlock()
		<-arrived
	}
}

// awaitThat waits until what was delivered satisfies the condition.
func (r *recorder) awaitThat(holds func(*recorder) bool) {
	for {
		r.mu.Lock()
		if holds(r) {
			r.mu.Unlock()
			return
		}
		if r.arrived == nil {
			r.arrived = make(chan struct{})
		}
		arrived := r.arrived
		r.mu.Unlock()
		<-arrived
	}
}
