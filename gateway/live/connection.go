package live

import (
	"sync"
	"sync/atomic"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// connection is one connection's state: the row as last published, what this replica has
// seen since, what is of this replica only, and the view that follows from all of them (design
// section 7).
type connection struct {
	id       models.ConnectionID
	provider *provider
	view     atomic.Pointer[catalog.ConnectionView]
	slots    atomic.Int64 // attempts in flight
	tracks   atomic.Pointer[tracks]
	quota    quota
	counts   planCounts
	era      atomic.Int64 // of the view
	// hot is what there is to look at, nil for a healthy connection: the one load that a healthy
	// request pays.
	hot atomic.Pointer[hot]
	// horizon is the latest evidence this replica has heard of, in milliseconds since the epoch.
	horizon atomic.Int64
	repeats repeats // guarded by the replica's changing

	mu          sync.Mutex
	row         rowSeen
	durable     resilience.Connection // what the row says
	applied     time.Time             // the row's verdict has looked at observations up to here
	provisional resilience.Connection
	// local are lockouts that other replicas are not told of: a server error on one model says
	// little about the next minute. Like the lockouts of a register they are sorted and bounded.
	local []resilience.Lockout
	// backoff is the connection's own part of the provider cooldown, which only requests to
	// combos heed (guide section 1, window gate). It is of this replica only, too.
	backoff resilience.Cooldown
	trials  []trial
}

// hot is what a request must look at.
type hot struct {
	resilience.Connection
	backoff resilience.Cooldown
}

// shared is what all replicas know or must come to know: what the row says, tightened by what
// its verdict has not seen. Callers hold the mutex.
func (c *connection) shared() resilience.Connection {
	return resilience.JoinConnection(c.durable, c.provisional)
}

// current is the view. Callers hold the mutex.
func (c *connection) current() resilience.Connection { return c.with(c.shared()) }

// with adds to what is shared what is of this replica only. Callers hold the mutex.
func (c *connection) with(shared resilience.Connection) resilience.Connection {
	if len(c.local) == 0 {
		return shared
	}
	return resilience.JoinConnection(shared, own(shared, c.local))
}

// own is a connection that differs from another only in its lockouts.
func own(of resilience.Connection, lockouts []resilience.Lockout) resilience.Connection {
	return resilience.Connection{Cooldown: of.Cooldown, Lockouts: lockouts}
}

// refresh publishes the view to the lock-free readers. Callers hold the mutex.
func (c *connection) refresh() resilience.Connection {
	shared := c.shared()
	view := c.with(shared)
	heard := shared.Evidence()
	if c.applied.After(heard) {
		heard = c.applied
	}
	c.horizon.Store(heard.UnixMilli())
	c.era.Store(view.Era())
	if view.Settled() && c.backoff.Settled() {
		c.hot.Store(nil)
	} else {
		c.hot.Store(&hot{view, c.backoff})
	}
	return view
}

// leave drops what is of this replica only once the era that it belongs to is over. Callers
// hold the mutex.
func (c *connection) leave(era int64) {
	if c.shared().Era() != era {
		c.local, c.backoff = nil, resilience.Cooldown{}
	}
}

// maxSkew is how far another replica's clock may be ahead and still be followed.
const maxSkew = time.Minute

// after gives what happens now a time behind everything that has been heard, in milliseconds
// since the epoch: clocks of replicas differ, and what follows news must not look older than the
// news. Further ahead than maxSkew is no clock to follow.
func after(now time.Time, heard int64) time.Time {
	if ahead := heard - now.UnixMilli(); ahead >= 0 && ahead <= maxSkew.Milliseconds() {
		return now.Add(time.Duration(ahead+1) * time.Millisecond)
	}
	return now
}

// after is a time behind everything this replica has heard of the connection.
func (c *connection) after(now time.Time) time.Time { return after(now, c.horizon.Load()) }

func (c *connection) full(most int) bool { return most > 0 && c.slots.Load() >= int64(most) }

// takeSlot takes one of at most most slots; 0 is no limit.
func (c *connection) takeSlot(most int) bool {
	for {
		taken := c.slots.Load()
		if most > 0 && taken >= int64(most) {
			return false
		}
		if c.slots.CompareAndSwap(taken, taken+1) {
			return true
		}
	}
}

func (c *connection) freeSlot() { c.slots.Add(-1) }

// concerns reports whether an attempt says something about the connection as it is now: it was
// sent in this era, with these credentials, to this provider. A token that was refreshed since
// is of the same account, so only what it says of itself is old news. Callers hold the mutex.
func (c *connection) concerns(p *pass, because models.Reason) bool {
	if p.era != c.shared().Era() || p.live.index.Load().connections[c.id] != c {
		return false
	}
	now := c.view.Load()
	refreshed := now.TokenGeneration > p.view.TokenGeneration
	return p.view.APIKey.Equal(now.APIKey) || refreshed && because != models.ReasonExpired && because != models.ReasonAuth
}
