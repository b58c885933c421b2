package live

import (
	"github.com/prometheus/client_golang/prometheus"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Results of asking for the shared probe.
const (
	probeWon    = "won"
	probeLost   = "lost"
	probeUnsure = "unsure" // the database did not answer in time: ask once more
	probeLocal  = "local"  // the database did not answer: each replica for itself
)

type metrics struct {
	openings        *prometheus.CounterVec
	probes          *prometheus.CounterVec
	lockoutsDropped prometheus.Counter
	tracksForgotten prometheus.Counter
}

func newMetrics(r prometheus.Registerer, l *Live) *metrics {
	m := &metrics{
		openings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_breaker_openings_total", Help: "Times this replica's breaker of a provider opened.",
		}, []string{"provider"}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_breaker_probes_total", Help: "Half-open probes asked for, by result (won, lost, unsure, local).",
		}, []string{"result"}),
		lockoutsDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "omniroute_target_cooldowns_dropped_total", Help: "Running lockouts of models forgotten for lack of room.",
		}),
		tracksForgotten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "omniroute_target_statistics_dropped_total", Help: "Statistics of models on single connections forgotten for lack of room.",
		}),
	}
	if r != nil {
		r.MustRegister(m.openings, m.probes, m.lockoutsDropped, m.tracksForgotten, gauges{l})
	}
	return m
}

var (
	cooldownsDesc = prometheus.NewDesc("omniroute_connection_cooldowns",
		"Connections that are out now, by provider and reason; a terminal state is its own reason.", []string{"provider", "reason"}, nil)
	breakerDesc = prometheus.NewDesc("omniroute_breaker_state",
		"State of a provider's breaker: 0 closed, 1 degraded, 2 half-open, 3 open.", []string{"provider"}, nil)
	targetsDesc = prometheus.NewDesc("omniroute_target_cooldowns",
		"Lockouts of models on single connections that run now, by provider and reason.", []string{"provider", "reason"}, nil)
	holdsDesc = prometheus.NewDesc("omniroute_provider_cooldowns",
		"Providers that are out as a whole now, by reason and kind: a hold keeps every request away, a gate those to combos.",
		[]string{"provider", "kind", "reason"}, nil)
	inFlightDesc = prometheus.NewDesc("omniroute_connection_in_flight",
		"Attempts under way, by provider and connection.", []string{"provider", "connection"}, nil)
)

var breakerValues = map[resilience.BreakerState]float64{
	resilience.BreakerClosed:   0,
	resilience.BreakerDegraded: 1,
	resilience.BreakerHalfOpen: 2,
	resilience.BreakerOpen:     3,
}

// gauges reads the state when it is scraped: phases end lazily, so nothing would set a gauge
// when a cooldown passes.
type gauges struct{ live *Live }

// Describe implements prometheus.Collector.
func (g gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- cooldownsDesc
	ch <- breakerDesc
	ch <- targetsDesc
	ch <- holdsDesc
	ch <- inFlightDesc
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	type group struct {
		provider models.ProviderID
		reason   models.Reason
	}
	report := g.live.Report(g.live.options.Now())
	out := map[group]int{}
	for _, c := range report.Connections {
		if c.Phase != models.PhaseReady {
			out[group{c.Provider, c.Reason}]++
		}
		ch <- gauge(inFlightDesc, float64(c.InFlight), string(c.Provider), string(c.Connection))
	}
	for k, n := range out {
		ch <- gauge(cooldownsDesc, float64(n), string(k.provider), string(k.reason))
	}
	for _, p := range report.Providers {
		ch <- gauge(breakerDesc, breakerValues[p.Breaker], string(p.Provider))
		if p.Hold != nil {
			ch <- gauge(holdsDesc, 1, string(p.Provider), "hold", string(p.Hold.Reason))
		}
		if p.Gate != nil {
			ch <- gauge(holdsDesc, 1, string(p.Provider), "gate", string(p.Gate.Reason))
		}
	}
	locked := map[group]int{}
	for _, lock := range report.Lockouts {
		locked[group{lock.Provider, lock.Reason}]++
	}
	for k, n := range locked {
		ch <- gauge(targetsDesc, float64(n), string(k.provider), string(k.reason))
	}
}

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}
