package failure

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAnswerThatWasCutIsReadAsFarAsItGoes(t *testing.T) {
	whole := `{"type":"error","error":{"message":"Slow down, please.","code":"rate_limit_exceeded","details":[{"a":[1,{"b":"}"}]}],"n":-1.5e3},"x":"y"}`
	for cut := range len(whole) {
		var e upstreamError
		e.parse(object([]byte(whole[:cut])))
		if message := e.message(); message != "" {
			require.Equal(t, "Slow down, please.", message, "a sentence is whole or not there")
		}
		require.True(t, strings.HasPrefix("slow down, please.", e.lower))
	}
	var e upstreamError
	e.parse(object([]byte(whole[:strings.Index(whole, `,"details`)])))
	require.Equal(t, "slow down, please.", e.lower)
	require.Equal(t, "rate_limit_exceeded", e.code)
}

func TestOneJSONValueIsNeededAndNothingMore(t *testing.T) {
	for body, is := range map[string]bool{
		` {"a":1} `: true, "[{}]": true, `[{"a":1},2]`: true, `{`: true, `{"a`: true, "\n{}": true,
		``: false, `{}x`: false, `{"a":1}{"a":1}`: false, `"text"`: false, `5`: false, `[]`: false, `[1]`: false, `[[{}]]`: false,
		`<html>`: false, `]`: false, `data: {}`: false,
	} {
		require.Equal(t, is, object([]byte(body)) != nil, body)
	}
}

func TestQuotationsAreTakenOut(t *testing.T) {
	for text, want := range map[string]string{
		`nothing to do`:                      `nothing to do`,
		`the model "gpt x" is gone`:          `the model "" is gone`,
		"the model `gpt` does not exist":     "the model `` does not exist",
		`bad value 'a b' for 'c'.`:           `bad value '' for ''.`,
		`you've used today's quota, don't`:   `you've used today's quota, don't`,
		`the users' quota isn't 'x'`:         `the users' quota isn't ''`,
		`it's 'the user's words' that count`: `it's '' that count`,
		`“ban” and ‘quota’ and «more» 「余」`:   `“” and ‘’ and «» 「」`,
		`you’ve reached it`:                  `you’ve reached it`,
		`never closed: "and so on`:           `never closed: "`,
		`("a")("b")`:                         `("")("")`,
		`"all of it"`:                        `""`,
		`"`:                                  `"`,
		``:                                   ``,
		"broken \xff \"x\xff\" y":            "broken \xff \"\" y",
	} {
		require.Equal(t, want, withoutQuotations(text))
	}
}

func FuzzGrams(f *testing.F) {
	f.Add("the quota is used up", "quota")
	f.Add("the quota is used up", "quot?")
	f.Add("tpd", "tpd")
	f.Add("额度不足", "度不")
	f.Add("", "")
	f.Fuzz(func(t *testing.T, text, part string) {
		var g grams
		g.read(text)
		require.Equal(t, strings.Contains(text, part), g.contains(part))
		for at := range text {
			require.True(t, g.contains(text[at:min(len(text), at+9)]))
		}
	})
}

// On whatever encoding/json takes for an object, the walk finds what encoding/json finds.
func FuzzScan(f *testing.F) {
	for _, body := range hostileBodies() {
		f.Add(body[:min(len(body), 1<<10)])
	}
	f.Add(`{"error":{"message":"a\"b\\","code":429},"errors":[{"msg":"x"}]}`)
	f.Add(`{"a":{"b":[1,2,{"c":null}]},"d":-1.5e300,"e":true,"f":"\u00e9"}`)
	f.Fuzz(func(t *testing.T, body string) {
		unescape([]byte(body))
		withoutQuotations(strings.ToLower(body))
		new(upstreamError).parse(object([]byte(body)))
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &want) != nil || want == nil {
			return
		}
		root := object([]byte(body))
		require.NotNil(t, root)
		found := map[string]bool{}
		count := 0
		for m := membersOf(root); m.next(); count++ {
			name := stringOf([]byte(`"` + string(m.key) + `"`))
			if found[name] {
				continue // of two the first counts here, the last there
			}
			found[name] = true
			require.True(t, json.Valid(m.value), "%q", m.value)
			if isWhole(m.value) {
				var text string
				require.NoError(t, json.Unmarshal(m.value, &text))
				require.Equal(t, text, strings.ToValidUTF8(stringOf(m.value), "\uFFFD"))
			}
		}
		require.Len(t, found, len(want))
		if count == len(want) {
			for m := membersOf(root); m.next(); {
				require.JSONEq(t, string(want[stringOf([]byte(`"`+string(m.key)+`"`))]), string(m.value))
			}
		}
	})
}
