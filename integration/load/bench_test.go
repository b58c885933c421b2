package load

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
)

const (
	clients         = 16
	answersPerRound = 3000
	streamsPerRound = 600
	rounds          = 15
	manyStreams     = 1000

	answerBound = 1.2 // times the proxy's CPU
	streamBound = 1.3
	memoryBound = 2.0 // times the proxy's memory
	idleBound   = 60 << 20
)

// pair is the proxy and the gateway in front of one upstream, and a client for each.
type pair struct {
	proxy, gateway *process
	client         *http.Client
}

func newPair(tb testing.TB) *pair {
	to := upstreamVariable + "=" + start(tb, "upstream").address
	database := databaseVariable + "=" + postgres.Shared(tb).Database(tb)
	p := &pair{proxy: start(tb, "proxy", to), gateway: start(tb, "gateway", to, database)}
	transport := &http.Transport{MaxIdleConns: 2 * manyStreams, MaxIdleConnsPerHost: 2 * manyStreams, DisableCompression: true}
	p.client = &http.Client{Transport: transport}
	tb.Cleanup(transport.CloseIdleConnections)
	// The gateway has started when it is ready.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := p.client.Get("http://" + p.gateway.address + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return p
			}
		}
		p.gateway.usage("")
		require.True(tb, time.Now().Before(deadline), "the gateway is not ready")
	}
}

// request is one call, the same for both but for the path.
type request struct {
	url  string
	body []byte
	want []byte // what the answer must end with
}

func (p *pair) request(to *process, speed string, stream bool) request {
	model := map[string]string{"fast": "fast/m", "slow": "slow/s"}[speed]
	r := request{
		body: fmt.Appendf(nil, `{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, model, stream, strings.Repeat("Tell me more. ", 20)),
		want: []byte(`}`),
	}
	if stream {
		r.want = []byte("data: [DONE]\n\n")
	}
	r.url = "http://" + to.address + "/v1/chat/completions"
	if to == p.proxy {
		r.url = "http://" + to.address + "/" + speed + "/v1/chat/completions"
	}
	return r
}

var copyBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// call makes one request and reports what is wrong with the answer.
func (p *pair) call(r request) error {
	req, err := http.NewRequest(http.MethodPost, r.url, bytes.NewReader(r.body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+clientKey)
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got := copyBuffers.Get().(*bytes.Buffer)
	defer copyBuffers.Put(got)
	got.Reset()
	if _, err := io.Copy(got, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasSuffix(got.Bytes(), r.want) {
		return fmt.Errorf("status %d, %d bytes ending %q", resp.StatusCode, got.Len(), got.Bytes()[max(0, got.Len()-80):])
	}
	return nil
}

// crowd makes n requests with some clients at once and returns the first failure.
func (p *pair) crowd(r request, n, clients int) error {
	var (
		left  atomic.Int64
		group sync.WaitGroup
		fault atomic.Pointer[error]
	)
	left.Store(int64(n))
	for range clients {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				if err := p.call(r); err != nil {
					fault.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := fault.Load(); err != nil {
		return *err
	}
	return nil
}

// cost is what one request cost.
type cost struct {
	cpu    time.Duration
	allocs float64
}

func (p *pair) measure(tb testing.TB, of *process, r request, n int) cost {
	before := of.usage("")
	require.NoError(tb, p.crowd(r, n, clients), "%s", of.name)
	after := of.usage("")
	return cost{(after.CPU - before.CPU) / time.Duration(n), float64(after.Mallocs-before.Mallocs) / float64(n)}
}

// compare alternates rounds and takes the best of each side.
func compare(b *testing.B, stream bool, perRound int, bound float64) {
	p := newPair(b)
	viaProxy, viaGateway := p.request(p.proxy, "fast", stream), p.request(p.gateway, "fast", stream)
	p.measure(b, p.proxy, viaProxy, perRound/4)
	p.measure(b, p.gateway, viaGateway, perRound/4)
	for b.Loop() {
		var proxy, gateway cost
		for round := range rounds {
			a, c := p.measure(b, p.proxy, viaProxy, perRound), p.measure(b, p.gateway, viaGateway, perRound)
			if round == 0 || a.cpu < proxy.cpu {
				proxy = a
			}
			if round == 0 || c.cpu < gateway.cpu {
				gateway = c
			}
		}
		ratio := float64(gateway.cpu) / float64(proxy.cpu)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(proxy.cpu.Nanoseconds())/1e3, "proxy-cpu-µs")
		b.ReportMetric(float64(gateway.cpu.Nanoseconds())/1e3, "gateway-cpu-µs")
		b.ReportMetric(proxy.allocs, "proxy-allocs")
		b.ReportMetric(gateway.allocs, "gateway-allocs")
		b.ReportMetric(ratio, "x-proxy")
		b.Logf("CPU per request: proxy %v (%.0f allocations), gateway %v (%.0f)", proxy.cpu, proxy.allocs, gateway.cpu, gateway.allocs)
		if ratio > bound {
			b.Errorf("the gateway needs %.2f times the proxy's CPU; the bound is %.1f", ratio, bound)
		}
	}
}

// BenchmarkAnswer is a request for an answer of 1 KB, 16 clients.
func BenchmarkAnswer(b *testing.B) { compare(b, false, answersPerRound, answerBound) }

// BenchmarkStream is a stream of 100 events as fast as they go, 16 clients.
func BenchmarkStream(b *testing.B) { compare(b, true, streamsPerRound, streamBound) }

// BenchmarkManyStreams is 1,000 streams at once, 20 events each, 50 ms apart: none fails, and
// memory stays in proportion.
func BenchmarkManyStreams(b *testing.B) {
	for b.Loop() {
		p := newPair(b)
		idle := p.gateway.usage("collect").Anon
		peak := func(of *process) int64 {
			of.usage("collect")
			require.NoError(b, p.crowd(p.request(of, "slow", true), manyStreams, manyStreams), "%s", of.name)
			return of.usage("").Peak
		}
		proxy, gateway := peak(p.proxy), peak(p.gateway)
		ratio := float64(gateway) / float64(proxy)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(idle)/(1<<20), "gateway-idle-MiB")
		b.ReportMetric(float64(proxy)/(1<<20), "proxy-peak-MiB")
		b.ReportMetric(float64(gateway)/(1<<20), "gateway-peak-MiB")
		b.ReportMetric(ratio, "x-proxy")
		b.Logf("memory at most: proxy %d MiB, gateway %d MiB, idle gateway %d MiB", proxy>>20, gateway>>20, idle>>20)
		if ratio > memoryBound {
			b.Errorf("the gateway needs %.2f times the proxy's memory; the bound is %.1f", ratio, memoryBound)
		}
		if idle > idleBound {
			b.Errorf("the idle gateway needs %d MiB; the bound is %d", idle>>20, idleBound>>20)
		}
	}
}
