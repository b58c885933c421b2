package relay

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"omniroute/gateway/dialect/openai"
	"omniroute/gateway/dialect/wire"
	"omniroute/models"
	"omniroute/models/failure"
)

const (
	maxAnswer       = 64 << 20 // bytes of an answer that is not a stream
	firstAnswer     = 8 << 10
	keptAnswer      = 256 << 10 // a buffer that grew beyond goes to the garbage collector
	jsonContentType = "application/json"
)

var errAnswerTooLarge = errors.New("relay: answer exceeds the size limit")

var answerBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, firstAnswer)
	return &b
}}

// answer reads a whole answer, makes sure that it is one, and passes its bytes on. Until then
// nothing has reached the client, so a cut, an empty or an error answer is tried elsewhere.
func (a *attempt) answer(resp *http.Response) ending {
	a.dog.enter(failure.KindIdleTimeout, a.conn.Provider.Timeouts.Idle)
	kept := answerBuffers.Get().(*[]byte)
	defer func() {
		if cap(*kept) <= keptAnswer {
			answerBuffers.Put(kept)
		}
	}()
	body, err := a.readAll((*kept)[:0], resp)
	*kept = body
	if err != nil {
		return a.fail(&failure.Signal{Kind: a.readFailure(err), Status: resp.StatusCode, Headers: resp.Header})
	}
	if p := a.conn.Provider.Rules.Recognise(body, wire.Lookup); p != nil {
		return a.fail(a.dressed(p, resp, body))
	}
	usage, kind := openai.CheckAnswer(body, a.Chat.Stops)
	if kind != "" {
		return a.fail(a.broken(kind, resp, body))
	}
	a.used(usage)
	a.succeed()
	a.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	a.commit(jsonContentType)
	if !a.write(body) {
		a.result.status, a.result.reason = models.CodeClientClosed.Status(), models.ReasonClientGone
		return endBroken
	}
	return endServed
}

// readAll appends the body to buf; any byte counts as progress.
func (a *attempt) readAll(buf []byte, resp *http.Response) ([]byte, error) {
	if resp.ContentLength > maxAnswer {
		return buf, errAnswerTooLarge
	}
	if room := int(resp.ContentLength) + 1; room > cap(buf) {
		buf = make([]byte, 0, room)
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := resp.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > maxAnswer:
			return buf, errAnswerTooLarge
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return buf, err
		case n > 0:
			a.dog.progress(time.Now())
		}
	}
}

// broken is the signal of an answer with status 200 that is not an answer. Its body is copied
// out of the pooled buffer, and only when the verdict reads it.
func (a *attempt) broken(kind failure.Kind, resp *http.Response, body []byte) *failure.Signal {
	signal := &failure.Signal{Kind: kind, Status: resp.StatusCode, Headers: resp.Header}
	if kind == failure.KindInStream {
		signal.Body = bytes.Clone(body[:min(len(body), maxErrorObject)])
	}
	return signal
}

// dressed is the signal of an answer that a predicate of the operator's recognises.
func (a *attempt) dressed(p *failure.Predicate, resp *http.Response, body []byte) *failure.Signal {
	signal := a.broken(failure.KindInStream, resp, body)
	signal.Kind, signal.Dressed = failure.KindDressed, p
	return signal
}

// maxErrorObject bounds what is kept of an error reported inside a 200 answer.
const maxErrorObject = 64 << 10

// readFailure names what went wrong while a body was read.
func (a *attempt) readFailure(err error) failure.Kind {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, errAnswerTooLarge), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return failure.KindMalformed
	default:
		return a.orLimit(failure.KindReset)
	}
}
