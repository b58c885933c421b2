package admin

import (
	"context"
	"sync"
	"time"
)

const (
	partsFresh = 2 * time.Second // how long a finding is shown without looking again
	partsBound = time.Second     // how long a part has to answer
)

// parts knows whether what the gateway leans on answers. Anybody may ask for the health, so
// asking costs a look at the parts at most every two seconds.
type parts struct {
	database func(context.Context) error
	temporal func(context.Context) error

	mu      sync.Mutex
	checked time.Time
	finding finding
}

// finding is why each part does not answer, nil where it does.
type finding struct {
	database error
	temporal error
}

// look returns what is known, looking again when that is old. Callers at the same time wait
// for the one that looks. It does not end with a caller's request: the next one needs it too.
func (p *parts) look() finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.checked) < partsFresh {
		return p.finding
	}
	ctx, cancel := context.WithTimeout(context.Background(), partsBound)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { p.finding.database = p.database(ctx) })
	both.Go(func() { p.finding.temporal = p.temporal(ctx) })
	both.Wait()
	p.checked = time.Now()
	return p.finding
}
