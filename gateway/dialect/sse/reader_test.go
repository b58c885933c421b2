package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// seen is an event with its bytes copied out of the reader.
type seen struct {
	Raw, Data, Name string
	HasData         bool
}

// readAll reads everything from src the way the relay does.
func readAll(src io.Reader, maxEvent int) ([]seen, error) {
	reader := NewReader(src, maxEvent)
	defer reader.Release()
	var events []seen
	note := func(e Event) {
		events = append(events, seen{string(e.Raw), string(e.Data), string(e.Name), e.HasData})
	}
	for {
		for {
			event, ok := reader.Next()
			if !ok {
				break
			}
			note(event)
		}
		if err := reader.Fill(); err != nil {
			if event, ok := reader.Rest(); ok && errors.Is(err, io.EOF) {
				note(event)
			}
			return events, err
		}
	}
}

func payloads(events []seen) []string {
	var all []string
	for _, e := range events {
		if e.HasData {
			all = append(all, e.Data)
		}
	}
	return all
}

func TestPlainEventsKeepTheirVeryBytes(t *testing.T) {
	events, err := readAll(strings.NewReader("data: {\"a\":1}\n\ndata: [DONE]\n\n"), 1<<20)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, []seen{
		{"data: {\"a\":1}\n\n", `{"a":1}`, "", true},
		{"data: [DONE]\n\n", "[DONE]", "", true},
	}, events)
}

func TestOddEventsAreUnderstoodAndMarkedForRewriting(t *testing.T) {
	cases := map[string]struct {
		wire string
		want []seen
	}{
		"CRLF":                       {"data: a\r\n\r\ndata: b\r\n\r\n", []seen{{"", "a", "", true}, {"", "b", "", true}}},
		"CR":                         {"data: a\r\rdata: b\r\r", []seen{{"", "a", "", true}, {"", "b", "", true}}},
		"line endings mixed":         {"data: a\r\n\ndata: b\n\r\n", []seen{{"", "a", "", true}, {"", "b", "", true}}},
		"no space after the colon":   {"data:a\n\n", []seen{{"", "a", "", true}}},
		"only one space is dropped":  {"data:  a\n\n", []seen{{"data:  a\n\n", " a", "", true}}},
		"several data lines":         {"data: {\ndata:\"a\":1\ndata: }\n\n", []seen{{"", "{\n\"a\":1\n}", "", true}}},
		"a named event":              {"event: error\ndata: a\n\n", []seen{{"", "a", "error", true}}},
		"id and retry":               {"id: 7\nretry: 5\ndata: a\n\n", []seen{{"", "a", "", true}}},
		"a comment inside":           {": ping\ndata: a\n\n", []seen{{"", "a", "", true}}},
		"a comment alone":            {": ping\n\n:\n\ndata: a\n\n", []seen{{}, {}, {"data: a\n\n", "a", "", true}}},
		"empty events":               {"\n\n\r\n\rdata: a\n\n\n\n", []seen{{"data: a\n\n", "a", "", true}}},
		"a byte order mark":          {"\xef\xbb\xbfdata: a\n\n", []seen{{"data: a\n\n", "a", "", true}}},
		"a field without a colon":    {"data\n\n", []seen{{"", "", "", true}}},
		"no closing blank line":      {"data: a\n\ndata: b\n", []seen{{"data: a\n\n", "a", "", true}, {"", "b", "", true}}},
		"no line ending at the end":  {"data: a\n\ndata: b", []seen{{"data: a\n\n", "a", "", true}, {"", "b", "", true}}},
		"a name does not carry over": {"event: x\n\ndata: a\n\n", []seen{{"", "", "x", false}, {"data: a\n\n", "a", "", true}}},
		"CR at the very end":         {"data: a\n\r", []seen{{"", "a", "", true}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			events, err := readAll(strings.NewReader(c.wire), 1<<20)
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, c.want, events)
		})
	}
}

func TestASplitAnywhereChangesNothing(t *testing.T) {
	const wire = "\xef\xbb\xbfdata: {\"text\":\"世界🚀\"}\n\n: ping\r\n\r\n\r\ndata:x\r\rdata: one\r\ndata: two\r\n\r\nevent: error\ndata: e\n\nid: 1\r\ndata: last\r\n\r\ndata: [DONE]\n\n"
	want := []string{`{"text":"世界🚀"}`, "x", "one\ntwo", "e", "last", "[DONE]"}
	whole, err := readAll(strings.NewReader(wire), 1<<20)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, want, payloads(whole))

	byByte, err := readAll(iotest.OneByteReader(strings.NewReader(wire)), 1<<20)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, want, payloads(byByte))
	for at := range len(wire) {
		split, err := readAll(io.MultiReader(strings.NewReader(wire[:at]), strings.NewReader(wire[at:])), 1<<20)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, want, payloads(split), "split at byte %d", at)
	}
}

