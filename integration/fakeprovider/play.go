package fakeprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// errCut ends an answer that the script cuts; the connection has been dealt with.
var errCut = errors.New("cut by the script")

// chat plays the next step of the caller's rule.
func (p *Provider) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var asked struct {
		Model  string `json:"model"`
		Stream bool   `json:"stream"`
	}
	_ = json.Unmarshal(body, &asked)
	key := presentedKey(r.Header)
	leave := p.counters.enter(key, asked.Model)
	defer leave()

	entry := p.log.begin(Attempt{
		At: time.Now(), Key: key, KeyHash: KeyHash(key), Model: asked.Model, Stream: asked.Stream,
		Proto: r.Proto, Header: r.Header.Clone(), Body: bytes.Clone(body[:min(len(body), p.options.BodyLimit)]),
		BodySize: len(body),
	})
	unwatch := context.AfterFunc(r.Context(), func() { p.log.clientClosed(entry) })
	a := answer{provider: p, seq: entry, w: w, r: r, step: Step{Status: http.StatusUnauthorized}, model: asked.Model, stream: asked.Stream}
	if !p.tokens.refuses(key) {
		a.step = p.scripts.next(key, asked.Model)
	}
	err = a.play()
	// The end of a context wakes whoever waits for it before it starts what is to follow it.
	if unwatch() && r.Context().Err() != nil {
		p.log.clientClosed(entry)
	}
	p.log.end(entry, a.status, a.tokens, outcome(err, r.Context()))
	if errors.Is(err, errCut) && a.abort {
		panic(http.ErrAbortHandler)
	}
}

// outcome names how an attempt ended.
func outcome(err error, ctx context.Context) Outcome {
	switch {
	case errors.Is(err, errCut):
		return OutcomeCut
	case ctx.Err() != nil, err != nil:
		return OutcomeClientGone
	default:
		return OutcomeAnswered
	}
}

// answer is one call being played.
type answer struct {
	provider *Provider
	seq      int64
	w        http.ResponseWriter
	r        *http.Request
	step     Step
	model    string
	stream   bool

	status int  // sent; 0 when none was
	tokens int  // of content sent
	abort  bool // the handler must end by abandoning the connection
}

func (a *answer) play() error {
	if err := a.pause(a.step.LatencyMs); err != nil {
		return err
	}
	if a.step.Hang == HangHeaders {
		if err := a.hang(); err != nil {
			return err
		}
	}
	switch a.step.Cut {
	case CutResetEarly:
		return a.reset()
	case CutGoAway:
		return a.goAway()
	}
	for name, value := range a.step.Headers {
		a.w.Header().Set(name, value)
	}
	a.w.Header().Set("X-Request-Id", fmt.Sprintf("fake-%d", a.seq))
	if a.step.Body != "" || (a.step.Status != 0 && a.step.Status != http.StatusOK) {
		a.status = a.step.Status
		if a.status == 0 {
			a.status = http.StatusOK
		}
		writeError(a.w, a.status, a.step.Headers, a.step.Body)
		return nil
	}
	a.status = http.StatusOK
	if a.stream {
		return a.playStream()
	}
	return a.playWhole()
}

// playWhole answers without streaming. A cut or a mid-stream hang comes after half the body.
func (a *answer) playWhole() error {
	body := completion(a.seq, a.model, a.step)
	if a.step.InStreamError != "" {
		body = []byte(a.step.InStreamError)
	}
	a.w.Header().Set("Content-Type", "application/json")
	if a.step.Cut == "" && a.step.Hang == "" {
		a.tokens = OutputTokens
		_, err := a.w.Write(body)
		return err
	}
	a.w.WriteHeader(http.StatusOK)
	if a.step.Hang == HangFirstContent {
		if err := a.flushAndHang(); err != nil {
			return err
		}
	}
	half := len(body) / 2
	if _, err := a.w.Write(body[:half]); err != nil {
		return err
	}
	if err := a.flushAndMaybeHang(a.step.Hang == HangMidStream || a.step.Hang == HangAfterFinish); err != nil {
		return err
	}
	if a.step.Cut != "" {
		return a.cut()
	}
	a.tokens = OutputTokens
	_, err := a.w.Write(body[half:])
	return err
}

