package relay

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"omniroute/gateway/dialect/openai"
	"omniroute/gateway/dialect/sse"
	"omniroute/gateway/dialect/wire"
	"omniroute/models"
	"omniroute/models/failure"
)

const (
	// maxPrelude bounds what is held back before the first content; beyond it, the stream is
	// committed as it is.
	maxPrelude = 64 << 10
	// afterFinish is how long a finished stream may take for its usage and end marker. The
	// client has its answer by then, so it is not kept waiting for as long as a silent
	// upstream would be.
	afterFinish = 10 * time.Second
	// afterDone is how long the upstream may take to close a stream it has ended, so that its
	// socket can be used again.
	afterDone = 100 * time.Millisecond

	eventStream = "text/event-stream"
	comment     = ":\n\n"
)

// streamer lets one stream through: events are tapped, and their bytes handed on as they are.
type streamer struct {
	*attempt
	resp   *http.Response
	reader *sse.Reader
	tap    openai.Tap
	// out gathers what goes to the client with the next flush; before the commit it is the
	// prelude that is held back.
	out []byte
	// finishing says that every choice has its finish reason, finished that the client has it.
	finishing, finished bool
	useful              int // events that were not malformed
	malformed           int
	contentful          bool // content has come, although it may still be held back
	ear                 ear
}

var outBuffers = sync.Pool{New: func() any {
	b := make([]byte, 0, 16<<10)
	return &b
}}

// stream passes an event stream on, from the first event with content.
func (a *attempt) stream(resp *http.Response) ending {
	a.dog.enter(failure.KindFirstContentLate, a.conn.Provider.Timeouts.FirstContent)
	if !isEventStream(resp) {
		return a.notAStream(resp)
	}
	kept := outBuffers.Get().(*[]byte)
	s := &streamer{attempt: a, resp: resp, reader: sse.NewReader(resp.Body, int(a.limits.MaxEventBytes)), out: (*kept)[:0]}
	s.tap.MayBeEmpty = a.Chat.Stops
	s.ear.rules = a.conn.Provider.Rules
	defer func() {
		s.reader.Release()
		if cap(s.out) <= maxPrelude {
			*kept = s.out
			outBuffers.Put(kept)
		}
	}()
	end := s.pump()
	if a.committed {
		a.used(s.tap.Usage)
	}
	return end
}

// isEventStream is generous: only a type that certainly is something else counts as such.
func isEventStream(resp *http.Response) bool {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err != nil || kind != jsonContentType && kind != "text/html"
}

// notAStream judges an answer in one piece to a request for a stream: most often an error
// with status 200.
func (a *attempt) notAStream(resp *http.Response) ending {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorObject))
	if err != nil {
		return a.fail(&failure.Signal{Kind: a.readFailure(err), Status: resp.StatusCode, Headers: resp.Header})
	}
	if p := a.conn.Provider.Rules.Recognise(body, wire.Lookup); p != nil {
		return a.fail(a.dressed(p, resp, body))
	}
	kind := failure.KindMalformed
	if _, found := openai.CheckAnswer(body, a.Chat.Stops); found == failure.KindInStream || found == failure.KindEmpty {
		kind = found
	}
	return a.fail(a.broken(kind, resp, body))
}

// pump alternates between handling what has arrived and waiting for more, with one flush for
// everything that came together.
func (s *streamer) pump() ending {
	for {
		for {
			event, ok := s.reader.Next()
			if !ok {
				break
			}
			if end, over := s.handle(&event); over {
				return end
			}
		}
		if !s.send() {
			return s.clientLeft()
		}
		if err := s.reader.Fill(); err != nil {
			return s.ended(err)
		}
		if (s.committed || s.contentful) && !s.finishing {
			s.dog.progress(time.Now())
		}
	}
}

// handle takes one event and reports whether it ends the attempt.
func (s *streamer) handle(event *sse.Event) (ending, bool) {
	if !event.HasData {
		if s.committed {
			s.out = append(s.out, comment...)
		}
		return 0, false
	}
	meaning := s.tap.Look(event.Data)
	if string(event.Name) == "error" && meaning != openai.Done {
		meaning |= openai.Failed
	}
	if meaning.Has(openai.Done) {
		return s.done(), true
	}
	if !s.committed {
		if p := s.ear.listen(event.Data, meaning); p != nil {
			return s.fail(s.dressed(p, s.resp, bytes.TrimSpace(event.Data))), true
		}
	}
	switch {
	case meaning.Has(openai.Failed), meaning.Has(openai.Bare) && !s.committed:
		return s.reported(event.Data), true
	case meaning.Has(openai.Malformed):
		s.malformed++
		s.metrics.malformed.Inc()
		return 0, false
	}
	s.useful++
	if meaning.Has(openai.UsageOnly) && !s.Chat.IncludeUsage {
		return 0, false
	}
	if event.Raw != nil {
		s.out = append(s.out, event.Raw...)
	} else {
		s.out = sse.AppendData(s.out, event.Data)
	}
	if !s.committed {
		s.mayBegin(meaning)
	}
	s.notePhase()
	return 0, false
}

