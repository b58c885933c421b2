package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/failure"
)

func delta(d string) string {
	return `{"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]}`
}

func TestOnlyWhatAUserCanUseIsContent(t *testing.T) {
	content := map[string]string{
		"text":               `{"content":"Hi"}`,
		"text in parts":      `{"content":[{"type":"text","text":"Hi"}]}`,
		"a tool call":        `{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}`,
		"a function call":    `{"function_call":{"name":"f"}}`,
		"reasoning":          `{"reasoning":"hm"}`,
		"reasoning content":  `{"role":"assistant","content":"","reasoning_content":"hm"}`,
		"a refusal":          `{"refusal":"no"}`,
		"an escaped key":     `{"c\u006fntent":"Hi"}`,
		"after a null field": `{"refusal":null,"content":"Hi"}`,
	}
	for name, d := range content {
		t.Run(name, func(t *testing.T) {
			var tap Tap
			require.Equal(t, Content, tap.Look([]byte(delta(d))))
		})
	}
	prelude := map[string]string{
		"a role":              delta(`{"role":"assistant"}`),
		"a role, empty text":  delta(`{"role":"assistant","content":"","refusal":null,"tool_calls":[]}`),
		"an empty delta":      delta(`{}`),
		"metadata":            `{"choices":[],"prompt_filter_results":[{"content":"x"}]}`,
		"usage that is null":  `{"choices":[{"delta":{}}],"usage":null}`,
		"an error that is no": `{"choices":[{"delta":{}}],"error":null}`,
	}
	for name, event := range prelude {
		t.Run(name, func(t *testing.T) {
			var tap Tap
			require.Zero(t, tap.Look([]byte(event)))
		})
	}
}

func TestEveryEventHasItsMeaning(t *testing.T) {
	cases := map[string]struct {
		event string
		want  Meaning
	}{
		"the end marker":             {`[DONE]`, Done},
		"the end marker, spaced":     {` [DONE] `, Done},
		"usage alone":                {`{"choices":[],"usage":{"prompt_tokens":1}}`, UsageOnly},
		"usage without choices":      {`{"usage":{"prompt_tokens":1}}`, UsageOnly},
		"usage with a choice":        {`{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":1}}`, Content},
		"an error":                   {`{"error":{"message":"no"}}`, Failed},
		"an error as text":           {`{"error":"no"}`, Failed},
		"an error object":            {`{"object":"error","message":"no"}`, Failed},
		"a finish by error":          {`{"choices":[{"delta":{},"finish_reason":"error"}]}`, Failed},
		"truncated":                  {`{"choices":[{"delta":{"content":"x`, Malformed},
		"not JSON":                   {`hello`, Malformed},
		"not an object":              {`[1]`, Malformed},
		"not UTF-8":                  {"{\"choices\":[{\"delta\":{\"content\":\"caf\xe9\"}}]}", Malformed},
		"nothing":                    {``, Malformed},
		"an object with space":       {"\t{\"choices\":[{\"delta\":{\"content\":\"x\"}}]} ", Content},
		"a finish with nothing said": {`{"choices":[{"delta":{},"finish_reason":"stop"}]}`, Finish},
		"a filtered answer":          {`{"choices":[{"delta":{},"finish_reason":"content_filter"}]}`, Finish | Content},
		"a legacy text":              {`{"choices":[{"text":"x"}]}`, Content},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var tap Tap
			require.Equal(t, c.want, tap.Look([]byte(c.event)))
		})
	}
}

func TestAStreamIsFinishedWhenEveryChoiceIs(t *testing.T) {
	var tap Tap
	require.False(t, tap.Finished())
	tap.Look([]byte(`{"choices":[{"index":0,"delta":{"content":"a"}}]}`))
	tap.Look([]byte(`{"choices":[{"index":1,"delta":{"content":"b"}}]}`))
	tap.Look([]byte(`{"choices":[{"index":1,"delta":{},"finish_reason":"stop"}]}`))
	require.False(t, tap.Finished())
	require.Equal(t, Finish, tap.Look([]byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`)))
	require.True(t, tap.Finished())
	require.True(t, tap.FinishedAll(2))
	require.False(t, tap.FinishedAll(3), "another may still begin")
	tap.Look([]byte(`{"choices":[{"index":2,"delta":{"content":"c"}}]}`))
	require.False(t, tap.Finished(), "a choice that begins later opens the stream again")
}

func TestAnAnswerThatStopsBeforeItBeganIsContentOnlyWhenTheRequestExplainsIt(t *testing.T) {
	const stopped = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	require.Equal(t, Finish, new(Tap).Look([]byte(stopped)))
	require.Equal(t, Finish|Content, (&Tap{MayBeEmpty: true}).Look([]byte(stopped)))
	require.Zero(t, (&Tap{MayBeEmpty: true}).Look([]byte(delta(`{"content":""}`))), "without a finish reason it is empty all the same")
}

func TestTheLastUsageCounts(t *testing.T) {
	var tap Tap
	tap.Look([]byte(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":11,"completion_tokens":1}}`))
	tap.Look([]byte(`{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":60,"prompt_tokens_details":{"cached_tokens":5}}}`))
	require.Equal(t, Usage{Known: true, Input: 11, Output: 60}, tap.Usage)
}

