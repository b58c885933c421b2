package dial

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"
)

// labels are the SDK's tags we keep. All are bounded: names of ours, of the API, or of gRPC
// codes. Whatever else a metric carries is left out.
var labels = []string{"operation", "task_queue", "worker_type", "poller_type", "workflow_type", "activity_type", "failure_reason", "status_code"}

// latencies suit what the SDK times, from a cached answer to a workflow of a minute.
var latencies = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60}

// newMetricsHandler gives the SDK's metrics, named temporal_*, to Prometheus. One vector per
// name is made when the SDK first uses it.
func newMetricsHandler(r prometheus.Registerer) client.MetricsHandler {
	return metricsHandler{shared: &vectors{
		registerer: r,
		counters:   map[string]*prometheus.CounterVec{},
		gauges:     map[string]*prometheus.GaugeVec{},
		timers:     map[string]*prometheus.HistogramVec{},
	}}
}

type metricsHandler struct {
	shared *vectors
	tags   map[string]string
}

// WithTags implements client.MetricsHandler.
func (h metricsHandler) WithTags(tags map[string]string) client.MetricsHandler {
	merged := maps.Clone(h.tags)
	if merged == nil {
		merged = make(map[string]string, len(tags))
	}
	for k, v := range tags {
		if slices.Contains(labels, k) {
			merged[k] = v
		}
	}
	return metricsHandler{shared: h.shared, tags: merged}
}

// Counter implements client.MetricsHandler.
func (h metricsHandler) Counter(name string) client.MetricsCounter {
	return counter{h.shared.counter(name).WithLabelValues(h.values()...)}
}

// Gauge implements client.MetricsHandler.
func (h metricsHandler) Gauge(name string) client.MetricsGauge {
	return gauge{h.shared.gauge(name).WithLabelValues(h.values()...)}
}

// Timer implements client.MetricsHandler.
func (h metricsHandler) Timer(name string) client.MetricsTimer {
	return timer{h.shared.timer(name).WithLabelValues(h.values()...)}
}

func (h metricsHandler) values() []string {
	v := make([]string, len(labels))
	for i, label := range labels {
		v[i] = h.tags[label]
	}
	return v
}

type (
	counter struct{ prometheus.Counter }
	gauge   struct{ prometheus.Gauge }
	timer   struct{ prometheus.Observer }
)

// Inc implements client.MetricsCounter.
func (c counter) Inc(n int64) { c.Add(float64(n)) }

// Update implements client.MetricsGauge.
func (g gauge) Update(v float64) { g.Set(v) }

// Record implements client.MetricsTimer.
func (t timer) Record(d time.Duration) { t.Observe(d.Seconds()) }

// vectors holds what has been registered; the SDK asks for the same names again and again.
type vectors struct {
	registerer prometheus.Registerer
	mu         sync.Mutex
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	timers     map[string]*prometheus.HistogramVec
}

func (v *vectors) counter(name string) *prometheus.CounterVec {
	return once(v, v.counters, name, func() *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name + "_total", Help: help}, labels)
	})
}

func (v *vectors) gauge(name string) *prometheus.GaugeVec {
	return once(v, v.gauges, name, func() *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	})
}

func (v *vectors) timer(name string) *prometheus.HistogramVec {
	return once(v, v.timers, name, func() *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name + "_seconds", Help: help, Buckets: latencies}, labels)
	})
}

const help = "Measured by Temporal's SDK; see its metrics reference."

func once[V prometheus.Collector](v *vectors, known map[string]V, name string, make func() V) V {
	v.mu.Lock()
	defer v.mu.Unlock()
	if vec, ok := known[name]; ok {
		return vec
	}
	vec := make()
	var taken prometheus.AlreadyRegisteredError
	if err := v.registerer.Register(vec); errors.As(err, &taken) {
		if other, ok := taken.ExistingCollector.(V); ok {
			vec = other // a second client of this process counts into the same vector
		}
	}
	known[name] = vec
	return vec
}
