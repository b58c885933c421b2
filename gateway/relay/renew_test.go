package relay_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
)

// renewer stands for the workflow: it takes its time, and what it stores is in the catalog a
// while later.
type renewer struct {
	w        *world
	renewals *relay.Renewals
	takes    time.Duration
	arrives  time.Duration // after it has answered; negative = never
	err      error
	rereads  atomic.Int64

	mu    sync.Mutex
	asked []int64 // the generations that were seen
}

func (r *renewer) Renew(ctx context.Context, connection models.ConnectionID, seen int64) (int64, error) {
	r.mu.Lock()
	r.asked = append(r.asked, seen)
	r.mu.Unlock()
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if r.err != nil {
		return 0, r.err
	}
	if r.arrives >= 0 {
		go func() {
			time.Sleep(r.arrives) // a bubble's time
			r.w.change(connection, func(c *catalog.ConnectionView) {
				c.APIKey, c.TokenGeneration, c.TokenExpiresAt = catalog.NewSecret("sk-new"), seen+1, time.Time{}
			})
			r.renewals.CatalogChanged()
		}()
	}
	return seen + 1, nil
}

func (r *renewer) calls() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]int64{}, r.asked...)
}

// change replaces one connection in a new catalog.
func (w *world) change(id models.ConnectionID, how func(*catalog.ConnectionView)) {
	next := *w.health.Snapshot()
	next.Connections = maps.Clone(next.Connections)
	view := *next.Connections[id]
	how(&view)
	next.Connections[id] = &view
	w.health.replace(&next)
}

// expired makes c1 an account whose access token is refused and can be renewed; c2 is refused
// too, without a refresh token.
func (w *world) expired() *renewer {
	r := &renewer{w: w, takes: 200 * time.Millisecond, arrives: 100 * time.Millisecond}
	log, _ := test.NewNullLogger()
	r.renewals = relay.NewRenewals(relay.RenewalOptions{
		Renewer: r, Snapshot: w.health.Snapshot, Reread: func() { r.rereads.Add(1) }, Log: log.WithField("part", "renewals"), Registerer: w.registry,
	})
	w.relay.SetRenewals(r.renewals)
	w.shutdown = append(w.shutdown, r.renewals.Stop)
	w.health.Snapshot().Providers["p"].Class = models.ClassOAuth
	w.change("c1", func(c *catalog.ConnectionView) { c.Renewable, c.TokenGeneration = true, 7 })
	w.script("c1", refuse(401, `{"error":{"message":"token expired"}}`))
	return r
}

func TestAnExpiredTokenIsRenewedOnceAndTheSameConnectionServesWithoutBlame(t *testing.T) {
	for _, stream := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.expired()

			got := w.chat("p/m", stream)

			require.Equal(t, http.StatusOK, got.status)
			require.Equal(t, tokenText(5), got.text())
			require.Equal(t, []models.ConnectionID{"c1", "new"}, w.attempts())
			require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"))
			require.Equal(t, "2", got.header.Get("X-OmniRoute-Attempts"))
			require.Equal(t, []string{"abandoned", "succeeded"}, w.health.endings("c1"))
			require.Equal(t, []int64{7}, r.calls())
			require.Equal(t, 300*time.Millisecond, got.took, "as long as it takes, and no longer")
			require.InDelta(t, 1, w.renewals("renewed"), 0)
		})
	}
}

func TestFiftyRefusalsAtOnceAskForNewCredentialsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		var crowd sync.WaitGroup
		for range 50 {
			crowd.Go(func() { require.Equal(t, http.StatusOK, w.chat("p/m", false).status) })
		}
		crowd.Wait()

		require.Equal(t, []int64{7}, r.calls())
		require.NotContains(t, w.health.endings("c1"), "failed")
		require.Empty(t, w.health.endings("c2"))
	})
}

func TestARefusalThatComesAfterTheRenewalTriesAgainAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		w.script("c1", func(rw http.ResponseWriter, q *http.Request) {
			w.change("c1", func(c *catalog.ConnectionView) { c.APIKey, c.TokenGeneration = catalog.NewSecret("sk-new"), 8 })
			refuse(401, `{}`)(rw, q)
		})

		got := w.chat("p/m", false)

		require.Equal(t, http.StatusOK, got.status)
		require.Zero(t, got.took)
		require.Empty(t, r.calls())
	})
}

