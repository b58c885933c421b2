package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestBadRequestsAreRefusedByNameAndNothingReachesTheUpstream(t *testing.T) {
	const otherKey = "omr_another_client_of_32_characters_or_more"
	w := harness.Start(t, harness.Options{
		Catalog: strings.Replace(twoTargets, "scopes: [inference]}", "scopes: [inference]}, {name: other, key: \"${OTHER_KEY}\", scopes: [inference], allowedModels: [b/m]}", 1) +
			"settings: {limits: {maxBodyBytes: 4096}}\n",
		Env: []string{"OTHER_KEY=" + otherKey},
	})
	g := w.Gateway()
	for name, c := range map[string]struct {
		key, body  string
		status     int
		code, says string
	}{
		"no key":              {body: harness.Body("a/m", false), status: 401, code: "invalid_api_key"},
		"wrong key":           {key: "omr_wrong", body: harness.Body("a/m", false), status: 401, code: "invalid_api_key"},
		"model not allowed":   {key: otherKey, body: harness.Body("a/m", false), status: 403, code: "model_not_allowed"},
		"unknown model":       {key: w.ClientKey, body: harness.Body("a/mm", false), status: 404, code: "model_not_found", says: "a/m"},
		"truncated":           {key: w.ClientKey, body: `{"model":"a/m","messages":[`, status: 400, code: "invalid_json"},
		"not JSON":            {key: w.ClientKey, body: `hello`, status: 400, code: "invalid_json"},
		"model twice":         {key: w.ClientKey, body: `{"model":"a/m","model":"b/m","messages":[]}`, status: 400, says: "model"},
		"model of wrong type": {key: w.ClientKey, body: `{"model":7,"messages":[]}`, status: 400, says: "model"},
		"stream of wrong type": {
			key: w.ClientKey, body: `{"model":"a/m","stream":"yes","messages":[]}`, status: 400,
			says: "stream",
		},
		"no model": {key: w.ClientKey, body: `{"messages":[{"role":"user","content":"Hi."}]}`, status: 400, says: "model"},
		"too large": {
			key: w.ClientKey, body: `{"model":"a/m","messages":[{"role":"user","content":"` + strings.Repeat("x", 5000) + `"}]}`,
			status: 413, code: "request_too_large",
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer := g.SendAs(t.Context(), c.key, c.body)

			require.Equal(t, c.status, answer.Status, "%s", answer)
			if c.code != "" {
				require.Equal(t, c.code, answer.ErrorCode())
			}
			message := gjson.Get(answer.Body, "error.message").String()
			require.NotEmpty(t, message)
			require.NotEmpty(t, gjson.Get(answer.Body, "error.type").String())
			require.Contains(t, message+gjson.Get(answer.Body, "error.param").String(), c.says)
		})
	}
	require.Empty(t, w.Provider.Attempts())
}

func TestTheOfficialClientGetsAnswersModelsAndItsOwnErrors(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoTargets})
	client := w.Gateway().OpenAI(0)
	params := openai.ChatCompletionNewParams{
		Model: "best", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say something.")},
	}

	// A failing first target is invisible.
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 500})
	answer, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, fakeprovider.Text, answer.Choices[0].Message.Content)
	require.EqualValues(t, fakeprovider.OutputTokens, answer.Usage.CompletionTokens)

	models, err := client.Models.List(t.Context())
	require.NoError(t, err)
	var names []string
	for _, m := range models.Data {
		names = append(names, m.ID)
	}
	require.Subset(t, names, []string{"a/m", "b/m", "best"})
	one, err := client.Models.Get(t.Context(), "best")
	require.NoError(t, err)
	require.Equal(t, "best", one.ID)

	var refusal *openai.Error
	params.Model = "nobody/knows"
	_, err = client.Chat.Completions.New(t.Context(), params)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusNotFound, refusal.StatusCode)
	require.Equal(t, "model_not_found", refusal.Code)
}

