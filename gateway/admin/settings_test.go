package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// resilienceSettings reads the document and its tag.
func (h *house) resilienceSettings() (document ResilienceDocument, tag string) {
	h.t.Helper()
	response, body := h.call("GET", "/api/resilience", manageKey, "")
	require.Equal(h.t, 200, response.StatusCode, body)
	require.NoError(h.t, json.Unmarshal([]byte(body), &document))
	return document, response.Header.Get("ETag")
}

// patch changes settings that must be accepted.
func (h *house) patch(path, body string, headers ...string) *http.Response {
	h.t.Helper()
	response, answered := h.call("PATCH", path, manageKey, body, headers...)
	require.Equal(h.t, 200, response.StatusCode, answered)
	return response
}

// problems are the details of a refusal, by field.
func (h *house) problems(body string) map[string]string {
	h.t.Helper()
	var document struct {
		Error struct {
			Code    models.Code
			Param   string
			Details []fieldProblem
		}
	}
	require.NoError(h.t, json.Unmarshal([]byte(body), &document), body)
	require.Equal(h.t, models.CodeInvalidRequest, document.Error.Code)
	problems := map[string]string{}
	for _, p := range document.Error.Details {
		problems[p.Field] = p.Message
	}
	require.Contains(h.t, problems, document.Error.Param)
	return problems
}

func TestTheResilienceSettingsAreShownInForceWithTheirSchema(t *testing.T) {
	threshold := 20
	environment := catalog.Environment{Resilience: resilience.Settings{
		ProviderBreaker: resilience.ByClass[resilience.BreakerSettings]{APIKey: resilience.BreakerSettings{FailureThreshold: &threshold}},
	}}
	h := newHouseOf(t, world+"settings: {resilience: {modelLockout: {enabled: true, baseCooldownMs: 60000}}}\n", environment)

	document, tag := h.resilienceSettings()
	require.Regexp(t, `^"[0-9a-f]{64}"$`, tag, "a strong tag")
	require.Len(t, document.Schema, len(resilience.Schema()))
	ms := func(n int64) *int64 { return &n }

	require.Equal(t, SettingDocument{
		Value: 60_000.0, Default: 120_000.0, Source: "setting", Type: "integer", Min: ms(5000), Max: ms(600_000), Unit: "ms",
		Description: "First lockout of a model.",
	}, document.Schema["modelLockout.baseCooldownMs"])
	env := document.Schema["providerBreaker.apikey.failureThreshold"]
	require.Equal(t, []any{20.0, 20.0, resilience.SourceEnv, "OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD"}, []any{env.Value, env.Default, env.Source, env.Env})
	standard := document.Schema["modelLockout.errorCodes"]
	require.Equal(t, resilience.SourceDefault, standard.Source)
	require.Equal(t, []any{403.0, 404.0, 429.0, 502.0, 503.0, 504.0}, standard.Value)
	require.Equal(t, ms(60_000), document.Schema["modelLockout.maxCooldownMs"].Min, "bounds as they are beside the other values")
	require.Nil(t, document.Schema["modelLockout.enabled"].Min)

	require.True(t, *document.ModelLockout.Enabled)
	require.Equal(t, 20, *document.ProviderBreaker.APIKey.FailureThreshold)
	require.Equal(t, int64(5000), *document.ConnectionCooldown.OAuth.BaseCooldownMs)
	require.False(t, document.OK)

	_, again := h.resilienceSettings()
	require.Equal(t, tag, again)
}

