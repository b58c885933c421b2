package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestACutStreamIsNeverASuccess(t *testing.T) {
	cuts := []fakeprovider.Cut{fakeprovider.CutReset, fakeprovider.CutEOF, fakeprovider.CutFIN}
	w := harness.Start(t, harness.Options{Catalog: manyProviders(len(cuts), time.Minute)})
	g := w.Gateway()
	for i, cut := range cuts {
		t.Run(string(cut), func(t *testing.T) {
			provider := fmt.Sprintf("p%d", i)
			first, second := fmt.Sprintf("upstream-first-%d", i), fmt.Sprintf("upstream-second-%d", i)

			// Cut before the first token: the second key's whole answer, and nothing of the first's.
			w.Provider.On(first, "m", fakeprovider.Step{Times: 1, Cut: cut})
			answer := g.Stream(t, provider+"/m")
			answer.RequireComplete(t)
			require.Equal(t, fakeprovider.Text, answer.Text())
			require.Len(t, w.Provider.Calls(first, "m"), 1)
			require.Len(t, w.Provider.Calls(second, "m"), 1)
			requireTargetOut(t, g, provider+"-1", provider+"/m")
			record := g.Record(t, answer.RequestID())
			require.Equal(t, 200, record.Status)
			require.Equal(t, 2, record.Attempts)
			require.EqualValues(t, fakeprovider.OutputTokens, record.OutputTokens)

			// Cut after 40 tokens: the tokens, one error, no end, and nobody else is asked.
			w.Provider.Forget()
			w.Provider.On(first, "m2", fakeprovider.Step{Times: 1, Cut: cut, AfterTokens: 40})
			answer = g.Stream(t, provider+"/m2")
			answer.RequireWellFormed(t)
			require.Equal(t, strings.Join(fakeprovider.Tokens[:40], ""), answer.Text())
			require.Len(t, answer.Values("error"), 1, "one error frame")
			require.NotEmpty(t, gjson.Get(answer.Values("error")[0], "message").String())
			require.NotEmpty(t, gjson.Get(answer.Values("error")[0], "type").String())
			require.Equal(t, "stream_cut", answer.ErrorCode())
			require.Empty(t, answer.Values("choices.0.finish_reason"))
			require.Zero(t, answer.Done())
			require.Len(t, w.Provider.Attempts(), 1, "after the commit nothing is replayed")
			requireTargetOut(t, g, provider+"-1", provider+"/m2")
			require.Equal(t, 1, g.Breaker(t, provider).Failures, "the first was outweighed by a success")
			require.Equal(t, "cut_stream", g.Record(t, answer.RequestID()).Reason)
		})
	}
}

func TestTheOfficialClientSeesACutStreamAsAnError(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	client := w.Gateway().OpenAI(0)
	read := func(model string) (string, error) {
		stream := client.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
			Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say something.")},
		})
		defer stream.Close()
		text := ""
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				text += choice.Delta.Content
			}
		}
		return text, stream.Err()
	}

	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Cut: fakeprovider.CutReset})
	text, err := read("best")
	require.NoError(t, err, "a cut before the first token is nobody's business but ours")
	require.Equal(t, fakeprovider.Text, text)

	w.Provider.On(keyTwo, "m", fakeprovider.Step{Times: 1, Cut: fakeprovider.CutEOF, AfterTokens: 40})
	text, err = read("b/m")
	require.Error(t, err)
	require.Equal(t, strings.Join(fakeprovider.Tokens[:40], ""), text)
}

func TestAnAnswerWithAFinishReasonIsASuccessWithoutItsEndMarker(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Style: fakeprovider.Style{NoEndMarker: true}})

	answer := g.Stream(t, "a/m")

	answer.RequireComplete(t)
	require.Equal(t, fakeprovider.Text, answer.Text())
	require.Empty(t, g.Health(t).Lockouts)
	require.Zero(t, g.Breaker(t, "a").Failures)
}