// The official client sleeps for as long as we say, and then succeeds.
func TestTheOfficialClientWaitsOutACooldown(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: strings.Replace(twoKeys, "  - {id: key-2, provider: p, priority: 2, credential: {apiKey: upstream-credential-two}}\n", "", 1)})
	g := w.Gateway()
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "2"}})
	require.Equal(t, http.StatusTooManyRequests, g.Chat(t, "p/m").Status)
	refused := g.Chat(t, "p/m")
	require.Equal(t, "all_targets_cooling_down", refused.ErrorCode(), "%s", refused)
	require.Contains(t, refused.Body, "rate_limit_exceeded", "the body says why")

	began := time.Now()
	client := g.OpenAI(1)
	answer, err := client.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "p/m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say something.")},
	})

	require.NoError(t, err)
	require.Equal(t, fakeprovider.Text, answer.Choices[0].Message.Content)
	require.InDelta(t, 1.8, time.Since(began).Seconds(), 1.2)
	require.Len(t, w.Provider.Attempts(), 2)
}

// Every secret of a world is looked for in everything the system writes, after it has been
// through failures of all kinds.
func TestNoSecretIsWrittenAnywhere(t *testing.T) {
	w := harness.Start(t, harness.Options{Catalog: twoKeys})
	g, c := w.Gateway(), w.Temporal.Client(t)
	echo := fmt.Sprintf(`{"error":{"message":"Incorrect API key provided: %s.","type":"invalid_request_error","code":"invalid_api_key"}}`, keyOne)
	w.Provider.On(keyOne, "m", fakeprovider.Step{Times: 1, Status: 429, Headers: map[string]string{"Retry-After": "2"}}, fakeprovider.Step{Status: 401, Body: echo})
	w.Provider.On(keyTwo, "m", fakeprovider.Step{Times: 2}, fakeprovider.Step{Times: 1, Cut: fakeprovider.CutReset, AfterTokens: 5}, fakeprovider.Step{Status: 401, Body: strings.ReplaceAll(echo, keyOne, keyTwo)})
	var shown strings.Builder
	for range 3 {
		answer := g.Stream(t, "p/m")
		shown.WriteString(answer.Body + fmt.Sprint(answer.Header))
	}
	harness.Await(t, 10*time.Second, "both keys are out for good", func() error {
		answer := g.Chat(t, "p/m")
		shown.WriteString(answer.Body + fmt.Sprint(answer.Header))
		if one, two := g.Connection(t, "key-1").Phase, g.Connection(t, "key-2").Phase; one != "expired" || two != "expired" {
			return fmt.Errorf("%s, %s", one, two)
		}
		return nil
	})
	g.SendAs(t.Context(), w.ClientKey+"x", harness.Body("p/m", false))
	g.Admin(t, http.MethodPost, "/api/resilience/reset", `{"connection":"key-1"}`)
	harness.Await(t, 10*time.Second, "workflows in Temporal", func() error {
		if len(w.Temporal.Workflows(t, c, "")) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	_, health := g.Admin(t, http.MethodGet, "/api/monitoring/health", "")
	_, metrics := g.Get(t, "/metrics", "")

	places := map[string]string{
		"gateway's log": g.Output(), "worker's log": w.Worker.Output(), "answers": shown.String(),
		"health": health, "metrics": metrics, "export": w.CLI(t, "export"), "database": dump(t, w.DatabaseURL),
	}
	for id, history := range w.Temporal.Histories(t, c) {
		places["history of "+id] = history
	}
	require.Contains(t, places["database"], "key-1", "the dump has the rows")
	require.Contains(t, places, "history of connection/key-1")
	for place, text := range places {
		for name, value := range map[string]string{
			"key 1": keyOne, "key 2": keyTwo, "the client's key": w.ClientKey, "the admin token": w.AdminToken,
			"the key ring": strings.TrimPrefix(w.EncryptionKeys, "test:"),
		} {
			require.NotContains(t, text, value, "%s is in the %s", name, place)
		}
	}
}

// dump is the whole database as SQL text.
func dump(t *testing.T, url string) string {
	t.Helper()
	program, err := exec.LookPath("pg_dump")
	require.NoError(t, err, "pg_dump comes with PostgreSQL")
	cmd := exec.Command(program, "--data-only", "--inserts", "--dbname", url)
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}
