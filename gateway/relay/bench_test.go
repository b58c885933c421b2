package relay_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"omniroute/gateway/access"
	"omniroute/gateway/ingress"
	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// BenchmarkEdge is what our own code costs per request, from the first line of ingress to
// the booking: no sockets, no log output, an upstream and a health that do nothing.
func BenchmarkEdge(b *testing.B) {
	for name, c := range map[string]struct{ body, answer, contentType string }{
		"answer": {`{"model":"p/m","messages":[{"role":"user","content":"hi"}]}`, `{"choices":[{"message":{"content":"` + tokenText(50) + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":60}}`, "application/json"},
		"stream": {`{"model":"p/m","stream":true,"messages":[{"role":"user","content":"hi"}]}`, wireStream(100), "text/event-stream"},
	} {
		b.Run(name, func(b *testing.B) {
			h := idleHealth{newHealth()}
			log := logrus.New()
			log.SetLevel(logrus.ErrorLevel)
			up := canned{header: http.Header{"Content-Type": {c.contentType}}, body: []byte(c.answer)}
			r := relay.New(relay.Options{Health: h, Upstream: up, Ledger: noLedger{}, Log: logrus.NewEntry(log), Registerer: prometheus.NewRegistry()})
			edge := ingress.New(ingress.Options{Relay: r, Health: h, HashKey: hashKey, Ledger: noLedger{}, Refusals: access.NewRefusals(log, nil), Log: logrus.NewEntry(log)})
			req, err := http.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+clientKey)
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				w.status = 0
				req.Body, req.ContentLength = io.NopCloser(bytes.NewReader([]byte(c.body))), int64(len(c.body))
				edge.ServeHTTP(w, req)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
}

func wireStream(n int) string {
	var b bytes.Buffer
	for i := range n {
		b.WriteString("data: " + tokenEvent(i) + "\n\n")
	}
	b.WriteString("data: " + finishEvent + "\n\ndata: " + usageEvent + "\n\ndata: [DONE]\n\n")
	return b.String()
}

type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) Flush()                      {}

type canned struct {
	header http.Header
	body   []byte
}

func (c canned) Do(context.Context, *catalog.ConnectionView, []byte, bool) (*http.Response, *failure.Signal) {
	return &http.Response{StatusCode: http.StatusOK, Header: c.header, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(c.body))}, nil
}

type noLedger struct{}

func (noLedger) Offer(catalog.RequestRecord) {}

// idleHealth admits everything and remembers nothing.
type idleHealth struct{ *health }

func (idleHealth) Check(*catalog.ConnectionView, models.ModelRef, bool, time.Time) (*routing.Exclusion, routing.Rank) {
	return nil, routing.RankFull
}

func (idleHealth) Admit(_ context.Context, conn *catalog.ConnectionView, _ models.ModelRef, _ bool, _ time.Time) (relay.Pass, *routing.Exclusion) {
	return idlePass{conn}, nil
}

type idlePass struct{ conn *catalog.ConnectionView }

func (p idlePass) Connection() *catalog.ConnectionView { return p.conn }
func (idlePass) Succeeded(time.Time)                   {}
func (idlePass) Failed(failure.Verdict, time.Time)     {}
func (idlePass) Abandoned(time.Time)                   {}
func (idlePass) FirstContent(time.Duration, time.Time) {}
func (idlePass) Heard(http.Header, time.Time)          {}
func (idlePass) Used(int64, time.Time)                 {}
