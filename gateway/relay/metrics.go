package relay

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"omniroute/models"
)

// metrics are the relay's. Children that every request needs are looked up once.
type metrics struct {
	inFlight  prometheus.Gauge
	malformed prometheus.Counter
	attempts  *prometheus.CounterVec
	waits     *prometheus.CounterVec
	requests  [6][2]prometheus.Counter // by hundred of the status, and stream or not

	duration     *prometheus.HistogramVec
	firstContent *prometheus.HistogramVec
	tokens       *prometheus.HistogramVec

	mu     sync.RWMutex
	models map[models.ModelRef]*modelMetrics
}

// modelMetrics are the children of one model. Their number is bounded by the catalog: only a
// model that served has them.
type modelMetrics struct {
	duration, firstContent    prometheus.Observer
	inputTokens, outputTokens prometheus.Observer
}

func newMetrics(registerer prometheus.Registerer, waiting func() int64) *metrics {
	m := &metrics{
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "omniroute_requests_in_flight", Help: "Client requests being served now.",
		}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "omniroute_stream_malformed_events_total", Help: "Events of upstream streams that were not JSON and were dropped.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_attempts_total", Help: "Upstream attempts by outcome: ok, abandoned, or the reason of the failure.",
		}, []string{"provider", "outcome"}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "omniroute_waits_total", Help: "Waits for a target by outcome: woken, interrupted, or crowded, when too many wait already.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gen_ai_server_request_duration_seconds", Help: "Time from a request's arrival to the end of its answer.",
			Buckets: []float64{.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92},
		}, modelLabels),
		firstContent: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gen_ai_server_time_to_first_token_seconds", Help: "Time from a request's arrival to the first content for the client.",
			Buckets: []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60},
		}, modelLabels),
		tokens: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "gen_ai_client_token_usage", Help: "Tokens per request as the upstream reported them.",
			Buckets: []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304},
		}, append([]string{"gen_ai_token_type"}, modelLabels...)),
		models: make(map[models.ModelRef]*modelMetrics),
	}
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "omniroute_requests_total", Help: "Finished client requests by class of their status; a stream that broke counts by what broke it.",
	}, []string{"status", "stream"})
	for class := range m.requests {
		for stream := range m.requests[class] {
			label := strconv.Itoa(class) + "xx"
			if class == 0 {
				label = "other"
			}
			m.requests[class][stream] = requests.WithLabelValues(label, strconv.FormatBool(stream == 1))
		}
	}
	if registerer != nil {
		registerer.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "omniroute_requests_waiting", Help: "Requests that wait for a target to come back.",
		}, func() float64 { return float64(waiting()) }))
		registerer.MustRegister(m.inFlight, m.malformed, m.attempts, m.waits, requests, m.duration, m.firstContent, m.tokens)
	}
	return m
}

var modelLabels = []string{"gen_ai_provider_name", "gen_ai_request_model"}

func (m *metrics) request(status int, stream bool) prometheus.Counter {
	class := status / 100
	if class < 1 || class > 5 {
		class = 0
	}
	if stream {
		return m.requests[class][1]
	}
	return m.requests[class][0]
}

func (m *metrics) model(ref models.ModelRef) *modelMetrics {
	m.mu.RLock()
	known := m.models[ref]
	m.mu.RUnlock()
	if known != nil {
		return known
	}
	labels := []string{string(ref.Provider), ref.Model}
	fresh := &modelMetrics{
		duration:     m.duration.WithLabelValues(labels...),
		firstContent: m.firstContent.WithLabelValues(labels...),
		inputTokens:  m.tokens.WithLabelValues(append([]string{"input"}, labels...)...),
		outputTokens: m.tokens.WithLabelValues(append([]string{"output"}, labels...)...),
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.models[ref] = fresh
	return fresh
}
