package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A tap that has seen other events before tells the same about an event as a fresh one.
func TestWhatCameBeforeDoesNotChangeWhatAnEventMeans(t *testing.T) {
	shapes := []func(text string) string{
		func(s string) string { return delta(`{"content":` + s + `}`) },
		func(s string) string { return delta(`{"reasoning_content":` + s + `}`) },
		func(s string) string { return delta(`{"role":"assistant","content":` + s + `}`) },
		func(s string) string { return `{"choices":[{"index":1,"delta":{"content":` + s + `}}]}` },
		func(s string) string { return `{"choices":[{"delta":{"content":` + s + `},"finish_reason":"stop"}]}` },
		func(s string) string {
			return `{"choices":[{"delta":{"content":` + s + `}}],"usage":{"prompt_tokens":3}}`
		},
		func(s string) string { return `{"error":{"message":` + s + `}}` },
	}
	rapid.Check(t, func(t *rapid.T) {
		var tap Tap
		for range rapid.IntRange(1, 8).Draw(t, "events") {
			text, err := json.Marshal(rapid.StringOf(rapid.SampledFrom([]rune("ab\"\\\n世"))).Draw(t, "text"))
			require.NoError(t, err)
			event := []byte(rapid.SampledFrom(shapes).Draw(t, "shape")(string(text)))
			switch rapid.IntRange(0, 4).Draw(t, "damage") {
			case 0:
				event = event[:rapid.IntRange(0, len(event)).Draw(t, "cut")]
			case 1:
				at := rapid.IntRange(0, len(event)-1).Draw(t, "place")
				event[at] = rapid.SampledFrom([]byte("\"\\{}x\n\xff\xe4")).Draw(t, "byte")
			}
			// Fresh in what it recognises; what was counted so far stays, as a later report of
			// usage adds to an earlier one.
			fresh := Tap{contentful: tap.contentful, Usage: tap.Usage}
			require.Equal(t, fresh.Look(event), tap.Look(event), "%s", event)
			require.Equal(t, fresh.Usage, tap.Usage, "%s", event)
		}
	})
}

func TestAnEventOfTheSameShapeIsRecognisedWithoutParsing(t *testing.T) {
	var tap Tap
	require.Equal(t, Content, tap.Look([]byte(delta(`{"content":"one"}`))))
	require.True(t, tap.likeness.covers([]byte(delta(`{"content":"世界"}`))))
	require.False(t, tap.likeness.covers([]byte(delta(`{"content":""}`))), "an empty string is no content")
	require.False(t, tap.likeness.covers([]byte(delta(`{"content":"a","b":"c"}`))))
	require.False(t, tap.likeness.covers([]byte(delta(`{"content":"\""}`))))
	require.False(t, tap.likeness.covers([]byte(delta("{\"content\":\"\xe4\xb8\"}"))), "half a character")
	same := []byte(delta(`{"content":"two"}`))
	require.Zero(t, testing.AllocsPerRun(100, func() { tap.Look(same) }))
}
