package live

import (
	"time"

	"omniroute/models/resilience"
)

// coolSiblings keeps every connection away that shares the address of one that was limited, for
// as long: it is never for good, never shortens what a sibling is out for, and does not count
// against a sibling that met nothing itself. Each sibling's change goes to its own workflow.
func (l *Live) coolSiblings(limited *connection, f resilience.Failure, until time.Time) {
	for _, c := range l.index.Load().egress[limited.view.Load().Egress] {
		if c == limited {
			continue
		}
		c.mu.Lock()
		shared := f
		shared.At = millisecond(c.after(f.At))
		shared.Dispatched, shared.Hint, shared.Fixed, shared.Shared = shared.At, 0, until.Sub(shared.At), true
		var news resilience.Connection
		changed := false
		if shared.Fixed > 0 {
			news, changed = c.fail(shared)
		}
		c.mu.Unlock()
		if changed {
			l.tellFailure(c, news, shared.At)
		}
	}
}
