package fakeprovider

import (
	"sync"
	"time"
)

// Concurrency is how many calls ran at one time.
type Concurrency struct {
	Running int `json:"running"`
	Max     int `json:"max"`
	Total   int `json:"total"`
}

// Concurrency of the calls with one key for one model; Any sums up.
func (p *Provider) Concurrency(key, model string) Concurrency {
	return p.counters.get(pair{key, model})
}

// Release lets every answer that hangs now go on.
func (p *Provider) Release() { p.holds.release() }

type pair struct{ key, model string }

// counters count each call four times: under its key and model, and under Any for each side.
type counters struct {
	mu   sync.Mutex
	byID map[pair]*Concurrency
	idle chan struct{} // closed when nothing runs; nil while nobody waits
}

func (c *counters) enter(key, model string) (leave func()) {
	pairs := [4]pair{{key, model}, {key, Any}, {Any, model}, {Any, Any}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[pair]*Concurrency{}
	}
	for _, id := range pairs {
		n := c.byID[id]
		if n == nil {
			n = &Concurrency{}
			c.byID[id] = n
		}
		n.Running++
		n.Total++
		n.Max = max(n.Max, n.Running)
	}
	return func() { c.leave(pairs) }
}

func (c *counters) leave(pairs [4]pair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range pairs {
		c.byID[id].Running--
	}
	if c.idle != nil && c.byID[pair{Any, Any}].Running == 0 {
		close(c.idle)
		c.idle = nil
	}
}

func (c *counters) get(id pair) Concurrency {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.byID[id]; n != nil {
		return *n
	}
	return Concurrency{}
}

// awaitIdle waits for the running calls to end, at most for limit.
func (c *counters) awaitIdle(limit time.Duration) {
	c.mu.Lock()
	n := c.byID[pair{Any, Any}]
	if n == nil || n.Running == 0 {
		c.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// holds is the gate that hanging answers wait at.
type holds struct {
	mu   sync.Mutex
	gate chan struct{}
}

func (h *holds) init() { h.gate = make(chan struct{}) }

func (h *holds) wait() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gate
}

func (h *holds) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.gate)
	h.gate = make(chan struct{})
}
