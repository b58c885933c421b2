package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAWalkSeesWhatADecoderSees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.Map(rapid.String(), func(s string) any { return s }),
			rapid.Map(rapid.Float64(), func(f float64) any { return f }),
			rapid.Map(rapid.Bool(), func(b bool) any { return b }),
			rapid.Map(rapid.SliceOf(rapid.String()), func(s []string) any { return s }),
			rapid.Map(rapid.MapOf(rapid.String(), rapid.String()), func(m map[string]string) any { return m }),
			rapid.Just(any(nil)),
		)).Draw(t, "object")
		encoded, err := json.MarshalIndent(object, "", " ")
		require.NoError(t, err)

		walked := map[string]json.RawMessage{}
		fields := ObjectOf(encoded)
		for fields.Next() {
			require.Equal(t, fields.Value, encoded[fields.ValueAt:fields.ValueAt+len(fields.Value)])
			walked[fields.Name()] = fields.Value
		}
		var decoded map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		require.Len(t, walked, len(decoded))
		for name, value := range decoded {
			require.Equal(t, string(value), string(walked[name]))
		}
	})
}

func TestAWalkOverAnArraySeesEveryElement(t *testing.T) {
	items := ArrayOf([]byte(` [ {"a":[1,"]"]} , "x\"]" ,null,-1.5e3 ] `))
	var seen []string
	for items.Next() {
		seen = append(seen, string(items.Value))
	}
	require.Equal(t, []string{`{"a":[1,"]"]}`, `"x\"]"`, `null`, `-1.5e3`}, seen)
}

func TestNothingIsFoundInWhatIsNoContainer(t *testing.T) {
	for _, data := range []string{``, ` `, `1`, `"x"`, `null`} {
		fields, items := ObjectOf([]byte(data)), ArrayOf([]byte(data))
		require.False(t, fields.Next())
		require.False(t, items.Next())
	}
}

func TestValuesAreReadByTheirKind(t *testing.T) {
	require.Equal(t, `a"é`, Text([]byte(`"a\"\u00e9"`)))
	require.Empty(t, Text([]byte(`7`)))
	require.EqualValues(t, 42, Int([]byte(`42`)))
	require.EqualValues(t, 1, Int([]byte(`1.9`)))
	require.Zero(t, Int([]byte(`"42"`)))
	require.Equal(t, `2`, string(Field([]byte(`{"a":1,"\u0062":2}`), "b")))
	require.Nil(t, Field([]byte(`{"a":1}`), "b"))
}

func TestValidityIsTheStandardLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune(`{}[]":,0123456789.eE+-truefalsn\ u`))).Draw(t, "text")
		require.Equal(t, json.Valid([]byte(text)), Valid([]byte(text)), text)
	})
}

// encoding/json replaces what is not UTF-8, so that an upstream would get other bytes or none.
func TestTextThatIsNotUTF8IsNotJSONAndItsPlaceIsNamed(t *testing.T) {
	for name, text := range map[string]string{
		"Latin-1": "caf\xe9", "half a character": "café\xe4\xb8", "a surrogate": "世\xed\xa0\x80", "an overlong one": "\xc0\xaf",
	} {
		data := []byte(`{"a":"` + text + `"}`)
		require.False(t, Valid(data), name)
		at := strings.IndexFunc(string(data), func(r rune) bool { return r == '\uFFFD' })
		require.Contains(t, Explain(data), fmt.Sprintf("offset %d ", at), name)
	}
	for _, text := range []string{`"é世😀"`, "\"\uFFFD\"", `"\ud800"`} {
		require.True(t, Valid([]byte(text)), text)
	}
	require.NotContains(t, Explain([]byte("\"\uFFFD")), "UTF-8", "the replacement character is one")
}

func TestDeepNestingIsRefusedInsteadOfExhaustingTheStack(t *testing.T) {
	require.False(t, Valid([]byte(strings.Repeat(`[`, 5_000_000)+strings.Repeat(`]`, 5_000_000))))
	require.True(t, Valid([]byte(`[`+strings.Repeat(`{},`, 200_000)+`{}]`)), "many brackets are not deep brackets")
}