func TestAnEventIsThereAsSoonAsItsLastByteIs(t *testing.T) {
	for _, ending := range []string{"\n", "\r\n", "\r"} {
		reader := NewReader(iotest.OneByteReader(strings.NewReader("data: a"+ending+ending+"data: b"+ending+ending)), 1<<20)
		read := 0
		for {
			event, ok := reader.Next()
			if ok {
				require.Equal(t, "a", string(event.Data))
				break
			}
			require.NoError(t, reader.Fill())
			read++
		}
		// With CRLF the event is over at the second CR: nothing waits for its LF.
		require.LessOrEqual(t, read, len("data: a"+ending+ending), "ending %q", ending)
		reader.Release()
	}
}

func TestAnEventAboveTheCapIsAnErrorAndNotAnEnd(t *testing.T) {
	const limit = 100_000
	fits := "data: " + strings.Repeat("x", limit-10) + "\n\n"
	events, err := readAll(strings.NewReader(fits+fits), limit)
	require.ErrorIs(t, err, io.EOF)
	require.Len(t, events, 2)

	for name, wire := range map[string]string{
		"one long line":         "data: a\n\ndata: " + strings.Repeat("x", limit) + "\n\n",
		"a line without an end": "data: a\n\ndata: " + strings.Repeat("x", 10*limit),
		"many short lines":      "data: a\n\n" + strings.Repeat("data: xxxx\n", limit/10) + "\n",
		"endless comments":      "data: a\n\n" + strings.Repeat(": x\n", limit),
	} {
		t.Run(name, func(t *testing.T) {
			events, err := readAll(strings.NewReader(wire), limit)
			require.ErrorIs(t, err, ErrEventTooLarge)
			require.Equal(t, []string{"a"}, payloads(events))
		})
	}
}

func TestASmallCapHoldsInsideOneRead(t *testing.T) {
	events, err := readAll(strings.NewReader("data: a\n\ndata: "+strings.Repeat("x", 200)+"\n\n"), 100)
	require.ErrorIs(t, err, ErrEventTooLarge)
	require.Equal(t, []string{"a"}, payloads(events))
}

func TestAFailingSourceReportsItsFailureAfterItsBytes(t *testing.T) {
	broken := errors.New("reset")
	events, err := readAll(io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(broken)), 1<<20)
	require.ErrorIs(t, err, broken)
	require.Equal(t, []string{"a"}, payloads(events))
}

func TestASourceThatNeverReadsAnythingIsGivenUp(t *testing.T) {
	_, err := readAll(emptyReader{}, 1<<20)
	require.ErrorIs(t, err, io.ErrNoProgress)
}

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func TestWhatIsWrittenReadsBackAsOneLine(t *testing.T) {
	written := AppendData(nil, []byte("{\n\"a\":1\n}"))
	require.Equal(t, "data: { \"a\":1 }\n\n", string(written))
}

// Whatever the line endings, the splits and the noise between them, the payloads are those
// that were sent.
func TestPayloadsSurviveAnyFraming(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOfN(rapid.StringMatching(`[{}"a-z世 :]{1,20}`), 1, 6).Draw(t, "sent")
		var wire strings.Builder
		for _, data := range sent {
			ending := rapid.SampledFrom([]string{"\n", "\r\n", "\r"}).Draw(t, "ending")
			noise := rapid.SampledFrom([]string{"", ": ping", "id: 1", ":"}).Draw(t, "noise")
			if noise != "" {
				wire.WriteString(noise + ending)
				if rapid.Bool().Draw(t, "apart") {
					wire.WriteString(ending)
				}
			}
			wire.WriteString("data: " + data + ending + ending)
		}
		size := rapid.IntRange(1, 40).Draw(t, "read size")
		events, err := readAll(&chunked{strings.NewReader(wire.String()), size}, 1<<20)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, sent, payloads(events))
	})
}

type chunked struct {
	src  io.Reader
	size int
}

func (c *chunked) Read(p []byte) (int, error) { return c.src.Read(p[:min(len(p), c.size)]) }

func FuzzReader(f *testing.F) {
	f.Add([]byte("data: a\r\ndata:b\n\r\n: c\r\revent: x\ndata\n\n"), uint8(1))
	f.Add([]byte("\xef\xbb\xbfdata: a\n\n"), uint8(2))
	f.Fuzz(func(t *testing.T, wire []byte, size uint8) {
		whole, _ := readAll(strings.NewReader(string(wire)), 1<<20)
		split, _ := readAll(&chunked{strings.NewReader(string(wire)), int(size%7) + 1}, 1<<20)
		require.Equal(t, payloads(whole), payloads(split))
		for _, e := range whole {
			if e.Raw != "" {
				require.Equal(t, "data: "+e.Data+"\n\n", e.Raw)
			}
		}
	})
}