// mayBegin commits the stream with its first content, or, where predicates listen to what it
// says, with enough of it. A stream whose beginning is too long is committed as it is.
func (s *streamer) mayBegin(meaning openai.Meaning) {
	if meaning.Has(openai.Content) && !s.contentful {
		s.contentful = true
		s.dog.enter(failure.KindIdleTimeout, s.conn.Provider.Timeouts.Idle)
	}
	if len(s.out) > maxPrelude || s.contentful && (s.tap.Finished() || !s.ear.wantsMore()) {
		s.begin()
	}
}

// notePhase moves between the answer and its end. An upstream that sends the choices of n > 1
// one after the other has ended when the last has; one that begins yet another brings the
// stream back from its end.
func (s *streamer) notePhase() {
	finishing := s.committed && s.whole()
	if finishing == s.finishing {
		return
	}
	s.finishing, s.finished = finishing, false
	patience := s.conn.Provider.Timeouts.Idle
	if finishing {
		patience = min(afterFinish, patience)
	}
	s.dog.enter(failure.KindIdleTimeout, patience)
}

// whole reports whether all that the client asked for is there, with or without an end marker.
func (s *streamer) whole() bool { return s.tap.FinishedAll(s.Chat.Choices) }

// begin commits the stream; the held-back prelude goes out with the next flush.
func (s *streamer) begin() {
	header := s.w.Header()
	header["Cache-Control"] = []string{"no-cache"}
	header["X-Accel-Buffering"] = []string{"no"} // proxies in front must not gather events
	s.commit(eventStream)
	if !s.contentful {
		s.dog.enter(failure.KindIdleTimeout, s.conn.Provider.Timeouts.Idle)
	}
}

// send flushes what was gathered, once committed, and reports whether the client is there.
func (s *streamer) send() bool {
	if !s.committed || len(s.out) == 0 {
		return true
	}
	ok := s.write(s.out) && s.flush()
	s.out = s.out[:0]
	s.finished = s.finished || ok && s.finishing
	return ok
}

// done handles the end marker. Without a finish reason before it, it is what some gateways
// put under a stream that was cut: that is no success. With fewer choices than were asked for
// it is: some upstreams know only one.
func (s *streamer) done() ending {
	if !s.tap.Finished() {
		return s.cut(failure.KindReset)
	}
	return s.complete()
}

// ended handles the end of the source: by itself, by a failure, by a limit of ours, or
// because the client left. After the finish reason a cut takes nothing from anyone.
func (s *streamer) ended(err error) ending {
	if s.over(s.parent) {
		return s.clientLeft()
	}
	if errors.Is(err, io.EOF) {
		if event, ok := s.reader.Rest(); ok {
			if end, over := s.handle(&event); over {
				return end
			}
		}
	}
	if errors.Is(err, sse.ErrEventTooLarge) {
		return s.cut(failure.KindEventTooBig)
	}
	if s.whole() {
		return s.complete()
	}
	kind := failure.KindReset
	if !errors.Is(err, io.EOF) {
		kind = s.readFailure(err)
	}
	return s.cut(kind)
}

// cut ends a stream that is not whole. What was gathered goes to the client first.
func (s *streamer) cut(kind failure.Kind) ending {
	switch {
	case s.committed || kind != failure.KindReset:
	case s.useful == 0 && s.malformed > 0:
		kind = failure.KindMalformed
	case s.useful == 0:
		kind = failure.KindEmpty
	}
	if !s.send() {
		return s.clientLeft()
	}
	return s.fail(&failure.Signal{Kind: kind, Status: s.resp.StatusCode, Headers: s.resp.Header})
}

// reported handles an error event. After the finish reason it changes nothing any more.
func (s *streamer) reported(data []byte) ending {
	if s.committed && s.whole() {
		return s.complete()
	}
	signal := s.broken(failure.KindInStream, s.resp, bytes.TrimSpace(data))
	if !s.send() {
		return s.clientLeft()
	}
	return s.fail(signal)
}

// complete ends a stream that is whole, with the one end marker it gets.
func (s *streamer) complete() ending {
	if !s.committed {
		return s.fail(&failure.Signal{Kind: failure.KindEmpty, Status: s.resp.StatusCode, Headers: s.resp.Header})
	}
	s.succeed()
	s.out = append(s.out, openai.DoneEvent...)
	if !s.send() && !s.finished {
		s.result.status, s.result.reason = models.CodeClientClosed.Status(), models.ReasonClientGone
		return endBroken
	}
	s.drain()
	return endServed
}

// drain reads the upstream to its end, which has usually arrived with the end marker, so
// that the socket goes back into the pool instead of being closed.
func (s *streamer) drain() {
	s.dog.enter(failure.KindIdleTimeout, afterDone)
	scratch := s.out[:cap(s.out)]
	for range 4 {
		if _, err := s.resp.Body.Read(scratch); err != nil {
			return
		}
	}
}

// clientLeft ends a stream whose client is gone, or that a shutdown ends. One that already
// has its finish reason has what it asked for.
func (s *streamer) clientLeft() ending {
	if s.finished {
		s.succeed()
		return endServed
	}
	return s.abandon()
}

// breakOff tells a client in the middle of an answer that the rest is missing: an error
// event, no finish reason and no end marker. An answer in one piece is simply cut short.
func (a *attempt) breakOff(e *models.Error) ending {
	if a.Chat.Stream && a.write(openai.ErrorEvent(e)) {
		a.flush()
	}
	return endBroken
}
