package wire

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

var documents = []string{
	`{"a":{"b":[1,2,{"c":null}]},"d":-1.5e300,"e":true,"f":"\u00e9\ud83d"}`, `{"a":1,"a":2}`, `{"a\u0062":" } "}`, ` [ ] `, `"\\"`, `[[[[`, `{"a"`,
	"{\"a\":\"\xff\"}", `{} {}`, `01`, `-`, `nul`, "\"\n\"", "\ufeff{}", "",
}

// Whatever is taken for JSON is JSON to the standard library, and what is refused is explained.
func FuzzValid(f *testing.F) {
	for _, document := range documents {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		require.Equal(t, json.Valid(data) && utf8.Valid(data), Valid(data))
		if !Valid(data) {
			require.NotEmpty(t, Explain(data))
		}
	})
}

// A walk over any valid document sees the members and elements that a decoder sees. Nobody walks
// another: that is what Valid is for.
func FuzzWalk(f *testing.F) {
	for _, document := range documents {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !Valid(data) {
			return
		}
		last := map[string]json.RawMessage{}
		for fields := ObjectOf(data); fields.Next(); {
			require.Equal(t, fields.Value, data[fields.ValueAt:fields.ValueAt+len(fields.Value)])
			require.True(t, fields.Is(fields.Name()))
			last[fields.Name()] = fields.Value
			Text(fields.Value)
			Int(fields.Value)
		}
		elements := 0
		for items := ArrayOf(data); items.Next(); elements++ {
			Text(items.Value)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(data, &object) == nil {
			require.Len(t, last, len(object))
			for name, value := range object {
				require.JSONEq(t, string(value), string(last[name]))
			}
		}
		var array []json.RawMessage
		if json.Unmarshal(data, &array) == nil {
			require.Len(t, array, elements)
		}
	})
}
