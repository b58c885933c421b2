// Package ledger writes the record of every finished request to the database, in batches
// and behind the requests' backs: offering one costs a lock and a copy, and a database that
// is away costs records only after a bounded queue has filled.
package ledger

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/models"
	"omniroute/models/catalog"
)

const (
	batchRows     = 500         // a full batch is written at once
	batchWait     = time.Second // an unfinished one after this long
	insertTimeout = 10 * time.Second
	retryFirst    = 200 * time.Millisecond
	retryMost     = 10 * time.Second
	flushBound    = 3 * time.Second // what Stop may take

	// DefaultCapacity is how many records wait at most, beside the batch being written.
	// At 200 bytes and some strings each this is about 4 MB when the database is away.
	DefaultCapacity = 10_000
)

// Rows is what the ledger needs of the store.
type Rows interface {
	// InsertRequests writes all or nothing; a record that is already there is left as it is.
	InsertRequests(ctx context.Context, records []catalog.RequestRecord) error
	DeleteRequestsBefore(ctx context.Context, t time.Time, limit int) (deleted int64, err error)
	Ping(ctx context.Context) error
}

// Options of a ledger.
type Options struct {
	Rows       Rows
	Capacity   int           // 0 = DefaultCapacity
	Retention  time.Duration // 0 = records are kept
	Log        logrus.FieldLogger
	Registerer prometheus.Registerer
}

// Ledger is a bounded queue with one writer. It satisfies relay.Ledger.
type Ledger struct {
	rows      Rows
	retention time.Duration
	log       logrus.FieldLogger
	metrics   metrics

	mu    sync.Mutex
	queue []catalog.RequestRecord // a ring: count records from head on
	head  int
	count int

	offered  chan struct{} // capacity 1: the queue is no longer empty
	full     chan struct{} // capacity 1: the queue holds a batch
	stopping chan struct{}
	stop     sync.Once
	running  sync.WaitGroup
	cancel   context.CancelFunc
	lifetime context.Context
}

// New makes a ledger that accepts records at once and writes them after Start.
func New(o Options) *Ledger {
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	lifetime, cancel := context.WithCancel(context.Background())
	l := &Ledger{
		rows: o.Rows, retention: o.Retention, log: o.Log,
		queue:    make([]catalog.RequestRecord, o.Capacity),
		offered:  make(chan struct{}, 1),
		full:     make(chan struct{}, 1),
		stopping: make(chan struct{}),
		lifetime: lifetime, cancel: cancel,
	}
	l.metrics = newMetrics(o.Registerer, l.Pending)
	return l
}

// Start begins writing.
func (l *Ledger) Start() {
	l.running.Go(l.write)
	if l.retention > 0 {
		l.running.Go(l.retain)
	}
}

// Offer takes the record of a finished request. It never blocks and does no I/O; when the
// queue is full the oldest record gives way, because the newest explain what is going on.
func (l *Ledger) Offer(r catalog.RequestRecord) {
	l.mu.Lock()
	if l.count == len(l.queue) {
		l.head = (l.head + 1) % len(l.queue)
		l.count--
		l.metrics.dropped.Inc()
	}
	l.queue[(l.head+l.count)%len(l.queue)] = r
	l.count++
	count := l.count
	l.mu.Unlock()
	if count == 1 {
		wake(l.offered)
	}
	if count >= batchRows {
		wake(l.full)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Pending is how many records wait to be written, the batch in hand not counted.
func (l *Ledger) Pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Stop writes what is pending and returns, after 3 s or when ctx ends at the latest; what is
// still pending then is counted as dropped. Records offered later are not written.
func (l *Ledger) Stop(ctx context.Context) {
	l.stop.Do(func() { close(l.stopping) })
	ctx, cancel := context.WithTimeout(ctx, flushBound)
	defer cancel()
	defer context.AfterFunc(ctx, l.cancel)()
	l.running.Wait()
	l.cancel()
}

// write is the one writer: it waits for the first record, then for a full batch or a second,
// and writes until the queue is empty.
func (l *Ledger) write() {
	batch := make([]catalog.RequestRecord, 0, batchRows)
	for l.await() {
		for l.lifetime.Err() == nil {
			if batch = l.take(batch[:0]); len(batch) == 0 {
				break
			}
			l.insert(batch)
			clear(batch) // the strings of written records are not kept alive
		}
	}
	for batch = l.take(batch[:0]); len(batch) > 0 && l.lifetime.Err() == nil; batch = l.take(batch[:0]) {
		l.insert(batch)
	}
	if lost := len(batch) + l.Pending(); lost > 0 {
		l.lose(lost)
	}
}

// lose counts records that the end of the process takes with it.
func (l *Ledger) lose(records int) {
	l.metrics.dropped.Add(float64(records))
	l.log.WithField("records", records).Warn("request records lost at shutdown")
}

// await returns true when there is something to write, false when the ledger stops.
func (l *Ledger) await() bool {
	select {
	case <-l.offered:
	case <-l.stopping:
		return false
	}
	timer := time.NewTimer(batchWait)
	defer timer.Stop()
	select {
	case <-l.full:
	case <-timer.C:
	case <-l.stopping:
		return false
	}
	return true
}

// take moves up to one batch out of the queue.
func (l *Ledger) take(batch []catalog.RequestRecord) []catalog.RequestRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.count > 0 && len(batch) < batchRows {
		batch = append(batch, l.queue[l.head])
		l.queue[l.head] = catalog.RequestRecord{}
		l.head = (l.head + 1) % len(l.queue)
		l.count--
	}
	return batch
}

// insert writes a batch, for as long as the database is away. A database that answers and
// still refuses has an objection to a record: then each goes alone and the refused ones are
// given up, so that one bad record cannot hold up the ledger for ever.
func (l *Ledger) insert(batch []catalog.RequestRecord) {
	away := backoff.NewExponentialBackOff()
	away.InitialInterval, away.MaxInterval = retryFirst, retryMost
	warned, stopping := false, l.stopping
	for {
		err := l.insertOnce(batch)
		if err == nil {
			l.metrics.written.Add(float64(len(batch)))
			if warned {
				l.log.Info("request records are written again")
			}
			return
		}
		if l.lifetime.Err() != nil {
			l.lose(len(batch))
			return
		}
		l.metrics.failures.Inc()
		if l.answers() {
			l.insertEach(batch)
			return
		}
		if !warned {
			l.log.WithError(models.Root(err)).Warn("request records wait for the database")
			warned = true
		}
		select {
		case <-time.After(away.NextBackOff()):
		case <-stopping: // what little time is left is used
			stopping, away.MaxInterval = nil, retryFirst
			away.Reset()
		case <-l.lifetime.Done():
		}
	}
}

func (l *Ledger) insertOnce(batch []catalog.RequestRecord) error {
	ctx, cancel := context.WithTimeout(l.lifetime, insertTimeout)
	defer cancel()
	return l.rows.InsertRequests(ctx, batch)
}

func (l *Ledger) answers() bool {
	ctx, cancel := context.WithTimeout(l.lifetime, insertTimeout)
	defer cancel()
	return l.rows.Ping(ctx) == nil
}

func (l *Ledger) insertEach(batch []catalog.RequestRecord) {
	for i := range batch {
		if err := l.insertOnce(batch[i : i+1]); err != nil {
			if !l.answers() { // not the record's fault after all
				l.insert(batch[i:])
				return
			}
			l.metrics.rejected.Inc()
			l.log.WithError(models.Root(err)).WithField("request", batch[i].ID).Warn("request record refused by the database")
			continue
		}
		l.metrics.written.Inc()
	}
}