func TestAWholeAnswerIsJudged(t *testing.T) {
	cases := map[string]struct {
		body  string
		want  failure.Kind
		stops bool // the request carried stop sequences
	}{
		"an answer":         {`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, "", false},
		"space around it":   {" \n" + `{"choices":[{"message":{"content":"hi"}}]}` + "\n", "", false},
		"a tool call":       {`{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c"}]},"finish_reason":"tool_calls"}]}`, "", false},
		"a filtered one":    {`{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}`, "", false},
		"nothing":           {``, failure.KindEmpty, false},
		"no choice":         {`{"choices":[],"usage":{"prompt_tokens":1}}`, failure.KindEmpty, false},
		"nothing said":      {`{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, failure.KindEmpty, false},
		"stopped at once":   {`{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`, "", true},
		"no end at all":     {`{"choices":[{"message":{"content":""},"finish_reason":null}]}`, failure.KindEmpty, true},
		"all reasoning":     {`{"choices":[{"message":{"content":null},"finish_reason":"length"}],"usage":{"completion_tokens":64}}`, "", false},
		"tools without one": {`{"choices":[{"message":{"content":""},"finish_reason":"tool_calls"}]}`, "", false},
		"an error":          {`{"error":{"message":"quota","code":429}}`, failure.KindInStream, false},
		"truncated":         {`{"choices":[{"message":{"content":"hi`, failure.KindMalformed, false},
		"a page":            {`<html></html>`, failure.KindMalformed, false},
		"something else":    {`{"hello":"world"}`, failure.KindMalformed, false},
		"an array":          {`[{"choices":[]}]`, failure.KindMalformed, false},
		"not UTF-8":         {"{\"choices\":[{\"message\":{\"content\":\"caf\xe9\"}}]}", failure.KindMalformed, false},
		"an event instead":  {"data: {\"choices\":[]}\n\n", failure.KindMalformed, false},
		"choices of a kind": {`{"choices":{}}`, failure.KindEmpty, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, kind := CheckAnswer([]byte(c.body), c.stops)
			require.Equal(t, c.want, kind)
		})
	}
}

func TestAnErrorHasTheEnvelopeOfTheOfficialClients(t *testing.T) {
	e := models.Errorf(models.CodeInvalidRequest, "The field \"n\" is wrong.\n").WithParam("n")
	e.Details = map[string]int{"poolSize": 2}
	require.JSONEq(t, `{"error":{"message":"The field \"n\" is wrong.\n","type":"invalid_request_error","param":"n","code":"invalid_request"},"diagnostics":{"poolSize":2}}`, string(ErrorBody(e)))

	event := string(ErrorEvent(models.Errorf(models.CodeStreamCut, "Cut.\nOff.")))
	require.Equal(t, "data: ", event[:6])
	require.Equal(t, "\n\n", event[len(event)-2:])
	require.True(t, json.Valid([]byte(event[6:])), "one line of JSON")
	require.JSONEq(t, `{"error":{"message":"Cut.\nOff.","type":"upstream_error","param":null,"code":"stream_cut"}}`, event[6:])
}

func FuzzTap(f *testing.F) {
	f.Add([]byte(delta(`{"content":"x"}`)))
	f.Add([]byte(`{"choices":[{"index":99999999999999999999,"delta":[]}],"usage":{"prompt_tokens":-1e400}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var tap Tap
		meaning := tap.Look(data)
		require.False(t, meaning.Has(Malformed) && meaning.Has(Content))
		require.GreaterOrEqual(t, tap.Usage.Input, int64(0))
		CheckAnswer(data, false)
	})
}
