package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is the far side: it notes what arrives and when, and can fail or hang.
type receiver struct {
	mu      sync.Mutex
	got     []arrival
	failing error
	hanging bool
}

type arrival struct {
	change Change
	at     time.Time
}

func (r *receiver) send(ctx context.Context, c Change) error {
	r.mu.Lock()
	failing, hanging := r.failing, r.hanging
	if failing == nil && !hanging {
		r.got = append(r.got, arrival{c, time.Now()})
	}
	r.mu.Unlock()
	if hanging {
		<-ctx.Done()
		return ctx.Err()
	}
	return failing
}

func (r *receiver) set(failing error, hanging bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing, r.hanging = failing, hanging
}

func (r *receiver) arrivals() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.got...)
}

var errAway = errors.New("connection refused")

func newOutbox(r *receiver) (*Outbox, *prometheus.Registry) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	registry := prometheus.NewRegistry()
	return New(Options{Send: r.send, Log: log, Registerer: registry, Rand: func() float64 { return 1 }}), registry
}

var policy = resilience.CooldownPolicy{Base: 3 * time.Second, MaxSteps: 5, Max: 30 * time.Minute, UseHints: true}

// cooling is a change that says: out for the hint from now on.
func cooling(id string, hint time.Duration) Change {
	return failure(id, resilience.Failure{Reason: models.ReasonRateLimited, Status: 429, Hint: hint})
}

func terminal(id string) Change {
	return failure(id, resilience.Failure{Reason: models.ReasonAuth, Status: 401, Terminal: models.PhaseExpired})
}

func failure(id string, f resilience.Failure) Change {
	f.At = time.Now()
	state, _ := resilience.Cooldown{}.Fail(f, policy)
	return Change{Kind: contract.KindConnection, Connection: models.ConnectionID(id), Health: resilience.Connection{Cooldown: state}, At: f.At}
}

func recovered(id string) Change {
	return Change{
		Kind: contract.KindConnection, Connection: models.ConnectionID(id), At: time.Now(),
		Health: resilience.Connection{Cooldown: resilience.Cooldown{ClearedAt: time.Now()}},
	}
}

func TestTheFirstChangeGoesAtOnceAndTheNextOnesKeepThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		begin := time.Now()
		for i := range 100 { // a change every 10 ms for a second
			box.Offer(cooling("a", time.Duration(i+1)*time.Minute))
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)

		var at []time.Duration
		for _, a := range far.arrivals() {
			at = append(at, a.at.Sub(begin))
		}
		require.Equal(t, []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, 750 * time.Millisecond, time.Second}, at)
		last := far.arrivals()[4].change
		require.Equal(t, 100*time.Minute, last.Health.Cooldown.Until.Sub(last.Health.Cooldown.FailedAt), "the latest truth is what arrives")
		box.Stop(t.Context())
	})
}

func TestDifferentEntitiesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		for i := range 500 {
			box.Offer(cooling(fmt.Sprint("c", i), time.Minute))
		}
		synctest.Wait()
		require.Len(t, far.arrivals(), 500)
		require.Zero(t, box.Stats().Pending)
		box.Stop(t.Context())
	})
}

func TestAnEntityIsForgottenOnceItsPaceHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		box.Offer(cooling("a", time.Minute))
		time.Sleep(time.Second)
		box.mu.Lock()
		kept := len(box.entries)
		box.mu.Unlock()
		require.Zero(t, kept)
		box.Stop(t.Context())
	})
}

func TestAFailedSendBacksOffFromAFifthOfASecondToTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Duration
		begin := time.Now()
		log := logrus.New()
		log.SetOutput(io.Discard)
		box := New(Options{Log: log, Rand: func() float64 { return 1 }, Send: func(context.Context, Change) error {
			tries = append(tries, time.Since(begin))
			return errAway
		}})
		box.Start()
		box.Offer(cooling("a", time.Minute))
		time.Sleep(35 * time.Second)
		synctest.Wait()

		var waits []time.Duration
		for i := 1; i < len(tries); i++ {
			waits = append(waits, tries[i]-tries[i-1])
		}
		second := time.Second
		require.Equal(t, []time.Duration{second / 5, 2 * second / 5, 4 * second / 5, 8 * second / 5, 16 * second / 5, 32 * second / 5, 10 * second, 10 * second}, waits)
		box.Stop(t.Context())
	})
}

func TestJitterSpreadsTheBackOffOverItsUpperHalf(t *testing.T) {
	for _, r := range []float64{0, 0.5, 0.999} {
		box := New(Options{Rand: func() float64 { return r }})
		for failures := 1; failures < 40; failures++ {
			full := min(backoffFirst<<min(failures-1, 10), backoffMax)
			require.GreaterOrEqual(t, box.backoff(failures), full/2)
			require.LessOrEqual(t, box.backoff(failures), full)
		}
	}
}

func TestChangesDuringAnOutageArriveMergedWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		box.Start()
		far.set(errAway, false)
		for i := range 60 {
			box.Offer(cooling("a", time.Duration(i+1)*time.Minute))
			time.Sleep(time.Second)
		}
		stats := box.Stats()
		require.True(t, stats.Degraded)
		require.Equal(t, 1, stats.Pending)
		require.Equal(t, time.Minute, stats.OldestAge)

		far.set(nil, false)
		time.Sleep(backoffMax)
		got := far.arrivals()
		require.Len(t, got, 1)
		require.Equal(t, 60*time.Minute, got[0].change.Health.Cooldown.Until.Sub(got[0].change.Health.Cooldown.FailedAt))
		require.Equal(t, Stats{}, box.Stats())
		require.InDelta(t, 59, metric(t, registry, "omniroute_outbox_merged_total"), 0)
		box.Stop(t.Context())
	})
}

func TestAFrozenFarSideIsGivenTwoSecondsAndIsSeenAsDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		far.set(nil, true)
		begin := time.Now()
		for i := range 10 { // more than there are senders
			box.Offer(cooling(fmt.Sprint("c", i), time.Minute))
		}
		require.Zero(t, time.Since(begin), "an offer waits for nobody")
		require.False(t, box.Stats().Degraded)
		time.Sleep(sendTimeout + time.Millisecond)
		require.True(t, box.Stats().Degraded)
		require.Equal(t, 10, box.Stats().Pending)

		far.set(nil, false)
		time.Sleep(backoffMax)
		require.Len(t, far.arrivals(), 10)
		require.Equal(t, Stats{}, box.Stats())
		box.Stop(t.Context())
	})
}

func TestAChangeThatComesWhileAnEarlierOneFailsIsMergedWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		far.set(nil, true)
		box.Offer(cooling("a", time.Hour))
		synctest.Wait() // a sender holds it
		box.Offer(terminal("a"))
		far.set(nil, false)
		time.Sleep(5 * time.Second)

		got := far.arrivals()
		require.Len(t, got, 1)
		require.Equal(t, models.PhaseExpired, got[0].change.Health.Cooldown.Terminal)
		require.Equal(t, time.Hour, got[0].change.Health.Cooldown.Until.Sub(got[0].change.Health.Cooldown.SetAt))
		box.Stop(t.Context())
	})
}

// Live offers all that the row does not say yet; the workflow has heard most of it a moment ago.
func TestACrowdOfLockoutsIsNotRepeatedFromMessageToMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		box.Start()
		var health resilience.Connection
		for i := range 40 {
			health, _ = health.FailModel(resilience.LockKey{Scope: models.LockModel, Name: fmt.Sprint("m", i)},
				resilience.Failure{At: time.Now(), Reason: models.ReasonRateLimited, Status: 429}, policy)
			box.Offer(Change{Kind: contract.KindConnection, Connection: "a", Health: health, At: time.Now()})
			time.Sleep(100 * time.Millisecond)
		}
		box.Offer(Change{Kind: contract.KindConnection, Connection: "a", Health: health, At: time.Now()}) // nothing new
		time.Sleep(time.Second)

		said, heard := 0, far.arrivals()[0].change
		for _, a := range far.arrivals() {
			said += len(a.change.Health.Lockouts)
			heard = heard.Merge(a.change)
		}
		require.Equal(t, 40, said, "each lockout once")
		require.True(t, heard.Health.Equal(health), "and all of them together")
		require.Equal(t, contract.SeverityLockout, heard.Severity())
		box.Stop(t.Context())
	})
}

func TestWhatAFailedSendHeldIsSaidAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, _ := newOutbox(&far)
		far.set(errAway, false)
		box.Start()
		lock := func(from resilience.Connection, name string) resilience.Connection {
			next, _ := from.FailModel(resilience.LockKey{Scope: models.LockModel, Name: name}, resilience.Failure{At: time.Now()}, policy)
			return next
		}
		first := lock(resilience.Connection{}, "m1")
		box.Offer(Change{Kind: contract.KindConnection, Connection: "a", Health: first, At: time.Now()})
		synctest.Wait()
		box.Offer(Change{Kind: contract.KindConnection, Connection: "a", Health: lock(first, "m2"), At: time.Now()})
		far.set(nil, false)
		time.Sleep(time.Second)
		require.Len(t, far.arrivals(), 1)
		require.Len(t, far.arrivals()[0].change.Health.Lockouts, 2)
		box.Stop(t.Context())
	})
}

