package live

import (
	"omniroute/models"
	"omniroute/models/resilience"
)

// Shared is all that a replica knows of a connection and others are to know, of which its
// offers are the part that is not in the row.
func (l *Live) Shared(id models.ConnectionID) resilience.Connection {
	c := l.index.Load().connections[id]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shared()
}

// Patient lets every pause between repeated offers be over.
func (l *Live) Patient() {
	l.changing.Lock()
	defer l.changing.Unlock()
	for _, c := range l.index.Load().connections {
		c.repeats.next = 0
	}
}

// Tracks is how many pairs of a connection and a model are remembered.
func (l *Live) Tracks() (n int) {
	for _, c := range l.index.Load().connections {
		if all := c.tracks.Load(); all != nil {
			n += len(*all)
		}
	}
	return n
}