func TestAPatchChangesWhatItNamesAndNullTakesAValueAway(t *testing.T) {
	h := newHouse(t)
	_, before := h.resilienceSettings()

	response, body := h.call("PATCH", "/api/resilience", manageKey,
		`{"modelLockout":{"enabled":true,"errorCodes":[429]},"connectionCooldown":{"oauth":{"baseCooldownMs":7000}}}`)
	require.Equal(t, 200, response.StatusCode, body)
	require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	var changed ResilienceDocument
	require.NoError(t, json.Unmarshal([]byte(body), &changed))
	require.True(t, changed.OK)
	require.Equal(t, []int{429}, changed.ModelLockout.ErrorCodes)
	require.Equal(t, int64(7000), *changed.ConnectionCooldown.OAuth.BaseCooldownMs)

	document, tag := h.resilienceSettings()
	require.Equal(t, response.Header.Get("ETag"), tag, "the tag of the answer is that of what is there now")
	require.NotEqual(t, before, tag)
	changed.OK = false
	require.Equal(t, changed, document)

	// Other values of the same section stay; null takes a value, or a section, away.
	h.patch("/api/resilience", `{"modelLockout":{"errorCodes":null,"maxBackoffSteps":3}}`)
	document, _ = h.resilienceSettings()
	require.True(t, *document.ModelLockout.Enabled)
	require.Len(t, document.ModelLockout.ErrorCodes, 6)
	require.Equal(t, 3, *document.ModelLockout.MaxBackoffSteps)
	h.patch("/api/resilience", `{"modelLockout":null,"connectionCooldown":{"oauth":null},"comboCooldownWait":{"enabled":null}}`)
	_, tag = h.resilienceSettings()
	require.Equal(t, before, tag, "as if nothing had been set")
	stored, err := h.store.Settings(t.Context())
	require.NoError(t, err)
	require.Equal(t, &catalog.DocSettings{}, stored, "a section without a value is not kept")
}

func TestAChangeIsInForceInTheNextSnapshot(t *testing.T) {
	h := newHouse(t)
	h.patch("/api/resilience", `{"providerBreaker":{"apikey":{"failureThreshold":3,"degradationThreshold":2}},"providerCooldown":{"enabled":true}}`)
	h.patch("/api/settings", `{"providerErrorRules":{"one":[{"status":400,"match":"no more","scope":"connection"}]},"timeouts":{"connectMs":1234}}`)
	snapshot, err := h.store.LoadSnapshot(t.Context())
	require.NoError(t, err)
	view := snapshot.Providers["one"]
	require.Equal(t, 3, view.Breaker.FailureThreshold)
	require.True(t, view.Gate.Enabled)
	require.Equal(t, int64(1234), view.Timeouts.Connect.Milliseconds())
	require.Equal(t, "no more", snapshot.Settings.ProviderErrorRules["one"][0].Match)
}

func TestAPatchWithAnythingWrongChangesNothingAndNamesEveryField(t *testing.T) {
	h := newHouse(t)
	h.patch("/api/resilience", `{"modelLockout":{"baseCooldownMs":300000}}`)
	_, before := h.resilienceSettings()
	for name, c := range map[string]struct {
		body string
		want map[string]string
	}{
		"out of range": {`{"modelLockout":{"enabled":true,"baseCooldownMs":4999},"providerBreaker":{"local":{"failureThreshold":1001}}}`, map[string]string{
			"modelLockout.baseCooldownMs":            "4999 is not between 5000 and 600000",
			"providerBreaker.local.failureThreshold": "1001 is not between 1 and 1000",
		}},
		"beside a stored value": {`{"modelLockout":{"maxCooldownMs":299999}}`, map[string]string{
			"modelLockout.maxCooldownMs": "299999 is not between 300000 and 3600000",
		}},
		"beside another new one": {`{"providerCooldown":{"minRetryCooldownMs":9000,"maxRetryCooldownMs":8000}}`, map[string]string{
			"providerCooldown.maxRetryCooldownMs": "8000 is not between 9000 and 86400000",
		}},
		"one entry of a list": {`{"modelLockout":{"errorCodes":[429,999]}}`, map[string]string{
			"modelLockout.errorCodes[1]": "999 is not between 100 and 599",
		}},
		"unknown fields": {`{"modelLockouts":{},"connectionCooldown":{"apikey":{"baseCooldown":1}}}`, map[string]string{
			"modelLockouts":                          "is not a setting; the nearest is modelLockout",
			"connectionCooldown.apikey.baseCooldown": "is not a setting; the nearest is baseCooldownMs",
		}},
		"an unknown field that is to go": {`{"modelLockout":{"enable":null}}`, map[string]string{
			"modelLockout.enable": "is not a setting; the nearest is enabled",
		}},
		"wrong kinds": {`{"modelLockout":{"enabled":"true","baseCooldownMs":"60000","errorCodes":429,"maxBackoffSteps":1.5},"expiredRetry":3,"comboCooldownWait":{"maxWaitMs":1e99}}`, map[string]string{
			"modelLockout.enabled":         "must be true or false, not text",
			"modelLockout.baseCooldownMs":  "must be a whole number, not text",
			"modelLockout.errorCodes":      "must be a list, not a number",
			"modelLockout.maxBackoffSteps": "must be a whole number, not 1.5",
			"expiredRetry":                 "must be an object, not a number",
			"comboCooldownWait.maxWaitMs":  "must be a whole number, not 1e99",
		}},
		"null in a list": {`{"modelLockout":{"errorCodes":[null]}}`, map[string]string{
			"modelLockout.errorCodes[0]": "must not be null",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			response, body := h.call("PATCH", "/api/resilience", manageKey, c.body)
			require.Equal(t, 400, response.StatusCode)
			require.Equal(t, c.want, h.problems(body))
			_, after := h.resilienceSettings()
			require.Equal(t, before, after)
		})
	}
}

