// Package sse reads server-sent events the way they really arrive: any line ending, any
// split, comments, byte order marks, several data lines. Events that are already in the
// plain form every client understands keep their very bytes.
package sse

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// ErrEventTooLarge says that one event exceeds the configured cap.
var ErrEventTooLarge = errors.New("sse: event exceeds the size limit")

const (
	firstBuffer = 16 << 10 // bytes; holds dozens of usual events
	keptBuffer  = 64 << 10 // a buffer that grew beyond goes to the garbage collector
)

// Event is one event. Its bytes are views into the reader: Raw is valid until the next Fill,
// the rest until the next Next.
type Event struct {
	// Raw is the event as received, with its closing blank line, when it is in the plain form:
	// one "data: " line, line feeds only. Otherwise it is nil and Data must be written anew.
	Raw []byte
	// Data is the payload; several data lines are joined by line feeds.
	Data []byte
	// Name is the event's type; nil when it has none.
	Name []byte
	// HasData is false for a comment.
	HasData bool
}

// Reader splits a byte stream into events. The caller alternates: Next until it reports
// false, then Fill. So it knows when everything that has arrived is handled.
type Reader struct {
	src    io.Reader
	max    int
	buf    []byte
	pooled *[]byte

	start   int  // of the current event
	line    int  // start of the current line
	scan    int  // no line ending between line and here
	end     int  // of the bytes read
	opened  bool // a byte order mark was looked for
	skipLF  bool // the last line ended with CR at the very end of what had been read
	tooBig  bool
	partial partial
}

// partial is what is known of the current event from its complete lines.
type partial struct {
	lines   int
	dataAt  int
	dataEnd int
	datas   int
	joined  []byte // the data when there are several lines of it
	name    []byte
	plain   bool // one "data: " line so far, ended by LF
}

// NewReader reads events of at most maxEvent bytes from src.
func NewReader(src io.Reader, maxEvent int) *Reader {
	pooled := buffers.Get().(*[]byte)
	return &Reader{src: src, max: maxEvent, buf: *pooled, pooled: pooled}
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, firstBuffer)
	return &b
}}

// Release gives the buffer back. The reader and its events must not be used afterwards.
func (r *Reader) Release() {
	if len(r.buf) <= keptBuffer {
		*r.pooled = r.buf
		buffers.Put(r.pooled)
	}
	r.buf, r.pooled = nil, nil
}

// Fill reads once from the source. It may return bytes and an error at the same call's end:
// the error then comes with the next Fill, after Next has seen the bytes.
func (r *Reader) Fill() error {
	if r.tooBig || r.end-r.start > r.max {
		return ErrEventTooLarge
	}
	r.makeRoom()
	for range 100 {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if n > 0 {
			// A reader that fails once fails again: the error is not lost.
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// makeRoom drops what is consumed and grows the buffer when one event fills it.
func (r *Reader) makeRoom() {
	switch {
	case r.start == r.end:
		r.move(0)
	case r.end < len(r.buf):
		// There is room behind the incomplete event.
	case r.start > 0:
		copy(r.buf, r.buf[r.start:r.end])
		r.move(0)
	default:
		grown := make([]byte, min(2*len(r.buf), r.max+firstBuffer))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
}

// move says that the current event's first byte now lies at to.
func (r *Reader) move(to int) {
	by := r.start - to
	r.start -= by
	r.line -= by
	r.scan -= by
	r.end -= by
	r.partial.dataAt -= by
	r.partial.dataEnd -= by
}

// Next returns the next complete event of the bytes read so far, and false when there is
// none and Fill is due.
func (r *Reader) Next() (Event, bool) {
	if r.tooBig || !r.open() {
		return Event{}, false
	}
	for {
		if r.skipLF && r.line < r.end {
			r.dropLF()
		}
		at := lineEnd(r.buf[r.scan:r.end])
		if at < 0 {
			r.scan = r.end
			return Event{}, false
		}
		at += r.scan
		next, lf := at+1, r.buf[at] == '\n'
		if !lf {
			// A CR ends the line at once, since waiting for the LF that may follow would hold the
			// event back; the LF is dropped when it comes.
			if next == r.end {
				r.skipLF = true
			} else if r.buf[next] == '\n' {
				next++
			}
		}
		from := r.line
		r.line, r.scan = next, next
		if at > from {
			r.take(from, at, lf)
			continue
		}
		if next-r.start > r.max {
			r.tooBig = true
			return Event{}, false
		}
		if event, ok := r.finish(next, lf); ok {
			return event, true
		}
	}
}

// Rest returns what an ended source left without its closing blank line, which some
// upstreams never send. The caller judges by the payload whether it is whole.
func (r *Reader) Rest() (Event, bool) {
	if r.tooBig || !r.open() {
		return Event{}, false
	}
	onlyLF := r.skipLF && r.end-r.line == 1 && r.buf[r.line] == '\n'
	if r.line < r.end && !onlyLF {
		r.take(r.line, r.end, false)
	}
	r.line, r.scan = r.end, r.end
	return r.finish(r.end, false)
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// open passes over a byte order mark at the very start and reports whether enough has been
// read to tell.
func (r *Reader) open() bool {
	if r.opened {
		return true
	}
	head := r.buf[r.start:r.end]
	if len(head) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, head) {
		return false
	}
	r.opened = true
	if bytes.HasPrefix(head, byteOrderMark) {
		r.start += len(byteOrderMark)
		r.line, r.scan = r.start, r.start
	}
	return true
}

// dropLF takes away the LF that belongs to a CR read before it.
func (r *Reader) dropLF() {
	r.skipLF = false
	if r.buf[r.line] != '\n' {
		return
	}
	if r.start == r.line {
		r.start++
	}
	r.line++
	r.scan = r.line
}

func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

var plainPrefix = []byte("data: ")

// take notes one complete line that is not empty.
func (r *Reader) take(from, to int, lf bool) {
	p := &r.partial
	line := r.buf[from:to]
	p.lines++
	p.plain = p.lines == 1 && lf && bytes.HasPrefix(line, plainPrefix) && from == r.start
	if line[0] == ':' {
		return
	}
	name, valueAt := line, to
	if colon := bytes.IndexByte(line, ':'); colon >= 0 {
		name, valueAt = line[:colon], from+colon+1
		if valueAt < to && r.buf[valueAt] == ' ' {
			valueAt++
		}
	}
	switch string(name) {
	case "data":
		p.datas++
		switch p.datas {
		case 1:
			p.dataAt, p.dataEnd = valueAt, to
		case 2:
			p.joined = append(p.joined[:0], r.buf[p.dataAt:p.dataEnd]...)
			fallthrough
		default:
			p.joined = append(append(p.joined, '\n'), r.buf[valueAt:to]...)
		}
	case "event":
		p.name = append(p.name[:0], r.buf[valueAt:to]...)
	}
}

// finish ends the current event at next and reports whether there was one.
func (r *Reader) finish(next int, lf bool) (Event, bool) {
	p := &r.partial
	event := Event{HasData: p.datas > 0}
	switch {
	case p.datas == 1:
		event.Data = r.buf[p.dataAt:p.dataEnd]
	case p.datas > 1:
		event.Data = p.joined
	}
	if len(p.name) > 0 {
		event.Name = p.name
	}
	if p.plain && lf {
		event.Raw = r.buf[r.start:next]
	}
	some := p.lines > 0
	r.start = next
	r.partial = partial{joined: p.joined, name: p.name[:0]}
	return event, some
}
