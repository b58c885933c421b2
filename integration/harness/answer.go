package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
)

// Answer is one answer of a gateway, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	Err    error // the answer could not be got or read to its end
	Took   time.Duration
	Events []string // data of the stream's events, in order; nil without a stream
	broken string   // the first piece of the stream that is neither comment nor valid event
}

func newAnswer(resp *http.Response, body string, err error, took time.Duration) Answer {
	a := Answer{Status: resp.StatusCode, Header: resp.Header, Body: body, Err: err, Took: took}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		a.Events, a.broken = readEvents(body)
	}
	return a
}

// RequestID is the gateway's name for the request.
func (a Answer) RequestID() string { return a.Header.Get("X-Request-Id") }

// Connection is the connection that answered.
func (a Answer) Connection() string { return a.Header.Get("X-Omniroute-Connection") }

// Text is the content of the answer, joined.
func (a Answer) Text() string {
	if a.Events == nil {
		return gjson.Get(a.Body, "choices.0.message.content").String()
	}
	return a.join("choices.0.delta.content")
}

// ToolArguments are the arguments of the answer's tool call, joined.
func (a Answer) ToolArguments() string {
	if a.Events == nil {
		return gjson.Get(a.Body, "choices.0.message.tool_calls.0.function.arguments").String()
	}
	return a.join("choices.0.delta.tool_calls.0.function.arguments")
}

// Values are the non-empty, non-null values of a path over all events.
func (a Answer) Values(path string) []string {
	var values []string
	for _, event := range a.Events {
		if v := gjson.Get(event, path); v.Exists() && v.Type != gjson.Null && v.String() != "" {
			values = append(values, v.String())
		}
	}
	return values
}

func (a Answer) join(path string) string { return strings.Join(a.Values(path), "") }

// Done counts the end markers.
func (a Answer) Done() int { return strings.Count(strings.Join(a.Events, "\n")+"\n", "[DONE]\n") }

// ErrorCode is the code of the error envelope, of the answer or of a frame of the stream.
func (a Answer) ErrorCode() string {
	if a.Events == nil {
		return gjson.Get(a.Body, "error.code").String()
	}
	return a.join("error.code")
}

// RequireWellFormed fails the test when a stream's event is neither a comment nor valid JSON,
// when text was mangled, or when the answer broke off.
func (a Answer) RequireWellFormed(t testing.TB) {
	t.Helper()
	require.NoError(t, a.Err)
	require.Empty(t, a.broken, "a piece of the stream that is no event")
	require.NotContains(t, a.Body, "\uFFFD")
	require.NotContains(t, a.Body, `\ufffd`)
}

// RequireComplete also asks for one role, one id, one finish reason, one end marker.
func (a Answer) RequireComplete(t testing.TB) {
	t.Helper()
	a.RequireWellFormed(t)
	require.Equal(t, http.StatusOK, a.Status, a.Body)
	require.Len(t, a.Values("choices.0.delta.role"), 1, "role deltas")
	require.Len(t, a.Values("choices.0.finish_reason"), 1, "finish reasons")
	require.Equal(t, 1, a.Done(), "end markers")
	require.Equal(t, "[DONE]", a.Events[len(a.Events)-1])
	ids := map[string]bool{}
	for _, id := range a.Values("id") {
		ids[id] = true
	}
	require.Len(t, ids, 1, "ids")
	require.Empty(t, a.ErrorCode())
}

// String is for messages of failed tests.
func (a Answer) String() string {
	return fmt.Sprintf("%d after %s: %v %.600s", a.Status, a.Took.Round(time.Millisecond), a.Err, a.Body)
}

var lineEnd = regexp.MustCompile("\r\n|\r|\n")

// readEvents reads a stream by the standard: lines by any end, data lines of one event
// joined by a line feed, comments and other fields ignored.
func readEvents(body string) (events []string, broken string) {
	events = []string{}
	var data []string
	open := false
	for _, line := range lineEnd.Split(body, -1) {
		field, value, _ := strings.Cut(line, ":")
		switch {
		case line == "" && open:
			event := strings.Join(data, "\n")
			if event != "[DONE]" && !json.Valid([]byte(event)) && broken == "" {
				broken = event
			}
			events = append(events, event)
			data, open = nil, false
		case line == "" || strings.HasPrefix(line, ":"):
		case field == "data":
			data = append(data, strings.TrimPrefix(value, " "))
			open = true
		}
	}
	if open && broken == "" {
		broken = "unfinished: " + strings.Join(data, "\n")
	}
	return events, broken
}