func TestABodyThatIsNoPatchIsRefused(t *testing.T) {
	h := newHouse(t)
	for body, want := range map[string]models.Code{
		``:           models.CodeInvalidJSON,
		`{`:          models.CodeInvalidJSON,
		`{"a":`:      models.CodeInvalidJSON,
		`{}`:         models.CodeInvalidRequest,
		`[]`:         models.CodeInvalidRequest,
		`null`:       models.CodeInvalidRequest,
		`"x"`:        models.CodeInvalidRequest,
		`{"a":1} {}`: models.CodeInvalidJSON,
		`{"modelLockout":{"enabled":true,"enabled":false}}`:                   models.CodeInvalidJSON,
		strings.Repeat(`{"modelLockout":`, maxPatchDepth+2):                   models.CodeInvalidJSON,
		`{"modelLockout":"` + strings.Repeat("x", maxPatchBytes) + `"}`:       models.CodeBodyTooLarge,
		`{"` + strings.Repeat("x", 5000) + `":{"` + "\xff\xfe" + `":[[[]]]}}`: models.CodeInvalidRequest,
	} {
		for _, path := range []string{"/api/resilience", "/api/settings"} {
			_, answered := h.call("PATCH", path, manageKey, body)
			require.Equal(t, want, h.failure(answered).Code, "%.60s", body)
			require.Less(t, len(answered), 1000)
		}
	}
	_, answered := h.call("PATCH", "/api/resilience", manageKey, `{"modelLockout":{"enabled":true,"enabled":false}}`)
	require.Contains(t, h.failure(answered).Message, "modelLockout.enabled is given twice")
}

func TestIfMatchRefusesToOverwriteWhatTheCallerHasNotSeen(t *testing.T) {
	h := newHouse(t)
	_, tag := h.resilienceSettings()
	seen := h.patch("/api/resilience", `{"modelLockout":{"enabled":true}}`, "If-Match", tag).Header.Get("ETag")
	for name, c := range map[string]struct {
		headers []string
		want    int
	}{
		"an old tag":               {[]string{"If-Match", tag}, 412},
		"a weak tag":               {[]string{"If-Match", "W/" + seen}, 412},
		"nonsense":                 {[]string{"If-Match", "now"}, 412},
		"any":                      {[]string{"If-Match", "*"}, 200},
		"one of several":           {[]string{"If-Match", tag + `, "x", ` + seen}, 200},
		"one of several headers":   {[]string{"If-Match", tag, "If-Match", seen}, 200},
		"none, which asks nothing": {nil, 200},
	} {
		response, body := h.call("PATCH", "/api/resilience", manageKey, `{"modelLockout":{"enabled":true}}`, c.headers...)
		require.Equal(t, c.want, response.StatusCode, name)
		if c.want == 412 {
			require.Equal(t, models.CodePreconditionFailed, h.failure(body).Code)
		}
	}
	// The tags of the two documents are not each other's.
	response, _ := h.call("GET", "/api/settings", manageKey, "")
	require.NotEqual(t, seen, response.Header.Get("ETag"))
	h.patch("/api/settings", `{"limits":{"maxAttempts":3}}`, "If-Match", response.Header.Get("ETag"))
	_, after := h.resilienceSettings()
	require.Equal(t, seen, after, "a change elsewhere does not change it")
}

