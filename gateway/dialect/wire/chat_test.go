package wire

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

const hello = `[{"role":"user","content":"hi"}]`

func TestARequestIsReadInOnePass(t *testing.T) {
	chat, refusal := PeekChat([]byte(` {"stream" : true, "model":"openai/gpt-x","messages":` + hello + `,"stream_options":{"include_usage":true},"unknown":{"model":1}} `))
	require.Nil(t, refusal)
	require.Equal(t, "openai/gpt-x", chat.Model)
	require.True(t, chat.Stream)
	require.True(t, chat.IncludeUsage)
}

func TestStopSequencesAndTheNumberOfChoicesAreRead(t *testing.T) {
	for fields, want := range map[string]Chat{
		``:                                {Choices: 1},
		`,"stop":null,"n":null`:           {Choices: 1},
		`,"stop":"","n":0`:                {Choices: 1},
		`,"stop":[],"n":1e9`:              {Choices: 1_000_000_000},
		`,"stop":"END","n":3`:             {Choices: 3, Stops: true},
		`,"stop":["\u0045ND"," "],"n":-2`: {Choices: 1, Stops: true},
		`,"metadata":{"stop":"x","n":4}`:  {Choices: 1},
	} {
		chat, refusal := PeekChat([]byte(`{"model":"m","messages":` + hello + fields + `}`))
		require.Nil(t, refusal, fields)
		require.Equal(t, want.Choices, chat.Choices, fields)
		require.Equal(t, want.Stops, chat.Stops, fields)
	}
}

func TestABadRequestIsRefusedAndTheFieldAtFaultIsNamed(t *testing.T) {
	cases := map[string]struct {
		body  string
		code  models.Code
		param string
	}{
		"nothing":                        {``, models.CodeInvalidJSON, ""},
		"truncated":                      {`{"model":"m","messages":[{"role":"user"`, models.CodeInvalidJSON, ""},
		"not JSON":                       {`model=m`, models.CodeInvalidJSON, ""},
		"two values":                     {`{} {}`, models.CodeInvalidJSON, ""},
		"a content is not UTF-8":         {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", models.CodeInvalidJSON, ""},
		"an array":                       {`[1]`, models.CodeInvalidRequest, ""},
		"a string":                       {`"model"`, models.CodeInvalidRequest, ""},
		"no model":                       {`{"messages":` + hello + `}`, models.CodeInvalidRequest, "model"},
		"model is a number":              {`{"model":1,"messages":` + hello + `}`, models.CodeInvalidRequest, "model"},
		"model is null":                  {`{"model":null,"messages":` + hello + `}`, models.CodeInvalidRequest, "model"},
		"model is empty":                 {`{"model":"","messages":` + hello + `}`, models.CodeInvalidRequest, "model"},
		"model is endless":               {`{"model":"` + strings.Repeat("m", 513) + `","messages":` + hello + `}`, models.CodeInvalidRequest, "model"},
		"model twice":                    {`{"model":"a","messages":` + hello + `,"model":"b"}`, models.CodeInvalidRequest, "model"},
		"model twice, once escaped":      {`{"model":"a","messages":` + hello + `,"mod\u0065l":"b"}`, models.CodeInvalidRequest, "model"},
		"stream twice":                   {`{"model":"a","stream":true,"stream":false,"messages":` + hello + `}`, models.CodeInvalidRequest, "stream"},
		"messages twice":                 {`{"model":"a","messages":` + hello + `,"messages":` + hello + `}`, models.CodeInvalidRequest, "messages"},
		"stream is a string":             {`{"model":"a","stream":"true","messages":` + hello + `}`, models.CodeInvalidRequest, "stream"},
		"stream options is an array":     {`{"model":"a","stream_options":[],"messages":` + hello + `}`, models.CodeInvalidRequest, "stream_options"},
		"include usage is a number":      {`{"model":"a","stream_options":{"include_usage":1},"messages":` + hello + `}`, models.CodeInvalidRequest, "stream_options.include_usage"},
		"include usage twice":            {`{"model":"a","stream_options":{"include_usage":true,"include_usage":false},"messages":` + hello + `}`, models.CodeInvalidRequest, "stream_options.include_usage"},
		"no messages":                    {`{"model":"a"}`, models.CodeInvalidRequest, "messages"},
		"messages is a string":           {`{"model":"a","messages":"hi"}`, models.CodeInvalidRequest, "messages"},
		"messages is empty":              {`{"model":"a","messages":[]}`, models.CodeInvalidRequest, "messages"},
		"a message is a string":          {`{"model":"a","messages":[{"role":"user","content":""},"hi"]}`, models.CodeInvalidRequest, "messages[1]"},
		"a message has no role":          {`{"model":"a","messages":[{"content":"hi"}]}`, models.CodeInvalidRequest, "messages[0].role"},
		"a role is a number":             {`{"model":"a","messages":[{"role":"user"},{"role":"user"},{"role":7}]}`, models.CodeInvalidRequest, "messages[2].role"},
		"a role twice":                   {`{"model":"a","messages":[{"role":"user","role":"system"}]}`, models.CodeInvalidRequest, "messages[0].role"},
		"a content is an object":         {`{"model":"a","messages":[{"role":"user","content":{}}]}`, models.CodeInvalidRequest, "messages[0].content"},
		"temperature is a string":        {`{"model":"a","temperature":"hot","messages":` + hello + `}`, models.CodeInvalidRequest, "temperature"},
		"max tokens is an object":        {`{"model":"a","max_tokens":{},"messages":` + hello + `}`, models.CodeInvalidRequest, "max_tokens"},
		"tools is an object":             {`{"model":"a","tools":{},"messages":` + hello + `}`, models.CodeInvalidRequest, "tools"},
		"nested beyond what is bearable": {strings.Repeat("[", 2_000_000), models.CodeInvalidJSON, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, refusal := PeekChat([]byte(c.body))
			require.NotNil(t, refusal)
			require.Equal(t, c.code, refusal.Code)
			require.Equal(t, c.param, refusal.Param)
			require.Equal(t, 400, refusal.Status())
		})
	}
}

