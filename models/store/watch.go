package store

import (
	"sync"

	"gorm.io/gorm"

	"omniroute/models/catalog"
)

// notify tells other processes of a change, in the transaction that makes it: whoever hears
// it can read it. SQLite has no such channel; readers there look at the revision and the rows.
func (s *Store) notify(tx *gorm.DB, what string) error {
	if s.dialect != Postgres {
		return nil
	}
	return tx.Exec("SELECT pg_notify(?, ?)", catalog.ChangeChannel, what).Error
}

// watchers are the listeners inside this process.
type watchers struct {
	mu     sync.Mutex
	next   int
	active map[int]chan string
	closed bool
}

// Watch returns hints of what this process itself changed: catalog.ChangedCatalog or
// catalog.ChangedState. A hint that finds the buffer full is left out: the reader has others
// to act on, and each makes it read everything. stop ends the watch; so does Close.
func (s *Store) Watch() (changes <-chan string, stop func()) {
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan string, 2*watchBuffer)
	if w.closed {
		close(c)
		return c, func() {}
	}
	if w.active == nil {
		w.active = map[int]chan string{}
	}
	id := w.next
	w.next++
	w.active[id] = c
	return c, func() { w.remove(id) }
}

const watchBuffer = 16

// tell offers the hint to every watcher. Half of the buffer is kept for catalog hints, so
// that a storm of state hints cannot hide one.
func (w *watchers) tell(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.active {
		if what != catalog.ChangedCatalog && len(c) >= watchBuffer {
			continue
		}
		select {
		case c <- what:
		default:
		}
	}
}

func (w *watchers) remove(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, active := w.active[id]; active {
		delete(w.active, id)
		close(c)
	}
}

func (w *watchers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for id, c := range w.active {
		delete(w.active, id)
		close(c)
	}
}
