package assembly

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

func newCleanups() *cleanups {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return &cleanups{log: log}
}

func TestCleanupsRunLatestFirstAndOnce(t *testing.T) {
	var order []string
	c := newCleanups()
	for _, name := range []string{"first", "second", "third"} {
		c.add(name, time.Second, func(context.Context) { order = append(order, name) })
	}
	c.run(t.Context())
	c.run(t.Context())
	require.Equal(t, []string{"third", "second", "first"}, order)
}

func TestAPartThatDoesNotStopIsLeftBehindAndTheOthersStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		stopped := false
		c := newCleanups()
		c.add("good", time.Second, func(context.Context) { stopped = true })
		c.add("stuck", time.Second, func(context.Context) { <-release })
		start := time.Now()
		c.run(t.Context())
		require.True(t, stopped)
		require.Equal(t, time.Second+grace, time.Since(start))
		close(release)
	})
}

func TestAPartIsToldWhenItsTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCleanups()
		var took time.Duration
		c.add("slow", 2*time.Second, func(ctx context.Context) {
			start := time.Now()
			<-ctx.Done()
			took = time.Since(start)
		})
		c.run(t.Context())
		require.Equal(t, 2*time.Second, took)
	})
}
