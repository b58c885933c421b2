package ledger

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	written, dropped, rejected, expired, failures prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer, pending func() int) metrics {
	records := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "omniroute_ledger_records_total",
		Help: "Request records by what became of them: written, dropped (queue full or shutdown), rejected by the database, expired.",
	}, []string{"outcome"})
	failures := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "omniroute_ledger_insert_failures_total",
		Help: "Batches the database did not take at the first try.",
	})
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "omniroute_ledger_pending_records",
		Help: "Request records waiting to be written.",
	}, func() float64 { return float64(pending()) })
	registerer.MustRegister(records, failures, waiting)
	return metrics{
		written:  records.WithLabelValues("written"),
		dropped:  records.WithLabelValues("dropped"),
		rejected: records.WithLabelValues("rejected"),
		expired:  records.WithLabelValues("expired"),
		failures: failures,
	}
}
