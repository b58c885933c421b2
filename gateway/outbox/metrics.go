package outbox

import (
	"github.com/prometheus/client_golang/prometheus"

	"omniroute/workflows/contract"
)

// Why a change was dropped.
const (
	causeFull    = "full"
	causeStopped = "stopped"
)

type metrics struct {
	sent    prometheus.Counter
	failed  prometheus.Counter
	merged  prometheus.Counter
	dropped *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, o *Outbox) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "omniroute_outbox_" + name, Help: help})
	}
	m := &metrics{
		sent:   counter("sent_total", "Changes delivered to their workflow."),
		failed: counter("failed_total", "Sends that failed; the change is kept and sent again."),
		merged: counter("merged_total", "Changes that joined one already waiting for the same entity."),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_outbox_dropped_total", Help: "Changes given up, by severity and cause (full, stopped).",
		}, []string{"severity", "cause"}),
	}
	if r == nil {
		return m
	}
	gauge := func(name, help string, value func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "omniroute_outbox_" + name, Help: help},
			func() float64 { return value(o.Stats()) })
	}
	r.MustRegister(m.sent, m.failed, m.merged, m.dropped,
		gauge("pending", "Entities with a change to send.", func(s Stats) float64 { return float64(s.Pending) }),
		gauge("oldest_age_seconds", "Age of the change that has waited longest.", func(s Stats) float64 { return s.OldestAge.Seconds() }),
		gauge("degraded", "1 while changes do not arrive.", func(s Stats) float64 {
			if s.Degraded {
				return 1
			}
			return 0
		}))
	return m
}

func (m *metrics) drop(s contract.Severity, cause string) {
	m.dropped.WithLabelValues(s.String(), cause).Inc()
}
