package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPathLeadsToAValue(t *testing.T) {
	document := ` {"ok":false,"error":{"code":1002,"text":"a\\u00e9\"b"},"choices":[{"index":0},{"index":7}],"none":null}`
	for path, want := range map[string]string{
		"ok": "false", "error.code": "1002", "error.text": `a\u00e9"b`, "choices.1.index": "7", "choices.#": "2", "none": "", "error": `{"code":1002,"text":"a\\u00e9\"b"}`,
	} {
		value, ok := Lookup([]byte(document), path)
		require.True(t, ok, path)
		require.Equal(t, want, value, path)
	}
	for _, path := range []string{"", "missing", "error.missing", "choices.9", "ok.x"} {
		_, ok := Lookup([]byte(document), path)
		require.False(t, ok, path)
	}
	for _, text := range []string{"", " ", "<html>", `"text"`, "5", "data: {}"} {
		_, ok := Lookup([]byte(text), "a")
		require.False(t, ok, text)
	}
	value, ok := Lookup([]byte(`{"code":"1002","rest":[{"`), "code")
	require.True(t, ok)
	require.Equal(t, "1002", value)
}

func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":1}]}`), "a.0.b")
	f.Add([]byte(`{"a":`), "a.#(b==1).c")
	f.Add([]byte(`[[[[`), "0.0.@pretty")
	f.Fuzz(func(t *testing.T, document []byte, path string) { Lookup(document, path) })
}
