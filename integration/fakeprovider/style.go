package fakeprovider

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Style is how the events of a stream are put on the wire. The zero Style is the plain one:
// "data: {...}\n\n", one write and one flush per event.
type Style struct {
	LineEnd           string `json:"lineEnd,omitempty"`           // "\n" (default), "\r\n" or "\r"
	OneByteWrites     bool   `json:"oneByteWrites,omitempty"`     // a flush after every byte
	SplitLineEnds     bool   `json:"splitLineEnds,omitempty"`     // a flush between "\r" and "\n"
	NoSpace           bool   `json:"noSpace,omitempty"`           // "data:{...}"
	MultiLineData     bool   `json:"multiLineData,omitempty"`     // one event's JSON over several data lines
	Comments          bool   `json:"comments,omitempty"`          // comments, lone ":" and empty events between frames
	UnknownFields     bool   `json:"unknownFields,omitempty"`     // event, id, retry and made-up fields beside data
	Gzip              bool   `json:"gzip,omitempty"`              // compressed, flushed after every event
	SplitUsageAt      int    `json:"splitUsageAt,omitempty"`      // flush inside the usage event after this many bytes
	MalformedFrame    bool   `json:"malformedFrame,omitempty"`    // one event that is not JSON, after the fifth token
	NoEndMarker       bool   `json:"noEndMarker,omitempty"`       // finish reason and usage, but no [DONE]
	NoFinish          bool   `json:"noFinish,omitempty"`          // neither finish reason nor usage nor [DONE]
	NoUsage           bool   `json:"noUsage,omitempty"`           // no usage event
	ToolArgumentBytes int    `json:"toolArgumentBytes,omitempty"` // a tool call with arguments of this size after the text
	HugeEventBytes    int    `json:"hugeEventBytes,omitempty"`    // one event of this size instead of the sixth token
}

// Torture are the shapes that all carry the same answer (without MalformedFrame, the same
// bytes of JSON too): whoever reads one must read them all alike.
func Torture() map[string]Style {
	return map[string]Style{
		"plain":            {},
		"one byte writes":  {OneByteWrites: true},
		"CRLF":             {LineEnd: "\r\n"},
		"CR":               {LineEnd: "\r"},
		"CRLF split":       {LineEnd: "\r\n", SplitLineEnds: true},
		"no space":         {NoSpace: true},
		"multi-line data":  {MultiLineData: true},
		"comments":         {Comments: true},
		"unknown fields":   {UnknownFields: true},
		"gzip":             {Gzip: true},
		"malformed frame":  {MalformedFrame: true},
		"no end marker":    {NoEndMarker: true},
		"CR with comments": {LineEnd: "\r", Comments: true, NoSpace: true, UnknownFields: true},
	}
}

func (s Style) check() error {
	switch s.LineEnd {
	case "", "\n", "\r\n", "\r":
		return nil
	default:
		return fmt.Errorf("unknown line end %q", s.LineEnd)
	}
}

// eventWriter puts events on the wire in one style.
type eventWriter struct {
	style Style
	w     http.ResponseWriter
	flush func() error
	gz    *gzip.Writer
	sent  int
}

func newEventWriter(w http.ResponseWriter, s Style) *eventWriter {
	e := &eventWriter{style: s, w: w, flush: http.NewResponseController(w).Flush}
	if e.style.LineEnd == "" {
		e.style.LineEnd = "\n"
	}
	if s.Gzip {
		e.gz = gzip.NewWriter(w)
	}
	return e
}

// event writes one frame of payload, and what the style puts around it.
func (e *eventWriter) event(payload []byte) error {
	if e.style.Comments {
		if err := e.between(); err != nil {
			return err
		}
	}
	e.sent++
	return e.write(e.frame(payload))
}

// usage writes the usage event, split where the style says.
func (e *eventWriter) usage(payload []byte) error {
	frame := e.frame(payload)
	if at := e.style.SplitUsageAt; at > 0 && at < len(frame) {
		if err := e.write(frame[:at]); err != nil {
			return err
		}
		frame = frame[at:]
	}
	return e.write(frame)
}

// close ends the compressed body, when there is one.
func (e *eventWriter) close() error {
	if e.gz == nil {
		return nil
	}
	if err := e.gz.Close(); err != nil {
		return err
	}
	return e.flush()
}

// between cycles through what may legally stand between two frames.
func (e *eventWriter) between() error {
	fillers := []string{": keep-alive\n", ":\n", "\n", ": a comment: with colons {\"error\":1}\n\n", "event: ping\n\n"}
	filler := fillers[e.sent%len(fillers)]
	return e.write([]byte(strings.ReplaceAll(filler, "\n", e.style.LineEnd)))
}

func (e *eventWriter) frame(payload []byte) []byte {
	field := "data: "
	if e.style.NoSpace {
		field = "data:"
	}
	var b bytes.Buffer
	line := func(s string) { b.WriteString(s + e.style.LineEnd) }
	if e.style.UnknownFields {
		line("id: 7")
		line("retry: 3000")
		line("x-unknown: {\"choices\":[]}")
		line("lonelyfield")
	}
	for _, part := range e.lines(payload) {
		line(field + part)
	}
	line("")
	return b.Bytes()
}

// lines spreads a JSON payload over several lines between its tokens, where white space is free.
func (e *eventWriter) lines(payload []byte) []string {
	if !e.style.MultiLineData || !json.Valid(payload) {
		return []string{string(payload)}
	}
	var b bytes.Buffer
	if err := json.Indent(&b, payload, "", " "); err != nil {
		return []string{string(payload)}
	}
	return strings.Split(b.String(), "\n")
}

// write sends b in the pieces that the style asks for, a flush after each.
func (e *eventWriter) write(b []byte) error {
	for len(b) > 0 {
		n := e.piece(b)
		if err := e.put(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (e *eventWriter) piece(b []byte) int {
	if e.style.OneByteWrites {
		// A tool call of megabytes one system call per byte would take minutes: past the
		// first 4 KiB of an event the pieces grow.
		if len(b) > 4096 {
			return 4096
		}
		return 1
	}
	if e.style.SplitLineEnds {
		if i := bytes.IndexByte(b, '\r'); i >= 0 && i+1 < len(b) {
			return i + 1
		}
	}
	return len(b)
}

func (e *eventWriter) put(b []byte) error {
	if e.gz == nil {
		if _, err := e.w.Write(b); err != nil {
			return err
		}
		return e.flush()
	}
	if _, err := e.gz.Write(b); err != nil {
		return err
	}
	if err := e.gz.Flush(); err != nil {
		return err
	}
	return e.flush()
}
