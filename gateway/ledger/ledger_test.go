package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/models"
	"omniroute/models/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("connection refused")

// table is a database that can be taken away, and that refuses records served by "poison".
type table struct {
	mu      sync.Mutex
	away    bool
	hangs   bool
	batches [][]catalog.RequestRecord
	old     int64 // expired rows still there
	chunks  []int64
	cutoffs []time.Time
}

func (t *table) InsertRequests(ctx context.Context, records []catalog.RequestRecord) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hangs {
		t.mu.Unlock()
		<-ctx.Done()
		t.mu.Lock()
		return ctx.Err()
	}
	if t.away {
		return errAway
	}
	for _, r := range records {
		if r.Served == "poison" {
			return errors.New("invalid byte sequence")
		}
	}
	t.batches = append(t.batches, append([]catalog.RequestRecord(nil), records...))
	return nil
}

func (t *table) DeleteRequestsBefore(_ context.Context, before time.Time, limit int) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	deleted := min(t.old, int64(limit))
	t.old -= deleted
	t.chunks = append(t.chunks, deleted)
	t.cutoffs = append(t.cutoffs, before)
	return deleted, nil
}

func (t *table) Ping(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away || t.hangs {
		return errAway
	}
	return nil
}

// set looks at or changes the table.
func (t *table) set(change func(*table)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

func (t *table) written() (ids []string, sizes []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, batch := range t.batches {
		sizes = append(sizes, len(batch))
		for _, r := range batch {
			ids = append(ids, string(r.ID))
		}
	}
	return ids, sizes
}

func newLedger(t *table, capacity int, retention time.Duration) *Ledger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return New(Options{Rows: t, Capacity: capacity, Retention: retention, Log: log, Registerer: prometheus.NewRegistry()})
}

func record(i int) catalog.RequestRecord {
	return catalog.RequestRecord{ID: models.RequestID(fmt.Sprintf("r%d", i))}
}

func offer(l *Ledger, from, to int) {
	for i := from; i < to; i++ {
		l.Offer(record(i))
	}
}

func TestAFullBatchIsWrittenAtOnceAndARestAfterASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		l := newLedger(rows, 0, 0)
		l.Start()
		defer l.Stop(t.Context())

		offer(l, 0, 500)
		synctest.Wait()
		_, sizes := rows.written()
		require.Equal(t, []int{500}, sizes)

		synctest.Wait()
		l.Offer(record(500))
		time.Sleep(999 * time.Millisecond)
		synctest.Wait()
		_, sizes = rows.written()
		require.Equal(t, []int{500}, sizes)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		_, sizes = rows.written()
		require.Equal(t, []int{500, 1}, sizes)
	})
}

func TestRecordsOutliveADatabaseThatIsAwayAndKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{away: true}
		l := newLedger(rows, 0, 0)
		l.Start()
		defer l.Stop(t.Context())

		offer(l, 0, 1250)
		time.Sleep(time.Minute)
		rows.set(func(r *table) { r.away = false })
		time.Sleep(20 * time.Second) // the longest back-off, with its jitter

		ids, sizes := rows.written()
		require.Equal(t, []int{500, 500, 250}, sizes)
		require.Equal(t, "r0", ids[0])
		require.Equal(t, "r1249", ids[1249])
		require.Equal(t, 1250.0, testutil.ToFloat64(l.metrics.written))
		require.Zero(t, testutil.ToFloat64(l.metrics.dropped))
		require.Greater(t, testutil.ToFloat64(l.metrics.failures), 3.0)
	})
}

func TestAFullQueueGivesUpTheOldestAndCountsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		l := newLedger(rows, 10, 0)
		offer(l, 0, 25)
		require.Equal(t, 10, l.Pending())

		l.Start()
		l.Stop(t.Context())

		ids, _ := rows.written()
		require.Equal(t, []string{"r15", "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24"}, ids)
		require.Equal(t, 15.0, testutil.ToFloat64(l.metrics.dropped))
		require.Equal(t, 10.0, testutil.ToFloat64(l.metrics.written))
	})
}

func TestARecordTheDatabaseRefusesDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		l := newLedger(rows, 0, 0)
		l.Start()
		bad := record(1)
		bad.Served = "poison"
		l.Offer(record(0))
		l.Offer(bad)
		l.Offer(record(2))
		l.Stop(t.Context())

		ids, _ := rows.written()
		require.Equal(t, []string{"r0", "r2"}, ids)
		require.Equal(t, 1.0, testutil.ToFloat64(l.metrics.rejected))
	})
}

func TestStopFlushesWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{}
		l := newLedger(rows, 0, 0)
		l.Start()
		offer(l, 0, 42)
		l.Stop(t.Context())
		l.Stop(t.Context())

		ids, _ := rows.written()
		require.Len(t, ids, 42)
	})
}

func TestStopUsesTheTimeItHasWhenTheDatabaseComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{away: true}
		l := newLedger(rows, 0, 0)
		l.Start()
		offer(l, 0, 542)
		time.Sleep(time.Minute) // by now the pause between tries is long
		go func() {
			time.Sleep(time.Second)
			rows.set(func(r *table) { r.away = false })
		}()
		l.Stop(t.Context())

		ids, _ := rows.written()
		require.Len(t, ids, 542)
	})
}

func TestStopIsBoundedWhenTheDatabaseIsAwayOrHangs(t *testing.T) {
	for name, trouble := range map[string]*table{"away": {away: true}, "hangs": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger(trouble, 0, 0)
				l.Start()
				offer(l, 0, 542)
				start := time.Now()
				l.Stop(t.Context())

				require.LessOrEqual(t, time.Since(start), flushBound)
				require.Equal(t, 542.0, testutil.ToFloat64(l.metrics.dropped))
			})
		})
	}
}

func TestExpiredRecordsGoInChunksAtStartAndEveryHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &table{old: 2500}
		l := newLedger(rows, 0, 24*time.Hour)
		start := time.Now()
		l.Start()
		defer l.Stop(t.Context())
		synctest.Wait()
		rows.set(func(r *table) {
			require.Equal(t, []int64{1000, 1000, 500}, r.chunks)
			require.Equal(t, start.Add(-24*time.Hour), r.cutoffs[0])
			r.old, r.chunks = 3, nil
		})

		time.Sleep(time.Hour)
		synctest.Wait()
		rows.set(func(r *table) { require.Equal(t, []int64{3}, r.chunks) })
		require.Equal(t, 2503.0, testutil.ToFloat64(l.metrics.expired))
	})
}

func TestOfferingARecordAllocatesNothing(t *testing.T) {
	l := newLedger(&table{}, 1000, 0)
	r := record(1)
	r.Asked = strings.Repeat("m", 40)
	require.Zero(t, testing.AllocsPerRun(5000, func() { l.Offer(r) }))
	l.cancel()
}

func BenchmarkOffer(b *testing.B) {
	l := newLedger(&table{}, 0, 0)
	r := record(1)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Offer(r)
		}
	})
	l.cancel()
}
