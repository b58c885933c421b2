package feed

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
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

func TestStartDeliversTheCatalogBeforeTheStatesAndReturnsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorld(t)

		require.NoError(t, w.feed.Start(t.Context()))

		require.Equal(t, []string{"catalog 1", "states all", "health <nil>"}, w.sink.took())
	})
}

func TestWithoutAFirstReadStartFailsAndMayBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorld(t)
		w.source.fail(errors.New("away"))
		require.ErrorContains(t, w.feed.Start(t.Context()), "away")

		w.source.fail(nil)

		require.NoError(t, w.feed.Start(t.Context()))
		require.Error(t, w.feed.Start(t.Context()), "started twice")
	})
}

func TestAStormOfHintsIsOneReadWithinTheDebounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)

		began := time.Now()
		for range 1000 {
			w.source.changes <- catalog.ChangedState
		}
		w.sink.await("states 30s")

		require.Equal(t, 30*time.Millisecond, time.Since(began))
		synctest.Wait()
		require.Equal(t, []string{"states 30s", "health <nil>"}, w.sink.took())
	})
}

func TestHintsThatNeverStopDoNotDelayTheReadForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		var storm sync.WaitGroup
		storm.Go(func() {
			for range 100 {
				w.source.changes <- catalog.ChangedState
				<-time.After(time.Millisecond)
			}
		})
		storm.Wait()

		require.GreaterOrEqual(t, len(w.sink.took()), 4) // two or three reads of two calls
	})
}

func TestACatalogHintReadsTheSnapshotOnlyWhenTheRevisionMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.changes <- catalog.ChangedCatalog
		<-time.After(100 * time.Millisecond)
		require.Equal(t, []string{"health <nil>"}, w.sink.took())

		w.source.move()
		w.source.changes <- catalog.ChangedCatalog
		<-time.After(100 * time.Millisecond)

		require.Equal(t, []string{"catalog 2", "states all", "health <nil>"}, w.sink.took())
	})
}

func TestWhoAsksForALookSeesTheChangeWithoutANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.move()

		began := time.Now()
		w.feed.Look()
		w.sink.await("catalog 2")

		require.Less(t, time.Since(began), 100*time.Millisecond)
	})
}

func TestWithoutAnyHintAPollSeesTheChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.move()

		began := time.Now()
		w.sink.await("catalog 2")

		require.LessOrEqual(t, time.Since(began), 6*time.Second)
		require.GreaterOrEqual(t, time.Since(began), 4*time.Second)
	})
}

func TestPollsOverlapAndEveryMinuteTheStatesAreReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)

		<-time.After(5 * time.Minute)

		counts := map[string]int{}
		for _, call := range w.sink.took() {
			counts[call]++
		}
		require.InDelta(t, 60, counts["states 30s"], 15)
		require.InDelta(t, 5, counts["states all"], 1)
	})
}

func TestWhileTheDatabaseIsAwayTheSinkHearsItAndAfterwardsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.fail(errors.New("away"))
		w.sink.await("health away")
		<-time.After(time.Minute)
		for _, call := range w.sink.took() {
			require.Equal(t, "health away", call, "nothing else is delivered")
		}

		w.source.move()
		w.source.fail(nil)
		w.sink.await("health <nil>")

		require.Equal(t, []string{"catalog 2", "states all", "health <nil>"}, w.sink.took())
	})
}

func TestAReadThatHangsCountsAsAwayAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.hang(true)

		began := time.Now()
		w.sink.await("health context deadline exceeded")

		require.LessOrEqual(t, time.Since(began), 6*time.Second+readTimeout)
	})
}

// New credentials are committed together with the era that they begin. A sink that heard of the
// era first would take what the old ones still meet for the new era's.
func TestNoEraArrivesBeforeTheCatalogThatItWasCommittedWith(t *testing.T) {
	for name, between := range map[string]func(*fakeSource){
		"before the states are read": func(s *fakeSource) { s.onRevision = s.move },
		"after they were read":       func(s *fakeSource) { s.onStates = s.move },
		"before the snapshot":        func(s *fakeSource) { s.onRevision = s.move; s.onStates = s.move },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := started(t)
				between(w.source)
				for range 3 {
					w.source.changes <- catalog.ChangedState
					<-time.After(100 * time.Millisecond)
				}
				w.source.changes <- catalog.ChangedCatalog
				<-time.After(100 * time.Millisecond)

				known := int64(1)
				for _, call := range w.sink.took() {
					fmt.Sscanf(call, "catalog %d", &known) //nolint:errcheck // other calls do not match
				}
				require.Greater(t, known, int64(1))
				require.Empty(t, w.sink.early, "states of a catalog that the sink did not have yet")
			})
		})
	}
}