func TestOptionalFieldsMayBeNull(t *testing.T) {
	_, refusal := PeekChat([]byte(`{"model":"a","stream":null,"stream_options":null,"temperature":null,"tools":null,"stop":null,"messages":[{"role":"assistant","content":null,"tool_calls":[]}]}`))
	require.Nil(t, refusal)
}

func TestAnAttemptsBodyDiffersOnlyWhereItMust(t *testing.T) {
	cases := map[string]struct{ body, model, want string }{
		"nothing to change": {
			`{"model":"m","messages":` + hello + `}`, "m",
			`{"model":"m","messages":` + hello + `}`,
		},
		"the model": {
			`{ "x":1, "model" : "best", "messages":` + hello + `, "y":1.0 }`, "org/gpt-x:free",
			`{ "x":1, "model" : "org/gpt-x:free", "messages":` + hello + `, "y":1.0 }`,
		},
		"a model that needs quoting": {
			`{"model":"best","messages":` + hello + `}`, `a"b\ü`,
			`{"model":"a\"b\\ü","messages":` + hello + `}`,
		},
		"usage is asked for": {
			`{"model":"m","stream":true,"messages":` + hello + ` }`, "m",
			`{"model":"m","stream":true,"messages":` + hello + ` ,"stream_options":{"include_usage":true}}`,
		},
		"usage is switched on": {
			`{"stream_options":{"x":1,"include_usage":false},"model":"best","stream":true,"messages":` + hello + `}`, "m",
			`{"stream_options":{"x":1,"include_usage":true},"model":"m","stream":true,"messages":` + hello + `}`,
		},
		"other stream options stay": {
			`{"model":"best","stream_options":{ "x":1},"stream":true,"messages":` + hello + `}`, "m",
			`{"model":"m","stream_options":{"include_usage":true, "x":1},"stream":true,"messages":` + hello + `}`,
		},
		"empty stream options": {
			`{"model":"m","stream_options":{ },"stream":true,"messages":` + hello + `}`, "m",
			`{"model":"m","stream_options":{"include_usage":true },"stream":true,"messages":` + hello + `}`,
		},
		"null stream options": {
			`{"model":"m","stream_options":null,"stream":true,"messages":` + hello + `}`, "m",
			`{"model":"m","stream_options":{"include_usage":true},"stream":true,"messages":` + hello + `}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			body := []byte(c.body)
			chat, refusal := PeekChat(body)
			require.Nil(t, refusal)
			derived := chat.For(body, c.model)
			require.Equal(t, c.want, string(derived))
			require.Equal(t, c.body, string(body), "the client's body is never changed")
			require.True(t, json.Valid(derived))
		})
	}
}

func TestADerivedBodyIsTheSameRequestWhateverItHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		request := map[string]any{
			"model":    rapid.StringN(1, 20, 100).Draw(t, "asked"),
			"messages": []any{map[string]any{"role": "user", "content": rapid.String().Draw(t, "content")}},
			"stream":   rapid.Bool().Draw(t, "stream"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "extras") {
			request["x_"+rapid.String().Draw(t, "key")] = rapid.Float64().Draw(t, "value")
		}
		model := rapid.StringN(1, 20, 100).Draw(t, "model")
		body, err := json.Marshal(request)
		require.NoError(t, err)
		var indented bytes.Buffer
		require.NoError(t, json.Indent(&indented, body, "", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent")))

		chat, refusal := PeekChat(indented.Bytes())
		require.Nil(t, refusal)
		var got map[string]any
		require.NoError(t, json.Unmarshal(chat.For(indented.Bytes(), model), &got))

		request["model"] = model
		if request["stream"] == true {
			request["stream_options"] = map[string]any{"include_usage": true}
		}
		wanted, err := json.Marshal(request)
		require.NoError(t, err)
		again, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, string(wanted), string(again))
	})
}

func FuzzPeekChat(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true,"stream_options":{"include_usage":false},"messages":`+hello+`}`), "other")
	f.Add([]byte(`{"mod\u0065l":"m\ud83d","messages":[{"role":"\\","content":[]}]}`), `"`)
	f.Fuzz(func(t *testing.T, body []byte, model string) {
		chat, refusal := PeekChat(body)
		if refusal != nil {
			return
		}
		derived := chat.For(body, model)
		require.True(t, json.Valid(derived))
	})
}
