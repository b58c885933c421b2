package live

import (
	"sync"
	"time"

	"omniroute/models/catalog"
	"omniroute/models/routing"
)

// planCounts is what was used of a connection's plan, for providers that do not say it: here, and
// as the other replicas last told.
type planCounts struct {
	mu    sync.Mutex
	own   map[planCount]routing.SlidingCount
	peers map[planCount]routing.SlidingCount
}

// planCount names a count. How much may be used is not part of it: an operator who corrects a
// limit loses no count.
type planCount struct {
	unit   string
	length time.Duration
}

// Used counts the tokens that an answer took towards the quotas of an entered plan.
func (p *pass) Used(tokens int64, now time.Time) {
	p.count(catalog.UnitTokens, float64(tokens), now)
}

// count counts towards an entered plan; without one there is nothing to do.
func (p *pass) count(unit string, n float64, now time.Time) {
	plan := p.view.Plan
	if plan == nil {
		return
	}
	counts := &p.connection.counts
	counts.mu.Lock()
	defer counts.mu.Unlock()
	counted := map[planCount]bool{}
	for i := range plan.Windows {
		name := planCount{unit, plan.Windows[i].Length}
		if plan.Windows[i].Unit != unit || counted[name] {
			continue
		}
		counted[name] = true
		if counts.own == nil {
			counts.own = map[planCount]routing.SlidingCount{}
		}
		c := counts.own[name]
		c.Add(n, now, name.length)
		counts.own[name] = c
	}
}

// counted are the windows of an entered plan with what is left of them. They slide, so there is
// no moment at which they are full again.
func (c *connection) counted(plan *catalog.QuotaPlan, now time.Time) []routing.QuotaWindow {
	if plan == nil {
		return nil
	}
	c.counts.mu.Lock()
	defer c.counts.mu.Unlock()
	windows := make([]routing.QuotaWindow, len(plan.Windows))
	for i := range plan.Windows {
		w := &plan.Windows[i]
		name := planCount{w.Unit, w.Length}
		used := c.counts.own[name].Join(c.counts.peers[name]).Used(now, w.Length)
		windows[i] = routing.QuotaWindow{Name: w.Name, Length: w.Length, Remaining: max(0, 1-used/float64(w.Limit))}
	}
	return windows
}
