package fakeprovider_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"omniroute/integration/fakeprovider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAScriptIsPlayedStepByStepAndTheMostSpecificRuleWins(t *testing.T) {
	p := start(t, fakeprovider.Options{})
	require.NoError(t, p.Script(fakeprovider.Script{Rules: []fakeprovider.Rule{
		{Key: fakeprovider.Any, Model: fakeprovider.Any, Steps: []fakeprovider.Step{{Status: 418}}},
		{Key: fakeprovider.Any, Model: "m1", Steps: []fakeprovider.Step{{Status: 404}}},
		{Key: "k1", Model: fakeprovider.Any, Steps: []fakeprovider.Step{{Status: 402}}},
		{Key: "k1", Model: "m1", Steps: []fakeprovider.Step{{Times: 2, Status: 429, Headers: map[string]string{"Retry-After": "30"}}, {Times: 1, Status: 503}}},
		{Key: "k2", Model: "m1", Cycle: true, Steps: []fakeprovider.Step{{Status: 500}, {Times: 2}}},
	}}))

	status := func(key, model string) int { return call(t, p, key, model, false).status }

	require.Equal(t, []int{429, 429, 503, 200, 200}, []int{status("k1", "m1"), status("k1", "m1"), status("k1", "m1"), status("k1", "m1"), status("k1", "m1")})
	require.Equal(t, []int{500, 200, 200, 500}, []int{status("k2", "m1"), status("k2", "m1"), status("k2", "m1"), status("k2", "m1")})
	require.Equal(t, 402, status("k1", "m2"))
	require.Equal(t, 404, status("k3", "m1"))
	require.Equal(t, 418, status("k3", "m3"))
	require.Len(t, p.Calls("k1", fakeprovider.Any), 6)
}

func TestAHealthyAnswerIsTheSameTextStreamedOrNot(t *testing.T) {
	p := start(t, fakeprovider.Options{})

	whole := call(t, p, "k", "m", false)
	streamed := call(t, p, "k", "m", true)

	require.Len(t, fakeprovider.Tokens, fakeprovider.OutputTokens)
	require.Equal(t, fakeprovider.Text, gjson.Get(whole.body, "choices.0.message.content").String())
	require.EqualValues(t, 60, gjson.Get(whole.body, "usage.completion_tokens").Int())
	require.Equal(t, fakeprovider.Text, read(streamed.body).text)
	require.True(t, read(streamed.body).done)
}

func TestEveryStyleCarriesTheSameTextToolArgumentsAndUsage(t *testing.T) {
	p := start(t, fakeprovider.Options{})
	styles := fakeprovider.Torture()
	for at := 1; at < 320; at += 53 {
		styles[fmt.Sprintf("usage split at %d", at)] = fakeprovider.Style{SplitUsageAt: at}
	}
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			style.ToolArgumentBytes = 100_000
			p.On("k", "m", fakeprovider.Step{Style: style})

			got := read(call(t, p, "k", "m", true).body)

			require.Equal(t, fakeprovider.Text, got.text)
			require.Equal(t, fakeprovider.ToolArguments(100_000), got.arguments)
			require.EqualValues(t, 60, got.outputTokens)
			require.Equal(t, !style.NoEndMarker, got.done)
			require.Equal(t, style.MalformedFrame, got.malformed)
		})
	}
}

func TestACutStreamEndsAfterExactlyTheTokensOfTheScript(t *testing.T) {
	p := start(t, fakeprovider.Options{})
	for cut, wantErr := range map[fakeprovider.Cut]error{
		fakeprovider.CutReset: syscall.ECONNRESET,
		fakeprovider.CutEOF:   nil,
		fakeprovider.CutFIN:   io.ErrUnexpectedEOF,
	} {
		for _, tokens := range []int{0, 40} {
			t.Run(fmt.Sprintf("%s after %d", cut, tokens), func(t *testing.T) {
				p.On("k", "m", fakeprovider.Step{Cut: cut, AfterTokens: tokens})

				got := call(t, p, "k", "m", true)

				require.ErrorIs(t, got.err, wantErr)
				require.Equal(t, strings.Join(fakeprovider.Tokens[:tokens], ""), read(got.body).text)
				require.False(t, read(got.body).done)
			})
		}
	}
}

func TestAnEarlyResetSendsNoHeaderAtAll(t *testing.T) {
	p := start(t, fakeprovider.Options{})
	p.On("k", "m", fakeprovider.Step{Cut: fakeprovider.CutResetEarly})

	got := call(t, p, "k", "m", true)

	require.ErrorIs(t, got.err, syscall.ECONNRESET)
	require.Zero(t, got.status)
	require.NoError(t, p.Await(deadline(t), ended))
	require.Equal(t, fakeprovider.OutcomeCut, p.Attempts()[0].Outcome)
}

func TestAGoAwayDisownsTheCallSoThatTheClientSendsItAgain(t *testing.T) {
	p := start(t, fakeprovider.Options{TLS: true})
	p.On("k", "m", fakeprovider.Step{Times: 1, Cut: fakeprovider.CutGoAway})

	got := call(t, p, "k", "m", false)

	require.NoError(t, got.err)
	require.Equal(t, 200, got.status)
	require.NoError(t, p.Await(deadline(t), ended))
	attempts := p.Attempts()
	require.Len(t, attempts, 2)
	require.Equal(t, "HTTP/2.0", attempts[0].Proto)
	require.Equal(t, fakeprovider.OutcomeCut, attempts[0].Outcome)
	require.Equal(t, fakeprovider.OutcomeAnswered, attempts[1].Outcome)
}

