package relay

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/gateway/dialect/openai"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// settlement owns a pass: whichever ending comes first is the attempt's, and a second one is
// ignored. It is used by one goroutine.
type settlement struct {
	pass     Pass
	metrics  *metrics
	provider models.ProviderID
	done     bool
}

func (s *settlement) succeeded(now time.Time) {
	if s.take("ok") {
		s.pass.Succeeded(now)
	}
}

func (s *settlement) failed(verdict failure.Verdict, now time.Time) {
	if s.take(string(verdict.Reason)) {
		s.pass.Failed(verdict, now)
	}
}

func (s *settlement) abandoned(now time.Time) {
	if s.take("abandoned") {
		s.pass.Abandoned(now)
	}
}

// abandonUnsettled is for the way out that nobody thought of: a panic.
func (s *settlement) abandonUnsettled() {
	if !s.done {
		s.abandoned(time.Now())
	}
}

func (s *settlement) take(outcome string) bool {
	if s.done {
		return false
	}
	s.done = true
	s.metrics.attempts.WithLabelValues(string(s.provider), outcome).Inc()
	return true
}

// result is what a request came to. A status of 0 means that the client got its answer.
type result struct {
	status       int
	reason       models.Reason
	served       models.Target
	firstContent time.Duration
	usage        openai.Usage
}

// longestAsked bounds the client's own text in a record.
const longestAsked = 256

// book writes a finished request down, once: the ledger, the metrics and one log line.
func (r *run) book(refusal *models.Error) {
	res := r.result
	switch {
	case refusal != nil:
		res.status = refusal.Status()
	case res.status == 0:
		res.status = 200
	}
	total := time.Since(r.Started)
	record := catalog.RequestRecord{
		ID: r.ID, ClientID: r.ClientID, Asked: r.Chat.Model[:min(len(r.Chat.Model), longestAsked)],
		Attempts: len(r.trials), Status: res.status, Reason: res.reason, Stream: r.Chat.Stream,
		InputTokens: res.usage.Input, OutputTokens: res.usage.Output,
		StartedAt: r.Started, FirstToken: res.firstContent, Total: total,
	}
	if r.Key != nil {
		record.Key = r.Key.ID
	}
	if res.served.Connection != "" {
		record.Served, record.Connection = res.served.Model.String(), res.served.Connection
	}
	r.ledger.Offer(record)
	r.measure(&res, total)
	r.report(&record, refusal)
}

func (r *run) measure(res *result, total time.Duration) {
	r.metrics.request(res.status, r.Chat.Stream).Inc()
	if res.served.Connection == "" {
		return
	}
	m := r.metrics.model(res.served.Model)
	m.duration.Observe(total.Seconds())
	if res.usage.Known {
		m.inputTokens.Observe(float64(res.usage.Input))
		m.outputTokens.Observe(float64(res.usage.Output))
	}
}

// report writes the one line of a finished request.
func (r *run) report(record *catalog.RequestRecord, refusal *models.Error) {
	level := logrus.InfoLevel
	if record.Status >= 500 {
		level = logrus.WarnLevel
	}
	if !r.log.Logger.IsLevelEnabled(level) {
		return
	}
	fields := lineFields.Get().(logrus.Fields)
	defer func() {
		clear(fields)
		lineFields.Put(fields)
	}()
	fields["request"], fields["model"], fields["status"] = record.ID, record.Asked, record.Status
	fields["attempts"], fields["stream"], fields["total_ms"] = record.Attempts, record.Stream, record.Total.Milliseconds()
	if record.ClientID != "" {
		fields["client_request"] = record.ClientID
	}
	if record.Key != "" {
		fields["key"] = record.Key
	}
	if record.Connection != "" {
		fields["provider"], fields["connection"] = r.result.served.Model.Provider, record.Connection
		fields["served"] = record.Served
		fields["first_content_ms"] = record.FirstToken.Milliseconds()
		fields["input_tokens"], fields["output_tokens"] = record.InputTokens, record.OutputTokens
	}
	if record.Reason != "" {
		fields["reason"] = record.Reason
	}
	if v := r.lastRuled(); v != nil {
		fields["rule"] = v.Rule
		if v.RestatedFrom != 0 {
			fields["restated_from"], fields["restated_to"] = v.RestatedFrom, v.UpstreamStatus
		}
	}
	if record.Attempts > 1 {
		fields["trace"] = r.trace(nil)
	}
	if r.waits.times > 0 {
		fields["waits"], fields["waited_ms"] = r.waits.times, r.waits.spent.Milliseconds()
	}
	if refusal != nil {
		fields["code"] = refusal.Code
	}
	for key, value := range r.log.Data {
		fields[key] = value
	}
	entry := logrus.Entry{Logger: r.log.Logger, Data: fields}
	entry.Log(level, "request finished")
}

// lastRuled is the latest verdict that a rule of a provider or of the operator decided; nil when
// there is none.
func (r *run) lastRuled() *failure.Verdict {
	for i := len(r.trials) - 1; i >= 0; i-- {
		if v := &r.trials[i].verdict; v.Rule != "" {
			return v
		}
	}
	return nil
}

// lineFields are maps that lines are made in, with room for every field: logrus copies what it
// logs.
var lineFields = sync.Pool{New: func() any { return make(logrus.Fields, 24) }}
