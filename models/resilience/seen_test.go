package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A part that Seen forgot would never be told to the other replicas.
func TestWhateverPartOfAConnectionARowLacksIsNotSeen(t *testing.T) {
	locked := failModel(t, Connection{}, m1, rateLimited(noon), apiKey)
	for name, provisional := range map[string]Connection{
		"cooldown":   failConnection(t, Connection{}, rateLimited(noon), accountPolicy),
		"era":        Connection{}.Reset(noon),
		"lockouts":   locked,
		"rejections": {Rejections: Strikes{}.Strike(noon, 0)},
		"expiries":   {Expiries: Strikes{}.Strike(noon, 0)},
		"refused":    {Refused: 1},
		"renewed":    {Renewed: 1},
	} {
		require.False(t, SeenConnection(Connection{}, provisional, noon), name)
		require.True(t, SeenConnection(provisional, Connection{}, noon), name)
		require.True(t, SeenConnection(provisional, provisional, noon), name)
	}
	later := locked.Next(noon).Add(2 * time.Hour)
	require.True(t, SeenConnection(Connection{}, locked, later), "but for a lockout that is over and forgotten")
}

func TestARowHasSeenAConnectionExactlyWhenItWouldLearnNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &fleet{now: noon, policy: anyConnectionPolicy.Draw(t, "policy"), replicas: make([]Connection, 3)}
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			rapid.SampledFrom([]func(*rapid.T){w.fail, w.failModel, w.succeed, w.operate, w.tell, w.wait}).Draw(t, "event")(t)
			row, provisional := w.row.Prune(w.now), w.replicas[0].Prune(w.now)
			require.Equal(t, JoinConnection(row, provisional).Equal(row), SeenConnection(w.row, w.replicas[0], w.now))
		}
	})
}
