package feed

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/integration/harness/postgres"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

func TestMain(m *testing.M) {
	code := postgres.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // the exit code tells too
			code = 1
		}
	}
	os.Exit(code)
}

func TestOnPostgresAnotherProcessesChangesArriveByNotification(t *testing.T) {
	address := postgres.Shared(t).Database(t)
	replica, worker := openStore(t, address), openStore(t, address)
	// Polls are out of the question within the test's bound.
	feed, sink := startFeed(t, replica, Options{Poll: time.Hour, Resync: time.Hour})
	awaitListening(t, feed)

	began := time.Now()
	apply(t, worker)
	sink.awaitThat(func(r *recorder) bool { return r.snapshot.Connections["c-1"] != nil })
	require.Less(t, time.Since(began), 2*time.Second)

	began = time.Now()
	publish(t, worker, 1)
	sink.awaitThat(func(r *recorder) bool { return r.states["c-1"].Version == 1 })
	require.Less(t, time.Since(began), time.Second)
}

func TestOnSQLiteAnotherProcessesChangesArriveWithinASecond(t *testing.T) {
	address := "sqlite:" + filepath.Join(t.TempDir(), "feed.db")
	replica, other := openStore(t, address), openStore(t, address)
	_, sink := startFeed(t, replica, Options{Poll: time.Hour, Resync: time.Hour})

	began := time.Now()
	apply(t, other)
	sink.awaitThat(func(r *recorder) bool { return r.snapshot.Connections["c-1"] != nil })
	publish(t, other, 1)
	sink.awaitThat(func(r *recorder) bool { return r.states["c-1"].Version == 1 })

	require.Less(t, time.Since(began), 2*time.Second)
}

func TestThisProcessesOwnChangesArriveWithoutAnyPoll(t *testing.T) {
	own := openStore(t, "sqlite:"+filepath.Join(t.TempDir(), "feed.db"))
	_, sink := startFeed(t, own, Options{Poll: time.Hour, Resync: time.Hour, Local: time.Hour})

	apply(t, own)

	sink.awaitThat(func(r *recorder) bool { return r.snapshot.Connections["c-1"] != nil })
}

func TestAfterAnOutageOfPostgresTheFeedCatchesUpAndListensAgain(t *testing.T) {
	server := postgres.Start(t)
	address := server.Database(t)
	replica := openStore(t, address)
	apply(t, replica)
	feed, sink := startFeed(t, replica, Options{Poll: 100 * time.Millisecond})
	require.NotNil(t, sink.snapshot.Connections["c-1"])

	server.Kill(t)
	sink.awaitThat(func(r *recorder) bool {
		return len(r.calls) > 0 && strings.Contains(r.calls[len(r.calls)-1], "not available")
	})
	require.NotNil(t, sink.snapshot.Connections["c-1"], "the last snapshot stays")
	server.Restart(t)
	publish(t, openStore(t, address), 7)

	sink.awaitThat(func(r *recorder) bool { return r.states["c-1"].Version == 7 })
	awaitListening(t, feed)
}

func TestAFrozenPostgresIsNoticedAndStopDoesNotWaitForIt(t *testing.T) {
	server := postgres.Start(t)
	replica := openStore(t, server.DatabaseTCP(t))
	feed, sink := startFeed(t, replica, Options{Poll: 100 * time.Millisecond})

	server.Pause(t)
	defer server.Resume(t)
	sink.awaitThat(func(r *recorder) bool {
		return len(r.calls) > 0 && strings.Contains(r.calls[len(r.calls)-1], "not available")
	})

	began := time.Now()
	feed.Stop()
	require.Less(t, time.Since(began), 3*time.Second)
}

func openStore(t *testing.T, address string) *store.Store {
	t.Helper()
	spec, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	if kept := rings[address]; kept != "" {
		spec = kept
	}
	rings[address] = spec
	ring, err := secrets.ParseKeyRing(spec)
	require.NoError(t, err)
	s, err := store.Open(t.Context(), address, ring, quiet())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// rings keeps the key ring of each test database; tests here do not run in parallel.
var rings = map[string]string{}

func startFeed(t *testing.T, s *store.Store, o Options) (*Feed, *recorder) {
	t.Helper()
	sink := &recorder{}
	feed := New(s, sink, o, quiet(), prometheus.NewRegistry())
	require.NoError(t, feed.Start(t.Context()))
	t.Cleanup(feed.Stop)
	return feed, sink
}

// awaitListening looks at the metric, which is all that shows it from outside.
func awaitListening(t *testing.T, feed *Feed) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for late := time.After(30 * time.Second); testutil.ToFloat64(feed.metrics.listening) != 1; {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("the feed does not listen")
		}
	}
}

func apply(t *testing.T, s *store.Store) {
	t.Helper()
	doc, err := catalog.ParseDocument(strings.NewReader(`
providers: [{id: p, class: local, baseURL: "http://localhost:1"}]
connections: [{id: c-1, provider: p}]`), "catalog.yaml", os.LookupEnv)
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), doc, store.ApplyOptions{})
	require.NoError(t, err)
}

func publish(t *testing.T, s *store.Store, version int64) {
	t.Helper()
	_, err := s.PublishConnection(t.Context(), catalog.ConnectionState{
		Connection: "c-1", Provider: "p", Stamp: models.Stamp{Version: version},
		State: resilience.Connection{Cooldown: resilience.Cooldown{Level: 1, Deadline: resilience.Deadline{Until: time.Now().Add(time.Minute)}}},
	})
	require.NoError(t, err)
}

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}