// playStream sends the role delta, the tokens, an optional tool call, the finish reason, the
// usage event and the end marker, with the step's mishap on the way.
func (a *answer) playStream() error {
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.Header().Set("Cache-Control", "no-cache")
	if a.step.Style.Gzip {
		a.w.Header().Set("Content-Encoding", "gzip")
	}
	a.w.WriteHeader(http.StatusOK)
	if err := a.flushAndMaybeHang(a.step.Hang == HangFirstContent); err != nil {
		return err
	}
	events := newEventWriter(a.w, a.step.Style)
	if a.step.Empty {
		return errors.Join(events.event([]byte("[DONE]")), events.close())
	}
	if err := events.event(chunk(a.seq, a.model, map[string]any{"role": "assistant", "content": ""}, nil)); err != nil {
		return err
	}
	for i, token := range Tokens {
		if err := a.mishap(i, events); err != nil {
			return err
		}
		if err := a.extra(i, events); err != nil {
			return err
		}
		if err := events.event(chunk(a.seq, a.model, map[string]any{"content": token}, nil)); err != nil {
			return err
		}
		a.tokens++
		a.provider.log.progress(a.seq, a.tokens)
		if err := a.pause(a.step.PaceMs); err != nil {
			return err
		}
	}
	if err := a.mishap(len(Tokens), events); err != nil {
		return err
	}
	return a.finish(events)
}

// mishap is what the script does before token i.
func (a *answer) mishap(i int, events *eventWriter) error {
	if i != a.step.AfterTokens {
		return nil
	}
	if a.step.Hang == HangMidStream {
		if err := a.hang(); err != nil {
			return err
		}
	}
	if a.step.InStreamError != "" {
		return errors.Join(events.event([]byte(a.step.InStreamError)), events.close(), errCut)
	}
	if a.step.Cut != "" {
		return a.cut()
	}
	return nil
}

// extra is what the style puts before token i.
func (a *answer) extra(i int, events *eventWriter) error {
	if i != 5 {
		return nil
	}
	if a.step.Style.MalformedFrame {
		if err := events.event([]byte(`{"id":"chatcmpl-broken","choices":[{"delta":{"content":"los`)); err != nil {
			return err
		}
	}
	if n := a.step.Style.HugeEventBytes; n > 0 {
		return events.event(chunk(a.seq, a.model, map[string]any{"content": strings.Repeat("x", n)}, nil))
	}
	return nil
}

func (a *answer) finish(events *eventWriter) error {
	if a.step.Style.NoFinish {
		return events.close()
	}
	reason := "stop"
	if n := a.step.Style.ToolArgumentBytes; n > 0 {
		reason = "tool_calls"
		if err := a.toolCall(events, ToolArguments(n)); err != nil {
			return err
		}
	}
	if err := events.event(chunk(a.seq, a.model, map[string]any{}, reason)); err != nil {
		return err
	}
	if a.step.Hang == HangAfterFinish {
		if err := a.hang(); err != nil {
			return err
		}
	}
	if !a.step.Style.NoUsage {
		if err := events.usage(chunk(a.seq, a.model, nil, nil)); err != nil {
			return err
		}
	}
	if a.step.Style.NoEndMarker {
		return events.close()
	}
	return errors.Join(events.event([]byte("[DONE]")), events.close())
}

// toolCall streams arguments in pieces of 32 KiB, never inside a UTF-8 sequence.
func (a *answer) toolCall(events *eventWriter, arguments string) error {
	call := map[string]any{"index": 0, "id": "call_1", "type": "function", "function": map[string]any{"name": ToolName, "arguments": ""}}
	for {
		if err := events.event(chunk(a.seq, a.model, map[string]any{"tool_calls": []any{call}}, nil)); err != nil {
			return err
		}
		if arguments == "" {
			return nil
		}
		n := min(len(arguments), 32<<10)
		for n < len(arguments) && arguments[n]&0xC0 == 0x80 {
			n++
		}
		call = map[string]any{"index": 0, "function": map[string]any{"arguments": arguments[:n]}}
		arguments = arguments[n:]
	}
}

// pause waits while the caller is still there.
func (a *answer) pause(ms int64) error {
	if ms <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-a.r.Context().Done():
		return a.r.Context().Err()
	case <-a.provider.stopping:
		return errCut
	}
}

func (a *answer) flushAndHang() error { return a.flushAndMaybeHang(true) }

func (a *answer) flushAndMaybeHang(hang bool) error {
	if err := http.NewResponseController(a.w).Flush(); err != nil || !hang {
		return err
	}
	return a.hang()
}

// hang says nothing until the caller leaves, Release, or Stop.
func (a *answer) hang() error {
	released := a.provider.holds.wait() // before the log tells a test that it may release
	a.provider.log.hanging(a.seq)
	return a.waitFor(released)
}

func (a *answer) waitFor(released <-chan struct{}) error {
	select {
	case <-released:
		return nil
	case <-a.r.Context().Done():
		return a.r.Context().Err()
	case <-a.provider.stopping:
		return errCut
	}
}

func writeError(w http.ResponseWriter, status int, headers map[string]string, body string) {
	if body == "" {
		body = string(mustJSON(map[string]any{"error": map[string]any{
			"message": fmt.Sprintf("The scripted provider answers %d.", status),
			"type":    errorType(status), "param": nil, "code": nil,
		}}))
	}
	if _, set := headers["Content-Type"]; !set {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func errorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500:
		return "server_error"
	default:
		return "invalid_request_error"
	}
}