func TestOfConcurrentPatchesWithTheSameTagExactlyOneWins(t *testing.T) {
	h := newHouse(t)
	_, tag := h.resilienceSettings()
	const callers = 12
	statuses := make([]int, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			response, _ := h.call("PATCH", "/api/resilience", manageKey, fmt.Sprintf(`{"expiredRetry":{"baseDelayMs":%d}}`, 1000+i), "If-Match", tag)
			statuses[i] = response.StatusCode
		})
	}
	all.Wait()
	winner := -1
	for i, status := range statuses {
		if status == 200 {
			require.Negative(t, winner, "two won")
			winner = i
		} else {
			require.Equal(t, 412, status)
		}
	}
	document, _ := h.resilienceSettings()
	require.Equal(t, int64(1000+winner), *document.ExpiredRetry.BaseDelayMs)
}

func TestConcurrentPatchesOfDifferentValuesAllCount(t *testing.T) {
	h := newHouse(t)
	patches := []string{
		`{"modelLockout":{"enabled":true}}`, `{"modelLockout":{"maxBackoffSteps":2}}`, `{"expiredRetry":{"maxRetries":1}}`,
		`{"providerBreaker":{"oauth":{"windowMs":2000}}}`, `{"providerBreaker":{"local":{"windowMs":3000}}}`, `{"waitForCooldown":{"maxRetries":4}}`,
	}
	statuses := make([]int, len(patches))
	var all sync.WaitGroup
	for i, body := range patches {
		all.Go(func() {
			response, _ := h.call("PATCH", "/api/resilience", manageKey, body)
			statuses[i] = response.StatusCode
		})
	}
	all.Wait()
	require.Equal(t, []int{200, 200, 200, 200, 200, 200}, statuses)
	document, _ := h.resilienceSettings()
	set := 0
	for _, s := range document.Schema {
		if s.Source == resilience.SourceSetting {
			set++
		}
	}
	require.Equal(t, len(patches), set)
}

func TestTheSettingsAreShownInForceAndChangedBySection(t *testing.T) {
	h := newHouse(t)
	_, body := h.call("GET", "/api/settings", manageKey, "")
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &document))
	for _, section := range catalog.SettingSections() {
		require.Contains(t, document, section)
	}
	require.Len(t, document, len(catalog.SettingSections()))
	require.Equal(t, 12.0, document["limits"].(map[string]any)["maxAttempts"])
	require.Equal(t, 10_000.0, document["timeouts"].(map[string]any)["connectMs"])
	require.Equal(t, map[string]any{}, document["providerErrorRules"])
	require.Equal(t, []any{}, document["customBannedSignals"])

	h.patch("/api/settings", `{
		"resilience": {"modelLockout": {"enabled": true}},
		"providerErrorRules": {"one": [{"status": 400, "match": "额度不足 ${x}", "scope": "connection", "reason": "quota_exhausted", "cooldownMs": 60000}]},
		"statusRestatements": {"one": [{"id": "r", "fromStatuses": [403], "toStatus": 429, "textMarkers": ["quota"], "excludeMarkers": ["plan"]}]},
		"responsePredicates": {"one": [{"id": "p", "path": "error.code", "equals": "busy", "status": 503}]},
		"customBannedSignals": ["your account is closed"]}`)
	_, body = h.call("GET", "/api/settings", manageKey, "")
	require.Contains(t, body, `"providerErrorRules":{"one":[{"status":400,"match":"额度不足 ${x}","scope":"connection","reason":"quota_exhausted","cooldownMs":60000}]}`)
	require.Contains(t, body, `"customBannedSignals":["your account is closed"]`)
	shown, _ := h.resilienceSettings()
	require.True(t, *shown.ModelLockout.Enabled)

	// What was set by the API is in the exported file, and applying that file changes nothing.
	_, exported := h.call("GET", "/api/catalog/export", manageKey, "")
	require.Contains(t, exported, "$${x}")
	_, body = h.call("POST", "/api/catalog/apply?dryRun=1", manageKey, exported[strings.Index(exported, "settings:"):])
	require.Contains(t, body, `"changes":[]`)

	h.patch("/api/settings", `{"providerErrorRules": {"one": null}, "statusRestatements": null, "customBannedSignals": []}`)
	_, body = h.call("GET", "/api/settings", manageKey, "")
	require.Contains(t, body, `"providerErrorRules":{},"statusRestatements":{}`)
	require.Contains(t, body, `"customBannedSignals":[]`)
	require.Contains(t, body, `"responsePredicates":{"one":[`)
}

