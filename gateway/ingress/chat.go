package ingress

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"omniroute/gateway/dialect/wire"
	"omniroute/gateway/relay"
	"omniroute/models"
)

const (
	// bodyGap is how long a client may pause while it sends a request, bodyTotal how long all
	// of it may take.
	bodyGap   = 30 * time.Second
	bodyTotal = 5 * time.Minute
	// trustedSize is up to which a declared length is allocated at once. Beyond, memory
	// follows what really arrives.
	trustedSize = 1 << 20
	firstChunk  = 8 << 10
	// How far a body that was refused is read on: a pause, a time and a size in bytes.
	lingerGap   = 2 * time.Second
	lingerTotal = 10 * time.Second
	lingerSize  = 128 << 20
	lingerChunk = 64 << 10
)

// chatCompletions serves POST /v1/chat/completions.
func (e *edge) chatCompletions(w http.ResponseWriter, r *http.Request) {
	snapshot := e.Health.Snapshot()
	key, refusal := e.principal(r, snapshot)
	if refusal != nil {
		e.refuse(w, r, key, refusal)
		return
	}
	body, refusal := readBody(w, r, snapshot.Settings.Limits.Effective().MaxBodyBytes)
	if refusal != nil {
		e.refuse(w, r, key, refusal)
		if refusal.Code == models.CodeBodyTooLarge {
			linger(w, r)
		}
		return
	}
	chat, refusal := wire.PeekChat(body)
	if refusal != nil {
		e.refuse(w, r, key, refusal)
		return
	}
	x := exchangeOf(w)
	request := &relay.Request{ID: x.id, ClientID: x.clientID, Key: key, Chat: chat, Body: body, Started: x.started}
	if refusal := e.Relay.Serve(r.Context(), request, w); refusal != nil {
		writeProblem(w, refusal)
	}
}

// readBody reads a request body of at most limit bytes. A longer one is refused as soon as
// that is known, and the connection with it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *models.Error) {
	// Not every writer has deadlines; one without has no socket to wait for.
	out := http.NewResponseController(w)
	if r.ContentLength > limit {
		return nil, tooLarge(w, out, limit)
	}
	now := time.Now()
	deadline, last := now.Add(bodyGap), now.Add(bodyTotal)
	_ = out.SetReadDeadline(deadline)

	reader := http.MaxBytesReader(w, r.Body, limit)
	body := make([]byte, 0, bodySize(r.ContentLength))
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := reader.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			_ = out.SetReadDeadline(time.Time{})
			return body, nil
		}
		if err != nil {
			return nil, unreadable(w, out, err, limit)
		}
		if now = time.Now(); deadline.Sub(now) < bodyGap/2 && deadline.Before(last) {
			deadline = now.Add(bodyGap)
			if deadline.After(last) {
				deadline = last
			}
			_ = out.SetReadDeadline(deadline)
		}
	}
}

// bodySize leaves room for the read that finds the end.
func bodySize(declared int64) int {
	switch {
	case declared <= 0:
		return firstChunk
	case declared > trustedSize:
		return trustedSize
	default:
		return int(declared) + 1
	}
}

func unreadable(w http.ResponseWriter, out *http.ResponseController, err error, limit int64) *models.Error {
	var tooMuch *http.MaxBytesError
	if errors.As(err, &tooMuch) {
		return tooLarge(w, out, limit)
	}
	w.Header().Set("Connection", "close")
	refusal := models.Errorf(models.CodeInvalidRequest, "The request body did not arrive completely.").WithCause(err)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		refusal.HTTPStatus = http.StatusRequestTimeout
	}
	return refusal
}

// tooLarge refuses a body and ends its connection. The refusal is sent at once: net/http would
// read on before it answers, and not let us read after.
func tooLarge(w http.ResponseWriter, out *http.ResponseController, limit int64) *models.Error {
	w.Header().Set("Connection", "close")
	_ = out.EnableFullDuplex()
	return models.Errorf(models.CodeBodyTooLarge, "The request body is larger than %d bytes.", limit)
}

// linger reads on, within bounds, after a body was refused, and throws away what comes. Many
// clients write all of a request before they read, and a socket that is closed with something
// unread is reset, which takes the answer from them (RFC 9112 9.6). A client that offered a body
// and waits to be asked for it sends none.
func linger(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	offered := r.ContentLength >= 0 && r.Header.Get("Expect") != ""
	if offered || out.Flush() != nil {
		return
	}
	chunk := make([]byte, lingerChunk)
	last := time.Now().Add(lingerTotal)
	for read := 0; read < lingerSize; {
		deadline := time.Now().Add(lingerGap)
		if deadline.After(last) {
			deadline = last
		}
		if out.SetReadDeadline(deadline) != nil {
			return
		}
		n, err := r.Body.Read(chunk)
		if err != nil {
			return
		}
		read += n
	}
}
