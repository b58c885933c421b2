package outbox

import (
	"container/heap"
	"time"

	"omniroute/workflows/contract"
)

// entry is everything known of one entity: what waits to be sent, whether a sender holds it,
// and when it may be sent next. It outlives its last message by the pace, so that the next
// change does not come too early.
type entry struct {
	key       string
	change    Change
	severity  contract.Severity // of change
	pending   bool              // change is to be sent
	since     time.Time         // since when change waits
	held      bool              // a sender is delivering an earlier change
	heldSince time.Time         // since when that one has waited
	due       time.Time
	delivered Change // all that has arrived since the entity was last forgotten
	failures  int    // in a row
	index     int    // in the queue
}

// oldest is since when something has been under way.
func (e *entry) oldest() time.Time {
	if e.held {
		return e.heldSince
	}
	return e.since
}

func (e *entry) set(c Change) {
	e.change, e.severity, e.pending = c, c.Severity(), true
}

// deliver notes that a change has arrived; what waits need not repeat it.
func (e *entry) deliver(sent Change) {
	if e.delivered.Kind != "" {
		sent = e.delivered.Merge(sent)
	}
	e.delivered = sent
	if e.pending {
		e.change, e.pending = e.change.News(sent)
	}
}

// queue is a heap of entries by due time.
type queue []*entry

func (q *queue) add(e *entry) { heap.Push(q, e) }

func (q *queue) remove(e *entry) { heap.Remove(q, e.index) }

func (q *queue) reorder() { heap.Init(q) }

// leastSevere is the entry that costs least to lose: one with nothing to send, else the
// least severe one that has waited longest.
func (q queue) leastSevere() *entry {
	var least *entry
	for _, e := range q {
		if !e.pending {
			return e
		}
		if least == nil || e.severity < least.severity || e.severity == least.severity && e.since.Before(least.since) {
			least = e
		}
	}
	return least
}

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
