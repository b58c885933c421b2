package resilience

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// Where the row's list is full, what ends before all of it is not told again for ever.
func TestWhatAFullListHasNoRoomForIsKnown(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	p := CooldownPolicy{Base: time.Second, Max: time.Hour, UseHints: true, Window: time.Hour}
	lock := func(c Connection, model string, hint time.Duration) Connection {
		c, _ = c.FailModel(LockKey{models.LockModel, model}, Failure{At: now, Reason: models.ReasonRateLimited, Status: 429, Hint: hint}, p)
		return c
	}
	var row Connection
	for i := range MaxLockouts {
		row = lock(row, fmt.Sprintf("m%d", i), time.Hour)
	}
	soon, late := lock(Connection{}, "soon", time.Minute), lock(Connection{}, "late", 2*time.Hour)
	require.True(t, SeenConnection(row, soon, now))
	require.Empty(t, soon.News(row).Lockouts)
	require.False(t, SeenConnection(row, late, now))
	require.Len(t, JoinConnection(row, late.News(row)).Lockouts, MaxLockouts)
	require.True(t, SeenConnection(JoinConnection(row, late), late, now))
}

// A recovery that leaves nothing but the knowledge of it is news, not the beginning of an era.
func TestARecoveryThatClearsStrikesAloneIsNotPristine(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	require.True(t, Connection{}.Pristine())
	require.True(t, Connection{}.Enter(3, now).Pristine())
	c := Connection{Rejections: Strikes{Count: 2, Since: now, At: now}}
	c, changed := c.Succeed("m", "", now.Add(time.Hour))
	require.True(t, changed)
	require.False(t, c.Pristine())
}
