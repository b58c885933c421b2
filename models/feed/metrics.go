package feed

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"omniroute/models/catalog"
)

type metrics struct {
	lag        prometheus.Histogram
	reads      *prometheus.CounterVec
	hints      *prometheus.CounterVec
	listening  prometheus.Gauge
	reconnects prometheus.Counter
	revision   prometheus.Gauge
	succeeded  atomic.Int64 // of the latest good read, in Unix nanoseconds
}

// newMetrics registers the feed's metrics; a nil registerer leaves them unregistered.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{}
	m.succeeded.Store(time.Now().UnixNano())
	factory := promauto.With(reg)
	m.lag = factory.NewHistogram(prometheus.HistogramOpts{
		Name:    "omniroute_feed_lag_seconds",
		Help:    "Time from hearing of a change to having delivered it.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5},
	})
	m.reads = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "omniroute_feed_reads_total", Help: "Reads of catalog and states, by result.",
	}, []string{"result"})
	m.hints = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "omniroute_feed_notifications_total", Help: "Notifications heard, by what changed.",
	}, []string{"changed"})
	m.listening = factory.NewGauge(prometheus.GaugeOpts{
		Name: "omniroute_feed_listening", Help: "1 while the feed hears notifications; polling goes on without.",
	})
	m.reconnects = factory.NewCounter(prometheus.CounterOpts{
		Name: "omniroute_feed_reconnects_total", Help: "Lost or failed connections for notifications.",
	})
	m.revision = factory.NewGauge(prometheus.GaugeOpts{
		Name: "omniroute_feed_catalog_revision", Help: "Revision of the catalog that is being served by.",
	})
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "omniroute_feed_age_seconds", Help: "Time since the database was last read with success.",
	}, func() float64 { return time.Since(time.Unix(0, m.succeeded.Load())).Seconds() })
	return m
}

func (m *metrics) read(err error) {
	if err != nil {
		m.reads.WithLabelValues("failed").Inc()
		return
	}
	m.reads.WithLabelValues("ok").Inc()
	m.succeeded.Store(time.Now().UnixNano())
}

// label bounds a payload from the network to the words we know.
func label(what string) string {
	if what == catalog.ChangedCatalog || what == catalog.ChangedState {
		return what
	}
	return "other"
}
