package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// Gateway is a gateway process and a client of it.
type Gateway struct {
	*Process
	world   *World
	address string
	client  *http.Client
}

// Start starts the process, again after an end, on the address it had.
func (g *Gateway) Start(t testing.TB) {
	t.Helper()
	env := append([]string{"OMNIROUTE_ADMIN_TOKEN=" + g.world.AdminToken, "OMNIROUTE_LISTEN=" + g.address, "OMNIROUTE_LOG_LEVEL=debug"}, g.world.env...)
	g.Process = Spawn(t, "gateway "+g.address, env, g.world.binary, "gateway")
	awaitReady(t, g.Process, g.URL())
}

// URL is the gateway's root.
func (g *Gateway) URL() string { return "http://" + g.address }

// OpenAI is the official client, which retries as often as told.
func (g *Gateway) OpenAI(retries int) openai.Client {
	return openai.NewClient(option.WithBaseURL(g.URL()+"/v1/"), option.WithAPIKey(g.world.ClientKey),
		option.WithMaxRetries(retries), option.WithHTTPClient(g.client))
}

// Chat sends one chat and reads the whole answer.
func (g *Gateway) Chat(t testing.TB, model string) Answer {
	t.Helper()
	return g.Send(t.Context(), Body(model, false))
}

// Stream sends one streaming chat and reads the whole answer.
func (g *Gateway) Stream(t testing.TB, model string) Answer {
	t.Helper()
	return g.Send(t.Context(), Body(model, true))
}

// Body is a small chat request.
func Body(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"Say something."}]}`, model, stream)
}

// Send posts a body as the world's client and reads the whole answer. A failure to get or
// read one is in Answer.Err.
func (g *Gateway) Send(ctx context.Context, body string) Answer {
	return g.SendAs(ctx, g.world.ClientKey, body)
}

// SendAs is Send with another key; an empty one sends none.
func (g *Gateway) SendAs(ctx context.Context, key, body string) Answer {
	began := time.Now()
	resp, err := g.Open(ctx, key, body)
	if err != nil {
		return Answer{Err: err, Took: time.Since(began)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return newAnswer(resp, string(text), err, time.Since(began))
}

// Open posts a body and leaves the answer's body to the caller.
func (g *Gateway) Open(ctx context.Context, key, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return g.client.Do(req)
}

// Admin calls the management API and returns status and body.
func (g *Gateway) Admin(t testing.TB, method, path, body string) (int, string) {
	t.Helper()
	return g.call(t, method, path, body, g.world.AdminToken)
}

// Get reads a route with a bearer token; an empty one sends none.
func (g *Gateway) Get(t testing.TB, path, token string) (int, string) {
	t.Helper()
	return g.call(t, http.MethodGet, path, "", token)
}

func (g *Gateway) call(t testing.TB, method, path, body, token string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := g.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// HangUp closes the client's idle sockets.
func (g *Gateway) HangUp() { g.client.CloseIdleConnections() }

// Record is one row of the ledger.
type Record struct {
	ModelServed  string `json:"modelServed"`
	Connection   string `json:"connection"`
	Attempts     int    `json:"attempts"`
	Status       int    `json:"status"`
	Reason       string `json:"reason"`
	InputTokens  int64  `json:"inputTokens"`
	OutputTokens int64  `json:"outputTokens"`
	FirstTokenMs *int64 `json:"firstTokenMs"`
	TotalMs      int64  `json:"totalMs"`
}

// Record waits for the ledger's row of a request.
func (g *Gateway) Record(t testing.TB, requestID string) Record {
	t.Helper()
	var record Record
	Await(t, 5*time.Second, "the record of "+requestID, func() error {
		status, body := g.Admin(t, http.MethodGet, "/api/requests/"+requestID, "")
		if status != http.StatusOK {
			return fmt.Errorf("%d %s", status, body)
		}
		return json.Unmarshal([]byte(body), &record)
	})
	return record
}

// Metric sums the samples of a metric whose labels contain every given text.
func (g *Gateway) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	_, text := g.Get(t, "/metrics", "")
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(\{[^}]*\})? (\S+)`).FindAllStringSubmatch(text, -1) {
		matches := true
		for _, label := range labels {
			matches = matches && strings.Contains(m[1], label)
		}
		value, err := strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
		if matches {
			sum += value
		}
	}
	return sum
}

func newClient(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 200, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
