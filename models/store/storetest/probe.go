package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"omniroute/models"
	"omniroute/models/resilience"
)

// expired is an opening whose time has passed: its provider is half-open.
func expired() resilience.Opening {
	return providerState("p", 0, 1, time.Now().Add(-time.Minute)).State.Opening
}

var probeTests = map[string]func(*testing.T, *world){
	"OfFiftyClaimantsExactlyOneWins": func(t *testing.T, w *world) {
		for _, published := range []bool{false, true} {
			provider := models.ProviderID(fmt.Sprint("p-", published))
			opening := expired()
			if published {
				_, err := w.store.PublishProvider(t.Context(), providerState(provider, 0, 1, opening.OpenedAt))
				require.NoError(t, err)
			}
			var winners atomic.Int32
			var group errgroup.Group
			for i := range 50 {
				group.Go(func() error {
					won, heldFor, err := w.store.ClaimProbe(t.Context(), provider, fmt.Sprint("replica-", i), opening, 30*time.Second)
					if won {
						winners.Add(1)
					} else if err == nil && (heldFor <= 0 || heldFor > 30*time.Second) {
						return fmt.Errorf("lost, and held for %s", heldFor)
					}
					return err
				})
			}

			require.NoError(t, group.Wait())
			require.EqualValues(t, 1, winners.Load())
		}
	},

	"AProbeThatHangsIsFreeAfterItsLease": func(t *testing.T, w *world) {
		won, _, err := w.store.ClaimProbe(t.Context(), "p", "first", expired(), 300*time.Millisecond)
		require.NoError(t, err)
		require.True(t, won)
		won, heldFor, err := w.store.ClaimProbe(t.Context(), "p", "second", expired(), time.Minute)
		require.NoError(t, err)
		require.False(t, won)

		<-time.After(heldFor)
		won, _, err = w.store.ClaimProbe(t.Context(), "p", "second", expired(), time.Minute)

		require.NoError(t, err)
		require.True(t, won)
	},

	"OnlyTheOwnerReleasesAndTheOwnerMayClaimAgain": func(t *testing.T, w *world) {
		claim := func(owner string) bool {
			won, _, err := w.store.ClaimProbe(t.Context(), "p", owner, expired(), time.Minute)
			require.NoError(t, err)
			return won
		}
		require.True(t, claim("first"))
		require.NoError(t, w.store.ReleaseProbe(t.Context(), "p", "second"))
		require.False(t, claim("second"))
		require.True(t, claim("first"))

		require.NoError(t, w.store.ReleaseProbe(t.Context(), "p", "first"))

		require.True(t, claim("second"))
	},

	"AClaimWithAnOldOpeningIsRefusedWhileANewOneLasts": func(t *testing.T, w *world) {
		_, err := w.store.PublishProvider(t.Context(), providerState("p", 0, 2, w.databaseNow(t)))
		require.NoError(t, err)

		won, heldFor, err := w.store.ClaimProbe(t.Context(), "p", "late", expired(), time.Minute)

		require.NoError(t, err)
		require.False(t, won)
		require.InDelta(t, 30, heldFor.Seconds(), 5)
	},

	"ANewOpeningEndsTheProbeOfTheOneBeforeAndTheSameDoesNot": func(t *testing.T, w *world) {
		before := time.Now().Add(-time.Minute)
		_, err := w.store.PublishProvider(t.Context(), providerState("p", 0, 1, before))
		require.NoError(t, err)
		won, _, err := w.store.ClaimProbe(t.Context(), "p", "prober", expired(), time.Minute)
		require.NoError(t, err)
		require.True(t, won)

		_, err = w.store.PublishProvider(t.Context(), providerState("p", 0, 2, before))
		require.NoError(t, err)
		won, heldFor, err := w.store.ClaimProbe(t.Context(), "p", "another", expired(), time.Minute)
		require.NoError(t, err)
		require.False(t, won)
		require.InDelta(t, 60, heldFor.Seconds(), 5)

		closed := providerState("p", 0, 3, before)
		closed.State.Opening.ClosedAt = time.Now()
		_, err = w.store.PublishProvider(t.Context(), closed)
		require.NoError(t, err)
		won, _, err = w.store.ClaimProbe(t.Context(), "p", "another", expired(), time.Minute)
		require.NoError(t, err)
		require.True(t, won)
	},

	"AnythingAWorkflowPublishesIsNewerThanTheRowOfAClaim": func(t *testing.T, w *world) {
		opening := expired()
		_, _, err := w.store.ClaimProbe(t.Context(), "p", "prober", opening, time.Minute)
		require.NoError(t, err)
		claimed, found, err := w.store.LoadProviderState(t.Context(), "p")
		require.NoError(t, err)
		require.True(t, found)
		require.True(t, claimed.State.Opening.Equal(opening))

		first := providerState("p", 0, 0, time.Now())
		stored, err := w.store.PublishProvider(t.Context(), first)

		require.NoError(t, err)
		require.True(t, stored.State.Equal(first.State))
	},
}
