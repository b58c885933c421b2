package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

func TestALockoutMovesToTheKeysThatNameItsModelsNow(t *testing.T) {
	was := LockKey{models.LockFamily, "was"}
	is, single := LockKey{models.LockFamily, "is"}, LockKey{models.LockModel, "m1"}
	c := failModel(t, Connection{}, was, rateLimited(noon), lockoutDefaults.Cooldown())
	until := c.Lockouts[0].Until

	moved, changed := c.Rekey(was, []LockKey{is, single}, noon.Add(time.Second))
	require.True(t, changed)
	out := moved.Out(noon.Add(time.Second))
	require.Len(t, out, 2)
	for i, key := range []LockKey{is, single} {
		require.Equal(t, key, out[i].LockKey)
		require.Equal(t, until, out[i].Until)
		require.Equal(t, 1, out[i].Level)
	}
	_, changed = moved.Rekey(was, []LockKey{is}, noon.Add(time.Minute))
	require.False(t, changed, "it has moved")

	other, _ := c.Rekey(was, []LockKey{is, single}, noon.Add(2*time.Second)) // another replica
	require.True(t, JoinConnection(moved, other).Equal(JoinConnection(c, JoinConnection(other, moved))))
	require.Len(t, JoinConnection(moved, other).Out(noon.Add(time.Minute)), 2)
	gone, changed := c.Rekey(was, nil, noon.Add(time.Second))
	require.True(t, changed)
	require.Empty(t, gone.Out(noon.Add(time.Second)), "no model is left")
}