func TestTheClocksAreComparedInTheMiddleOfAReadThatWasNotTooSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorld(t)
		w.source.ahead = time.Minute
		w.source.slow = 400 * time.Millisecond
		require.NoError(t, w.feed.Start(t.Context()))
		require.Equal(t, time.Minute, w.sink.skew)

		w.source.ahead = time.Hour
		w.source.slow = 600 * time.Millisecond
		w.source.changes <- catalog.ChangedState
		w.sink.await("states 30s")
		require.Equal(t, time.Minute, w.sink.skew, "it cannot tell, and what was known stands")

		w.source.slow = 0
		w.sink.took()
		w.source.changes <- catalog.ChangedState
		w.sink.await("states 30s")
		require.Equal(t, time.Hour, w.sink.skew)
	})
}

func TestStopCancelsAReadThatHangsAndIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.hang(true)
		<-time.After(8 * time.Second) // inside a hanging poll
		w.sink.took()

		began := time.Now()
		w.feed.Stop()
		w.feed.Stop()

		require.Zero(t, time.Since(began))
		require.Empty(t, w.sink.took(), "ending is not an outage")
		require.Error(t, w.feed.Start(t.Context()))
	})
}

func TestWithoutNotificationsOtherProcessesAreSeenWithinTheLocalInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeWorld(t)
		w.source.address = ""
		require.NoError(t, w.feed.Start(t.Context()))
		synctest.Wait()
		w.sink.took()

		w.source.move()
		w.sink.await("catalog 2")
		w.sink.took()
		<-time.After(300 * time.Millisecond)

		require.Contains(t, w.sink.took(), "states 2s")
	})
}

func TestTheAgeOfTheViewIsAMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := started(t)
		w.source.fail(errors.New("away"))
		<-time.After(20 * time.Second)

		age, err := testutil.GatherAndCount(w.registry, "omniroute_feed_age_seconds")
		require.NoError(t, err)
		require.Equal(t, 1, age)
		require.GreaterOrEqual(t, testutil.ToFloat64(w.feed.metrics.reads.WithLabelValues("failed")), 3.0)
		require.EqualValues(t, 1, testutil.ToFloat64(w.feed.metrics.revision))
	})
}

// fakeWorld is a feed over a source that is only memory. The address does not parse, so
// nothing is dialled and the feed lives by watching and polling.
type fakeWorld struct {
	source   *fakeSource
	sink     *recorder
	feed     *Feed
	registry *prometheus.Registry
}

func newFakeWorld(t *testing.T) *fakeWorld {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	w := &fakeWorld{
		source:   &fakeSource{revision: 1, changes: make(chan string), address: "postgres://%zz"},
		sink:     &recorder{},
		registry: prometheus.NewRegistry(),
	}
	w.feed = New(w.source, w.sink, Options{}, log, w.registry)
	t.Cleanup(w.feed.Stop)
	return w
}

func started(t *testing.T) *fakeWorld {
	t.Helper()
	w := newFakeWorld(t)
	require.NoError(t, w.feed.Start(t.Context()))
	synctest.Wait()
	w.sink.took()
	return w
}

type fakeSource struct {
	changes chan string
	address string
	ahead   time.Duration // of the database's clock
	slow    time.Duration // how long a read of the states takes
	// What happens in the database just after a question was answered.
	onRevision, onStates func()

	mu       sync.Mutex
	revision int64
	err      error
	hangs    bool
}

func (s *fakeSource) LoadSnapshot(ctx context.Context) (*catalog.Snapshot, error) {
	return &catalog.Snapshot{Revision: s.now()}, s.answers(ctx)
}

func (s *fakeSource) States(ctx context.Context, since time.Duration) (*catalog.States, error) {
	if err := s.answers(ctx); err != nil {
		return nil, err
	}
	name := since.String()
	if since == 0 {
		name = "all"
	}
	<-time.After(s.slow / 2)
	// The recorder reads the window back from the one state, and the era is the revision that
	// the state was committed with.
	states := &catalog.States{
		Complete: since == 0, Now: time.Now().Add(s.ahead),
		Connections: []catalog.ConnectionState{{Connection: connectionID(name), Stamp: models.Stamp{Era: s.now()}}},
	}
	<-time.After(s.slow - s.slow/2)
	if s.onStates != nil {
		s.onStates()
	}
	return states, nil
}

func (s *fakeSource) now() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

func (s *fakeSource) CatalogRevision(ctx context.Context) (int64, error) {
	s.mu.Lock()
	revision := s.revision
	s.mu.Unlock()
	if s.onRevision != nil {
		s.onRevision()
	}
	return revision, s.answers(ctx)
}

// answers says whether the database answers, when it does.
func (s *fakeSource) answers(ctx context.Context) error {
	s.mu.Lock()
	err, hangs := s.err, s.hangs
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (s *fakeSource) ListenURL() string { return s.address }

func (s *fakeSource) Watch() (<-chan string, func()) { return s.changes, func() {} }

func (s *fakeSource) move() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
}

func (s *fakeSource) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *fakeSource) hang(hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}