func TestAHangLastsUntilItIsReleasedAndTheLogSeesTheCallerLeave(t *testing.T) {
	for _, at := range []fakeprovider.HangAt{fakeprovider.HangHeaders, fakeprovider.HangFirstContent, fakeprovider.HangMidStream, fakeprovider.HangAfterFinish} {
		t.Run(string(at), func(t *testing.T) {
			p := start(t, fakeprovider.Options{})
			p.On("k", "m", fakeprovider.Step{Hang: at, AfterTokens: 3})
			hanging := func(all []fakeprovider.Attempt) bool { return len(all) == 1 && all[0].Hanging }

			answered := make(chan result, 1)
			go func() { answered <- callContext(t.Context(), p, "k", "m", true) }()
			require.NoError(t, p.Await(deadline(t), hanging))
			p.Release()
			require.Equal(t, fakeprovider.Text, read((<-answered).body).text)

			p.Forget()
			ctx, leave := context.WithCancel(t.Context())
			go func() { answered <- callContext(ctx, p, "k", "m", true) }()
			require.NoError(t, p.Await(deadline(t), hanging))
			left := time.Now()
			leave()
			<-answered
			require.NoError(t, p.Await(deadline(t), func(all []fakeprovider.Attempt) bool { return !all[0].ClosedAt.IsZero() && !all[0].EndedAt.IsZero() }))
			require.Equal(t, fakeprovider.OutcomeClientGone, p.Attempts()[0].Outcome)
			require.Less(t, p.Attempts()[0].ClosedAt.Sub(left), time.Second)
		})
	}
}

func TestTheControlRoutesTakeAScriptAndShowTheLogWithoutKeys(t *testing.T) {
	p := start(t, fakeprovider.Options{})
	base := strings.TrimSuffix(p.URL(), "/v1")
	put := func(script string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/__script", strings.NewReader(script))
		require.NoError(t, err)
		resp, err := client(t, p).Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}

	require.Equal(t, 204, put(`{"rules":[{"key":"a-secret-key","model":"*","steps":[{"status":503}]}]}`))
	require.Equal(t, 400, put(`{"rules":[{"key":"*","model":"*","steps":[{"hang":"nowhere"}]}]}`))
	require.Equal(t, 400, put(`{"rules":[{"key":"*","model":"*","steps":[{"unknown":1}]}]}`))
	require.Equal(t, 503, call(t, p, "a-secret-key", "m", false).status)

	resp, err := client(t, p).Get(base + "/__log")
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotContains(t, string(body), "a-secret-key")
	require.Equal(t, fakeprovider.KeyHash("a-secret-key"), gjson.GetBytes(body, "attempts.0.key").String())
	require.Equal(t, 1, p.Concurrency("a-secret-key", "m").Total)
}

func TestTheLogIsBoundedAndCountsWhatItDropped(t *testing.T) {
	p := start(t, fakeprovider.Options{LogLimit: 3, BodyLimit: 5})
	for range 5 {
		call(t, p, "k", "m", false)
	}
	attempts := p.Attempts()
	require.Len(t, attempts, 3)
	require.EqualValues(t, 3, attempts[0].Seq)
	require.Len(t, attempts[0].Body, 5)
	require.Greater(t, attempts[0].BodySize, 5)
}

// --- the caller's side ---

// ended holds once every attempt in the log has its outcome.
func ended(all []fakeprovider.Attempt) bool {
	return !slices.ContainsFunc(all, func(a fakeprovider.Attempt) bool { return a.Outcome == "" })
}

func start(t *testing.T, o fakeprovider.Options) *fakeprovider.Provider {
	t.Helper()
	p, err := fakeprovider.Start(o)
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	return p
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func client(t *testing.T, p *fakeprovider.Provider) *http.Client {
	transport := newTransport(p)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func newTransport(p *fakeprovider.Provider) *http.Transport {
	transport := &http.Transport{ForceAttemptHTTP2: true}
	if pem := p.CertPEM(); pem != nil {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return transport
}

type result struct {
	status int
	body   string
	err    error
}

func call(t *testing.T, p *fakeprovider.Provider, key, model string, stream bool) result {
	t.Helper()
	return callContext(deadline(t), p, key, model, stream)
}

func callContext(ctx context.Context, p *fakeprovider.Provider, key, model string, stream bool) result {
	transport := newTransport(p)
	defer transport.CloseIdleConnections()
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":"hi"}]}`, model, stream)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL()+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return result{err: err}
	}
	read, err := io.ReadAll(resp.Body)
	return result{status: resp.StatusCode, body: string(read), err: errors.Join(err, resp.Body.Close())}
}

type reading struct {
	text, arguments string
	outputTokens    int64
	done, malformed bool
}

var lineEnd = regexp.MustCompile("\r\n|\r|\n")

// read is a plain event-stream reader by the standard: lines by any end, data lines joined.
func read(stream string) (r reading) {
	var data []string
	scanner := bufio.NewScanner(bytes.NewReader([]byte(lineEnd.ReplaceAllString(stream, "\n"))))
	scanner.Buffer(nil, 1<<24)
	for scanner.Scan() {
		line := scanner.Text()
		if value, ok := strings.CutPrefix(line, "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
			continue
		}
		if line != "" || len(data) == 0 {
			continue
		}
		event := strings.Join(data, "\n")
		data = nil
		if event == "[DONE]" {
			r.done = true
			continue
		}
		if !json.Valid([]byte(event)) {
			r.malformed = true
			continue
		}
		r.text += gjson.Get(event, "choices.0.delta.content").String()
		r.arguments += gjson.Get(event, "choices.0.delta.tool_calls.0.function.arguments").String()
		if n := gjson.Get(event, "usage.completion_tokens"); n.Exists() {
			r.outputTokens = n.Int()
		}
	}
	return r
}