func TestWhenFullTheLeastSevereAndOldestGoesAndIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		for i := range maxKeys - 2 {
			box.Offer(cooling(fmt.Sprint("cooling-", i), time.Minute))
			time.Sleep(time.Millisecond)
		}
		box.Offer(recovered("recovered-1"))
		time.Sleep(time.Millisecond)
		box.Offer(recovered("recovered-2"))
		require.Equal(t, maxKeys, box.Stats().Pending)

		box.Offer(recovered("recovered-3")) // pushes out recovered-1
		box.Offer(terminal("terminal-1"))   // pushes out recovered-2
		box.Offer(terminal("terminal-2"))   // pushes out recovered-3
		box.Offer(terminal("terminal-3"))   // pushes out cooling-0
		box.Offer(recovered("recovered-4")) // is the least severe itself
		box.Offer(terminal("cooling-1"))    // has its place already

		require.Equal(t, maxKeys, box.Stats().Pending)
		require.InDelta(t, 4, dropped(registry, contract.SeverityRecovery, causeFull), 0)
		require.InDelta(t, 1, dropped(registry, contract.SeverityCooldown, causeFull), 0)
		box.Start()
		synctest.Wait()
		arrived := map[models.ConnectionID]bool{}
		for _, a := range far.arrivals() {
			arrived[a.change.Connection] = true
		}
		require.Len(t, arrived, maxKeys)
		for _, id := range []models.ConnectionID{"terminal-1", "terminal-2", "terminal-3", "cooling-1"} {
			require.True(t, arrived[id], id)
		}
		for _, id := range []models.ConnectionID{"recovered-1", "recovered-2", "recovered-3", "recovered-4", "cooling-0"} {
			require.False(t, arrived[id], id)
		}
		box.Stop(t.Context())
	})
}

func TestAnEntityWithNothingToSendMakesRoomWithoutALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		box.Start()
		for i := range maxKeys {
			box.Offer(terminal(fmt.Sprint("old-", i)))
		}
		synctest.Wait() // all sent, all remembered for their pace
		box.Offer(recovered("new"))
		synctest.Wait()
		require.Len(t, far.arrivals(), maxKeys+1)
		require.Zero(t, dropped(registry, contract.SeverityTerminal, causeFull))
		box.Stop(t.Context())
	})
}

func TestStopSendsWhatWaitsAndThenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		far.set(errAway, false)
		box.Start()
		for i := range 20 {
			box.Offer(cooling(fmt.Sprint("c", i), time.Minute))
		}
		time.Sleep(30 * time.Second) // deep in the back-off
		far.set(nil, false)
		begin := time.Now()
		box.Stop(t.Context())
		require.Zero(t, time.Since(begin), "a waiting change does not wait out its back-off")
		require.Len(t, far.arrivals(), 20)

		box.Offer(cooling("late", time.Minute))
		require.InDelta(t, 1, dropped(registry, contract.SeverityCooldown, causeStopped), 0)
		box.Stop(t.Context()) // again, without effect
	})
}

func TestStopAtARefusingFarSideTriesEachOnceAndEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		far.set(errAway, false)
		box.Start()
		for i := range 20 {
			box.Offer(cooling(fmt.Sprint("c", i), time.Minute))
		}
		synctest.Wait()
		begin := time.Now()
		box.Stop(t.Context())
		require.Zero(t, time.Since(begin))
		require.InDelta(t, 20, dropped(registry, contract.SeverityCooldown, causeStopped), 0)
	})
}

func TestStopAtAFrozenFarSideEndsAfterFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far receiver
		box, registry := newOutbox(&far)
		far.set(nil, true)
		box.Start()
		for i := range 20 {
			box.Offer(cooling(fmt.Sprint("c", i), time.Minute))
		}
		begin := time.Now()
		box.Stop(t.Context())
		require.Equal(t, drainLimit, time.Since(begin))
		require.InDelta(t, 20, dropped(registry, contract.SeverityCooldown, causeStopped), 0)
	})
}

func TestStopWithoutStartCountsWhatItLoses(t *testing.T) {
	var far receiver
	box, registry := newOutbox(&far)
	box.Offer(terminal("a"))
	box.Stop(t.Context())
	require.InDelta(t, 1, dropped(registry, contract.SeverityTerminal, causeStopped), 0)
}

func BenchmarkOfferWhenFull(b *testing.B) {
	var far receiver
	box, _ := newOutbox(&far)
	for i := range maxKeys {
		box.Offer(terminal(fmt.Sprint("c", i)))
	}
	change := cooling("one more", time.Minute)
	for b.Loop() {
		box.Offer(change)
	}
}

func dropped(r *prometheus.Registry, s contract.Severity, cause string) float64 {
	families, err := r.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() != "omniroute_outbox_dropped_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["severity"] == s.String() && labels["cause"] == cause {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func metric(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