func TestWithoutNewCredentialsTheVerdictStandsAndTheNextConnectionServes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*renewer)
		took   time.Duration
		kind   string
	}{
		"refused":         {func(r *renewer) { r.err = errors.New("invalid_grant") }, 200 * time.Millisecond, "failed"},
		"Temporal away":   {func(r *renewer) { r.takes = time.Hour }, 10 * time.Second, "failed"},
		"the slow client": {func(r *renewer) { r.takes, r.arrives = 9*time.Second, 2900*time.Millisecond }, 0, ""},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.expired()
			c.change(r)

			got := w.chat("p/m", false)

			require.Equal(t, http.StatusOK, got.status, name)
			if c.kind == "" {
				require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"), "nothing but the bounds ends the wait")
				return
			}
			require.Equal(t, c.took, got.took, name)
			require.Equal(t, "c2", got.header.Get("X-OmniRoute-Connection"), name)
			require.Equal(t, []string{"failed"}, w.health.endings("c1"), name)
			require.Equal(t, models.ReasonExpired, w.health.verdict(t, "c1").Reason)
			require.InDelta(t, 1, w.renewals(c.kind), 0, name)
		})
	}
}

// The provider has refused a token that is not the account's any more: a replica that hears of
// it late must not put out what has just been renewed.
func TestARefusedTokenWhoseSuccessorIsLateIsNobodysFault(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		r.arrives = -1

		for _, took := range []time.Duration{3200 * time.Millisecond, 0} {
			got := w.chat("p/m", false)
			require.Equal(t, "c2", got.header.Get("X-OmniRoute-Connection"))
			require.Equal(t, took, got.took)
		}

		require.Equal(t, []string{"abandoned", "abandoned"}, w.health.endings("c1"))
		require.InDelta(t, 1, w.renewals("late"), 0)
		require.EqualValues(t, 1, r.rereads.Load(), "the catalog is looked at again")
	})
}

// Without an access token the refusal is our own, so it says as much as the renewal does.
func TestAConnectionWithoutAnAccessTokenIsBlamedForARefusedRenewalOnly(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		ending string
	}{
		"refused":       {models.Errorf(models.CodeUpstreamRejected, "invalid_grant"), "failed"},
		"impossible":    {models.Errorf(models.CodeInvalidRequest, "no token endpoint"), "failed"},
		"Temporal away": {models.Errorf(models.CodeDurableUnavailable, "nobody could try"), "abandoned"},
		"out of time":   {context.DeadlineExceeded, "abandoned"},
	} {
		inBubble(t, func(t *testing.T, w *world) {
			r := w.expired()
			r.err = c.err
			w.change("c1", func(c *catalog.ConnectionView) { c.APIKey = catalog.Secret{} })

			got := w.chat("p/m", false)

			require.Equal(t, "c2", got.header.Get("X-OmniRoute-Connection"), name)
			require.Equal(t, []models.ConnectionID{"c2"}, w.attempts(), name)
			require.Equal(t, []string{c.ending}, w.health.endings("c1"), name)
		})
	}
}

// Whoever comes late with the same refusal has waited for its own answer already.
func TestAFailureToRenewIsRememberedForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		r.err = errors.New("invalid_grant")
		again := func() time.Duration {
			clear(w.health.out) // the verdict put the connection out
			return w.chat("p/m", false).took
		}

		require.Equal(t, 200*time.Millisecond, again())
		require.Zero(t, again())
		time.Sleep(10 * time.Second)
		require.Equal(t, 200*time.Millisecond, again())
		require.Len(t, r.calls(), 2)
	})
}

func TestNewCredentialsThatAreRefusedTooAreNotRenewedAgainForTheSameRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		w.script("new", refuse(401, `{}`))

		got := w.chat("p/m", false)

		require.Equal(t, "c2", got.header.Get("X-OmniRoute-Connection"))
		require.Equal(t, []models.ConnectionID{"c1", "new", "c2"}, w.attempts())
		require.Equal(t, []string{"abandoned", "failed"}, w.health.endings("c1"))
		require.Len(t, r.calls(), 1)
	})
}

func TestWhatCannotBeRenewedAsksNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		w.change("c1", func(c *catalog.ConnectionView) { c.Renewable = false })
		require.Equal(t, "c2", w.chat("p/m", false).header.Get("X-OmniRoute-Connection"))

		clear(w.health.out)
		w.change("c1", func(c *catalog.ConnectionView) { c.Renewable = true })
		w.script("c1", refuse(403, `{"error":{"message":"no"}}`))
		require.Equal(t, "c2", w.chat("p/m", false).header.Get("X-OmniRoute-Connection"))
		require.Empty(t, r.calls())
	})
}

func TestAClientThatLeavesWhileCredentialsAreRenewedIsNobodysFault(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer leave()

		_, err := w.send(ctx, "p/m", false, "")
		synctest.Wait()

		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []string{"abandoned"}, w.health.endings("c1"))
		time.Sleep(time.Second)
		require.EqualValues(t, 8, w.health.Snapshot().Connections["c1"].TokenGeneration, "the renewal is for the others too")
		require.Len(t, r.calls(), 1)
	})
}

func TestATokenThatEndsSoonIsRenewedInTheBackgroundByTheFirstWhoSeesIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		w.script("c1", healthy(5))
		expiring := func(left time.Duration) func(*catalog.ConnectionView) {
			return func(c *catalog.ConnectionView) { c.TokenExpiresAt = time.Now().Add(left) }
		}
		w.change("c1", expiring(6*time.Minute))
		w.chat("p/m", false)
		synctest.Wait()
		require.Empty(t, r.calls())

		w.change("c1", expiring(4*time.Minute))
		for range 3 {
			got := w.chat("p/m", false)
			require.Zero(t, got.took, "nobody waits for it")
		}
		time.Sleep(time.Second)

		require.Equal(t, []int64{7}, r.calls())
		w.chat("p/m", false)
		require.Equal(t, []models.ConnectionID{"c1", "c1", "c1", "c1", "new"}, w.attempts())
		require.NotContains(t, w.health.endings("c1"), "abandoned")
	})
}

func TestATokenThatCannotBeRenewedAheadIsAskedAboutOnceAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		r.err = errors.New("invalid_grant")
		w.script("c1", healthy(5))
		w.change("c1", func(c *catalog.ConnectionView) { c.TokenExpiresAt = time.Now() })
		for range 130 {
			require.Equal(t, http.StatusOK, w.chat("p/m", false).status)
			time.Sleep(time.Second)
		}
		require.Len(t, r.calls(), 3)
	})
}

func TestAConnectionWithNothingButARefreshTokenGetsItsAccessTokenFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.expired()
		w.change("c1", func(c *catalog.ConnectionView) { c.APIKey = catalog.Secret{} })

		got := w.chat("p/m", false)

		require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"))
		require.Equal(t, []models.ConnectionID{"new"}, w.attempts(), "nothing is sent without a credential")
	})
}

func TestStopEndsRenewalsUnderWayAndRefusesNewOnes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		r := w.expired()
		r.takes = time.Hour
		answered := make(chan reply)
		go func() { answered <- w.chat("p/m", false) }()
		synctest.Wait()

		r.renewals.Stop()
		r.renewals.Stop()

		require.Equal(t, "c2", (<-answered).header.Get("X-OmniRoute-Connection"))
		clear(w.health.out)
		require.Zero(t, w.chat("p/m", false).took)
		require.Len(t, r.calls(), 1)
	})
}

func TestTheTraceTellsOfARenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.expired()
		w.change("c1", func(c *catalog.ConnectionView) { c.Provider.Connections = nil })

		got := w.chat("best", false)

		require.Equal(t, "c1:renewed, c1:ok", got.header.Get("X-OmniRoute-Combo-Trace"))
	})
}

// renewals reads the metric.
func (w *world) renewals(outcome string) float64 {
	families, err := w.registry.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		if family.GetName() != "omniroute_credential_renewals_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == outcome {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