func TestRulesThatCannotBeAreRefusedByTheirPath(t *testing.T) {
	h := newHouse(t)
	response, body := h.call("PATCH", "/api/settings", manageKey, `{
		"timeouts": {"connectMs": 0}, "limits": {"maxAttempts": 101},
		"resilience": {"expiredRetry": {"maxRetries": 11}},
		"providerErrorRules": {" one": [{"status": 99, "match": "", "scope": "everything", "reason": "because", "cooldownMs": 86400001}]},
		"statusRestatements": {"one": [{"id": "r", "fromStatuses": [], "toStatus": 200, "textMarkers": [" "]}]},
		"responsePredicates": {"one": [{"id": "p"}]},
		"customBannedSignals": ["`+strings.Repeat("x", 201)+`"]}`)
	require.Equal(t, 400, response.StatusCode)
	problems := h.problems(body)
	for field, want := range map[string]string{
		"timeouts.connectMs":                       "must be from 1 to 86400000, not 0",
		"limits.maxAttempts":                       "must be from 1 to 100, not 101",
		"resilience.expiredRetry.maxRetries":       "11 is not between 0 and 10",
		"providerErrorRules. one":                  "the name of a provider begins or ends with white space",
		"providerErrorRules. one[0].status":        "must be from 100 to 599, not 99",
		"providerErrorRules. one[0].match":         "is empty; it would be found in everything",
		"providerErrorRules. one[0].scope":         `"everything" is not known; valid are model, connection, provider`,
		"providerErrorRules. one[0].cooldownMs":    "must be from 0 to 86400000, not 86400001",
		"statusRestatements.one[0].fromStatuses":   "needs at least 1",
		"statusRestatements.one[0].toStatus":       "must be from 400 to 599, not 200",
		"statusRestatements.one[0].textMarkers[0]": "is empty; it would be found in everything",
		"responsePredicates.one[0]":                "needs contains or path",
		"customBannedSignals[0]":                   "must have 1 to 200 characters, this one has 201",
	} {
		require.Equal(t, want, problems[field], field)
	}
	require.Contains(t, problems["providerErrorRules. one[0].reason"], `"because" is not known`)
	response, body = h.call("PATCH", "/api/settings", manageKey, `{"providerErrorRules": {"one": [{"status": 400, "match": "x", "scope": "model", "cooldown": 1}]}}`)
	require.Equal(t, 400, response.StatusCode)
	require.Equal(t, map[string]string{"providerErrorRules.one[0].cooldown": "is not a setting; the nearest is cooldownMs"}, h.problems(body))
}

func TestSettingsNeedTheScopeManage(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{
		"GET /api/resilience", "PATCH /api/resilience", "GET /api/settings", "PATCH /api/settings", "GET /api/audit",
		"GET /api/resilience/cooldowns", "DELETE /api/resilience/cooldowns", "GET /api/resilience/model-cooldowns", "DELETE /api/resilience/model-cooldowns",
	} {
		method, target, _ := strings.Cut(path, " ")
		response, _ := h.call(method, target, clientKey, `{}`)
		require.Equal(t, 403, response.StatusCode, path)
		response, _ = h.call(method, target, "", `{}`)
		require.Equal(t, 401, response.StatusCode, path)
	}
}

func TestSettingsAnswer503WhileTheDatabaseIsAway(t *testing.T) {
	h := newHouse(t)
	require.NoError(t, h.store.Close())
	for _, path := range []string{"GET /api/resilience", "PATCH /api/resilience", "GET /api/settings", "PATCH /api/settings", "GET /api/audit"} {
		method, target, _ := strings.Cut(path, " ")
		body := `{"modelLockout":{"enabled":true}}`
		if target == "/api/settings" {
			body = `{"resilience":` + body + `}`
		}
		response, answered := h.call(method, target, adminToken, body)
		require.Equal(t, 503, response.StatusCode, path)
		require.Equal(t, models.CodeCatalogUnavailable, h.failure(answered).Code)
		require.Equal(t, "5", response.Header.Get("Retry-After"))
	}
}
