package config

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// writes notes every write apart.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), nil
}

func (w *writes) seen() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.all...)
}

func say(t *testing.T, g *Gathered, lines ...string) {
	for _, line := range lines {
		n, err := g.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
}

func TestLinesInQuickSuccessionAreWrittenTogetherAndNoneWaitsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &writes{}
		g := Gather(out)
		say(t, g, "a\n", "b\n")
		require.Empty(t, out.seen())
		time.Sleep(gatherFor)
		synctest.Wait()
		require.Equal(t, []string{"a\nb\n"}, out.seen())

		say(t, g, "c\n")
		time.Sleep(gatherFor)
		synctest.Wait()
		require.Equal(t, []string{"a\nb\n", "c\n"}, out.seen())
	})
}

func TestAFullBufferDoesNotWait(t *testing.T) {
	out := &writes{}
	g := Gather(out)
	defer g.Close()
	say(t, g, "a\n", strings.Repeat("x", gatherSize))
	require.Len(t, out.seen(), 1)
}

func TestAfterCloseNothingIsHeldBack(t *testing.T) {
	out := &writes{}
	g := Gather(out)
	say(t, g, "a\n")
	g.Close()
	say(t, g, "b\n")
	g.Close()
	require.Equal(t, []string{"a\n", "b\n"}, out.seen())
}
