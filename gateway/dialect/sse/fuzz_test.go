package sse

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is above the cap is an error and never an end, and what came before it is read.
func FuzzCap(f *testing.F) {
	f.Add("data: a\n\ndata: "+strings.Repeat("b", 100)+"\n\ndata: c\n\n", uint8(32))
	f.Add("data: a\ndata: a\ndata: a\n\n", uint8(8))
	f.Add(": comment without end "+strings.Repeat("x", 300), uint8(16))
	f.Fuzz(func(t *testing.T, wire string, most uint8) {
		limit := int(most) + 1
		bounded, err := readAll(strings.NewReader(wire), limit)
		require.Error(t, err, "a stream ends somehow")
		whole, _ := readAll(strings.NewReader(wire), 1<<20)
		sent, read := payloads(whole), payloads(bounded)
		require.LessOrEqual(t, len(read), len(sent))
		for i := range read {
			require.Equal(t, sent[i], read[i], "a prefix of what was sent")
		}
		if errors.Is(err, io.EOF) {
			require.Len(t, read, len(sent), "nothing is swallowed")
		}
	})
}

// Whatever is written as an event reads back as that one event.
func FuzzAppendData(f *testing.F) {
	f.Add("{\"a\":1}")
	f.Add("a\nb")
	f.Add(" leading and data: event: id:")
	f.Add("")
	f.Fuzz(func(t *testing.T, data string) {
		if strings.ContainsRune(data, '\r') {
			return // JSON has none outside of space, and events are JSON
		}
		written := AppendData([]byte("data: before\n\n"), []byte(data))
		events, err := readAll(strings.NewReader(string(written)), 1<<20)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, []string{"before", strings.ReplaceAll(data, "\n", " ")}, payloads(events))
	})
}