// Whatever shape a stream has, the client reads the same and the ledger books the same.
func TestSSETorture(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	g := w.Gateway()
	styles := fakeprovider.Torture()
	for name, style := range styles {
		style.ToolArgumentBytes = 100 << 10
		styles[name] = style
	}
	for _, name := range []string{"plain", "one byte writes", "CRLF split", "gzip"} {
		large := styles[name]
		large.ToolArgumentBytes = 2 << 20
		styles[name+", 2 MiB of arguments"] = large
	}
	for at := 1; at < 330; at += 29 {
		styles[fmt.Sprintf("usage split at %d", at)] = fakeprovider.Style{SplitUsageAt: at}
	}
	served := map[string]string{}
	for name, style := range styles {
		t.Run(name, func(t *testing.T) {
			w.Provider.On(keyOne, "m", fakeprovider.Step{Style: style})

			answer := g.Stream(t, "a/m")

			answer.RequireComplete(t)
			require.Equal(t, fakeprovider.Text, answer.Text())
			if n := style.ToolArgumentBytes; n > 0 {
				require.Equal(t, fakeprovider.ToolArguments(n), answer.ToolArguments())
			}
			served[name] = answer.RequestID()
		})
	}
	for name, id := range served {
		record := g.Record(t, id)
		require.EqualValues(t, fakeprovider.InputTokens, record.InputTokens, name)
		require.EqualValues(t, fakeprovider.OutputTokens, record.OutputTokens, name)
		require.Equal(t, 200, record.Status, name)
	}
	require.Zero(t, g.Breaker(t, "a").Failures, "no shape of stream is a failure")
}

func TestTheFirstTokenArrivesBeforeTheSecondIsWritten(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Hang: fakeprovider.HangMidStream, AfterTokens: 1})

	resp, err := g.Open(t.Context(), w.ClientKey, harness.Body("a/m", true))
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	first := ""
	for first == "" && lines.Scan() {
		first = gjson.Get(strings.TrimPrefix(lines.Text(), "data: "), "choices.0.delta.content").String()
	}

	require.Equal(t, fakeprovider.Tokens[0], first)
	require.Equal(t, 1, w.Provider.Calls(keyOne, "m")[0].Tokens, "the provider waits")
	w.Provider.Release()
	for lines.Scan() {
		first += gjson.Get(strings.TrimPrefix(lines.Text(), "data: "), "choices.0.delta.content").String()
	}
	require.Equal(t, fakeprovider.Text, first)
}

func TestAnEventAboveTheCapIsAnExplicitError(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets + "settings: {limits: {maxEventBytes: 65536}}\n"})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Style: fakeprovider.Style{HugeEventBytes: 100_000}})

	answer := g.Stream(t, "a/m")

	answer.RequireWellFormed(t)
	require.Equal(t, "stream_event_too_large", answer.ErrorCode())
	require.Zero(t, answer.Done())
}

func TestAnErrorInsideA200FailsOverBeforeTheCommit(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, InStreamError: `{"error":{"message":"Rate limit reached.","type":"rate_limit_error","code":"rate_limit_exceeded"}}`})

	answer := g.Stream(t, "best")

	answer.RequireComplete(t)
	require.Equal(t, "b-1", answer.Connection())
	require.Equal(t, "cooling", g.Connection(t, "a-1").Phase, "it meant 429")
}

// A GOAWAY says that the call was not processed: nobody notices, nothing runs twice.
func TestGoAwayCostsNoClientAnErrorAndRunsNothingTwice(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets, TLS: true})
	g := w.Gateway()
	goAway := fakeprovider.Step{Times: 1, Cut: fakeprovider.CutGoAway}
	healthy := fakeprovider.Step{Times: 4}
	w.Provider.On(keyOne, "m", healthy, goAway, healthy, goAway, healthy, goAway)

	for i := range 18 {
		answer := g.Chat(t, "best")
		require.Equal(t, http.StatusOK, answer.Status, "call %d: %s", i, answer)
	}

	served := 0
	for _, attempt := range w.Provider.Attempts() {
		require.Equal(t, "HTTP/2.0", attempt.Proto)
		if attempt.Outcome == fakeprovider.OutcomeAnswered {
			served++
		}
	}
	require.Equal(t, 18, served)
}

func TestAResetBeforeHeadersFailsOver(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Cut: fakeprovider.CutResetEarly})

	began := time.Now()
	answer := g.Chat(t, "best")

	require.Equal(t, http.StatusOK, answer.Status, "%s", answer)
	require.Equal(t, "b-1", answer.Connection())
	within(t, 2*time.Second, time.Since(began), "failing over")
}

func requireTargetOut(t *testing.T, g *harness.Gateway, connection, model string) {
	t.Helper()
	lockouts := g.Health(t).Lockouts
	for _, lockout := range lockouts {
		if lockout.Connection == connection && lockout.Provider+"/"+lockout.Model == model {
			require.Positive(t, lockout.SecondsLeft)
			return
		}
	}
	require.Failf(t, "not out", "%s on %s; out are %+v", model, connection, lockouts)
}
