package assembly

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
)

// cleanups undo what was started, the latest first, each within its own bound.
type cleanups struct {
	log   logrus.FieldLogger
	stack []cleanup
}

type cleanup struct {
	name  string
	bound time.Duration
	undo  func(context.Context)
}

// add registers how to undo what has just been started. undo returns when its context ends
// at the latest; one that does not is left behind and named in the log.
func (c *cleanups) add(name string, bound time.Duration, undo func(context.Context)) {
	c.stack = append(c.stack, cleanup{name, bound, undo})
}

// run undoes everything and forgets it, so that a second run does nothing.
func (c *cleanups) run(ctx context.Context) {
	for len(c.stack) > 0 {
		last := c.stack[len(c.stack)-1]
		c.stack = c.stack[:len(c.stack)-1]
		last.run(ctx, c.log.WithField("part", last.name))
	}
}

// grace is how much longer than its bound a part may take to notice that it is over.
const grace = 500 * time.Millisecond

func (c cleanup) run(ctx context.Context, log logrus.FieldLogger) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.bound)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.undo(ctx)
	}()
	late := time.NewTimer(c.bound + grace)
	defer late.Stop()
	select {
	case <-done:
		log.WithField("took", time.Since(start).Round(time.Millisecond).String()).Debug("stopped")
	case <-late.C:
		log.WithField("bound", c.bound.String()).Warn("did not stop in time and was left behind")
	}
}
