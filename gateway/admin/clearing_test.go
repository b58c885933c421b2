package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// clinic has one connection for each way to be out, at two providers. The models spark-1 and
// spark-2 are one quota family.
const clinic = `
providers:
  - {id: one, class: api_key, baseURL: "https://one.example/v1", quota: {perModel: true, families: {spark: ["spark-*"]}}}
  - {id: two, class: oauth, baseURL: "https://two.example/v1"}
  - {id: well, class: api_key, baseURL: "https://well.example/v1"}
connections:
  - {id: cooling, provider: one, credential: {apiKey: "sk-cooling-credential-of-provider-one"}}
  - {id: locked, provider: one, credential: {apiKey: "sk-locked-credential-of-provider-one"}}
  - {id: banned, provider: two, credential: {apiKey: "sk-banned-credential-of-provider-two"}}
  - {id: both, provider: two, credential: {apiKey: "sk-both-credential-of-provider-two"}}
  - {id: healthy, provider: well, credential: {apiKey: "sk-healthy-credential-of-provider-well"}}
models:
  - {id: gpt-x, provider: one}
  - {id: spark-1, provider: one}
  - {id: spark-2, provider: one}
  - {id: gpt-x, provider: two}
  - {id: gpt-x, provider: well}
apiKeys: [{name: boss, key: ` + manageKey + `, scopes: [manage]}]
`

func newClinic(t *testing.T) *house {
	h := newHouseOf(t, clinic, catalog.Environment{})
	h.locked("locked", "spark-1", models.LockFamily, time.Hour)
	h.locked("locked", "gpt-x", models.LockModel, 10*time.Minute)
	h.locked("both", "gpt-x", models.LockModel, 20*time.Minute)
	h.fail("cooling", time.Minute)
	h.fail("both", 2*time.Minute)
	h.banned("banned")
	h.ends("healthy", "gpt-x", failure.Verdict{ // one failure that counts for the breaker
		Reason: models.ReasonServerError, Blame: models.BlameUpstream, Scope: models.ScopeNone, Trips: true, UpstreamStatus: 503, Status: 502,
	}, time.Now())
	h.ends("healthy", "gpt-x", failure.Verdict{
		Reason: models.ReasonQuotaExhausted, Blame: models.BlameUpstream, Scope: models.ScopeProvider, Fixed: time.Minute, UpstreamStatus: 429, Status: 429,
	}, time.Now())
	require.NotNil(t, h.live.Report(time.Now()).Providers[2].Hold)
	return h
}

func TestAResetGoesToTheWorkflowsOfWhatIsSelected(t *testing.T) {
	everything := []string{"connection banned", "connection both", "connection cooling", "connection locked", "provider well"}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"nothing named is every breaker":                 {``, []string{"provider well"}},
		"an empty object, too":                           {`{}`, []string{"provider well"}},
		"all is every layer of what is not healthy":      {`{"all":true}`, everything},
		"a connection, healthy or not":                   {`{"connection":"healthy"}`, []string{"connection healthy"}},
		"all of a connection":                            {`{"connection":"both","all":true}`, []string{"connection both"}},
		"a connection with its provider":                 {`{"provider":"two","connection":"both"}`, []string{"connection both"}},
		"a provider, healthy or not":                     {`{"provider":"one"}`, []string{"provider one"}},
		"all of a provider":                              {`{"provider":"two","all":true}`, []string{"connection banned", "connection both", "provider two"}},
		"the layer breaker":                              {`{"layers":["breaker"]}`, []string{"provider well"}},
		"the layer provider_cooldown":                    {`{"layers":["provider_cooldown"]}`, []string{"provider well"}},
		"the layer cooldown leaves lockouts and bans":    {`{"layers":["cooldown"]}`, []string{"cooldown of both", "cooldown of cooling"}},
		"the layer terminal leaves cooldowns":            {`{"layers":["terminal"]}`, []string{"connection banned"}},
		"the layer lockout":                              {`{"layers":["lockout"]}`, []string{"models of both: model gpt-x", "models of locked: model gpt-x family spark"}},
		"layers of a provider's connections":             {`{"provider":"two","layers":["cooldown","lockout"]}`, []string{"cooldown of both", "models of both: model gpt-x"}},
		"the cooldown of a connection, seen or not":      {`{"connection":"locked","layers":["cooldown"]}`, []string{"cooldown of locked"}},
		"the terminal state of one that has none":        {`{"connection":"locked","layers":["terminal"]}`, nil},
		"a model everywhere":                             {`{"model":"gpt-x"}`, []string{"models of both: model gpt-x", "models of locked: model gpt-x"}},
		"a model at a provider":                          {`{"provider":"one","model":"gpt-x"}`, []string{"models of locked: model gpt-x"}},
		"a model by its full name":                       {`{"model":"one/gpt-x"}`, []string{"models of locked: model gpt-x"}},
		"a model whose family is out":                    {`{"model":"spark-2"}`, []string{"models of locked: family spark"}},
		"a family":                                       {`{"model":"spark"}`, []string{"models of locked: family spark"}},
		"a model on a connection, whoever knows it":      {`{"connection":"cooling","model":"one/spark-2"}`, []string{"models of cooling: exact spark-2 model spark-2 family spark"}},
		"a model that is nowhere out":                    {`{"model":"gpt-y","all":true}`, nil},
		"a layer that nothing of the provider is out by": {`{"provider":"well","layers":["terminal"]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClinic(t)
			response, body := h.call("POST", "/api/resilience/reset", adminToken, c.body)
			require.Equal(t, 200, response.StatusCode, body)
			require.Equal(t, c.want, h.cluster.taken())
			var result ResetResult
			require.NoError(t, json.Unmarshal([]byte(body), &result))
			require.True(t, result.OK)
			require.NotEmpty(t, result.Message)
		})
	}
}

func TestAResetSaysWhatItReset(t *testing.T) {
	h := newClinic(t)
	_, body := h.call("POST", "/api/resilience/reset", adminToken, `{"layers":["provider_cooldown","cooldown","lockout"]}`)
	var result ResetResult
	require.NoError(t, json.Unmarshal([]byte(body), &result))
	require.Equal(t, 6, result.Count)
	require.Equal(t, []models.ConnectionID{"both", "cooling"}, result.Connections)
	require.Equal(t, []models.ProviderID{"well"}, result.Providers)
	require.ElementsMatch(t, []lockoutName{
		{Connection: "both", Scope: models.LockModel, Model: "gpt-x"},
		{Connection: "locked", Scope: models.LockModel, Model: "gpt-x"},
		{Connection: "locked", Scope: models.LockFamily, Family: "spark"},
	}, result.Lockouts)
}

func TestResetRefusesWhatItDoesNotKnow(t *testing.T) {
	h := newClinic(t)
	for body, want := range map[string]struct {
		code  models.Code
		param string
	}{
		`{"connection":"nowhere"}`:                                   {models.CodeNotFound, "connection"},
		`{"provider":"nowhere"}`:                                     {models.CodeNotFound, "provider"},
		`{"provider":"one","connection":"both"}`:                     {models.CodeInvalidRequest, "provider"},
		`{"layers":["cooldown","lockouts"]}`:                         {models.CodeInvalidRequest, "layers[1]"},
		`{"layers":["cooldown"],"all":true}`:                         {models.CodeInvalidRequest, "layers"},
		`{"connection":"both","layers":["breaker"]}`:                 {models.CodeInvalidRequest, "layers[0]"},
		`{"model":"gpt-x","layers":["lockout","cooldown"]}`:          {models.CodeInvalidRequest, "layers[1]"},
		`{"connections":"one-1"}`:                                    {models.CodeInvalidJSON, ""},
		`{"connection":1}`:                                           {models.CodeInvalidJSON, ""},
		`{"layers":"cooldown"}`:                                      {models.CodeInvalidJSON, ""},
		`{"all":true} {"all":true}`:                                  {models.CodeInvalidJSON, ""},
		`{"connection":"` + strings.Repeat("x", maxBodyBytes) + `"}`: {models.CodeBodyTooLarge, ""},
	} {
		_, answered := h.call("POST", "/api/resilience/reset", adminToken, body)
		require.Equal(t, want.code, h.failure(answered).Code, body)
		require.Equal(t, want.param, h.failure(answered).Param, body)
	}
	require.Empty(t, h.cluster.taken())
}

func TestModelCooldownsAreListedByWhatIsOutLongest(t *testing.T) {
	h := newClinic(t)
	list := func(query string) (items []lockoutItem) {
		response, body := h.call("GET", "/api/resilience/model-cooldowns"+query, manageKey, "")
		require.Equal(t, 200, response.StatusCode, body)
		var document itemList[lockoutItem]
		require.NoError(t, json.Unmarshal([]byte(body), &document))
		require.NotNil(t, document.Items)
		return document.Items
	}
	all := list("")
	require.Len(t, all, 3)
	family := all[0]
	require.Equal(t, []any{models.ProviderID("one"), models.ConnectionID("locked"), "", "spark", models.LockFamily},
		[]any{family.Provider, family.Connection, family.Model, family.Family, family.Scope})
	require.Equal(t, []any{models.ReasonQuotaExhausted, 429, 1}, []any{family.Reason, family.Status, family.FailureCount})
	require.InDelta(t, time.Hour.Milliseconds(), family.RemainingMs, 5000)
	require.InDelta(t, 3600, family.SecondsLeft, 5)
	require.WithinDuration(t, time.Now().Add(time.Hour), family.Until, 5*time.Second)
	require.WithinDuration(t, time.Now(), family.LockedAt, 5*time.Second)
	require.False(t, family.Durable, "no row has it yet")
	require.Equal(t, "gpt-x", all[1].Model)
	require.Empty(t, all[1].Family)

	for query, want := range map[string]int{
		"?provider=one": 2, "?provider=two": 1, "?provider=nowhere": 0, "?connection=locked": 2, "?provider=two&connection=locked": 0,
		"?model=gpt-x": 2, "?model=one/gpt-x": 1, "?model=spark-2": 1, "?model=spark": 1, "?model=gpt": 0,
	} {
		require.Len(t, list(query), want, query)
	}
}

func TestCooldownsAreListedTerminalOnesFirst(t *testing.T) {
	h := newClinic(t)
	list := func(query string) (names []models.ConnectionID, items []cooldownItem) {
		response, body := h.call("GET", "/api/resilience/cooldowns"+query, manageKey, "")
		require.Equal(t, 200, response.StatusCode, body)
		var document itemList[cooldownItem]
		require.NoError(t, json.Unmarshal([]byte(body), &document))
		for _, item := range document.Items {
			names = append(names, item.Connection)
		}
		return names, document.Items
	}
	names, items := list("")
	require.Equal(t, []models.ConnectionID{"banned", "both", "cooling"}, names)
	require.Equal(t, []any{models.PhaseBanned, models.ReasonBanned, int64(0)}, []any{items[0].Phase, items[0].Reason, items[0].RemainingMs})
	cooling := items[2]
	require.Equal(t, []any{models.ProviderID("one"), models.PhaseCooling, models.ReasonRateLimited, 429, 1},
		[]any{cooling.Provider, cooling.Phase, cooling.Reason, cooling.Status, cooling.Level})
	require.InDelta(t, 60, cooling.SecondsLeft, 2)
	require.Equal(t, "connection/cooling", cooling.Workflow.ID)

	names, _ = list("?provider=two")
	require.Equal(t, []models.ConnectionID{"banned", "both"}, names)
	names, _ = list("?connection=healthy")
	require.Empty(t, names)
}

func TestAModelIsEnabledByNameOrAllAre(t *testing.T) {
	for name, c := range map[string]struct {
		query, body string
		removed     int
		want        []string
	}{
		"provider, connection and model":             {"", `{"provider":"one","connection":"locked","model":"gpt-x"}`, 1, []string{"models of locked: exact gpt-x model gpt-x family gpt-x"}},
		"a model that this replica does not see out": {"", `{"connection":"cooling","model":"gpt-x"}`, 0, []string{"models of cooling: exact gpt-x model gpt-x family gpt-x"}},
		"every model of a connection":                {"", `{"connection":"locked"}`, 2, []string{"models of locked: model gpt-x family spark"}},
		"every model of a provider":                  {"", `{"provider":"two"}`, 1, []string{"models of both: model gpt-x"}},
		"a model anywhere":                           {"", `{"model":"gpt-x"}`, 2, []string{"models of both: model gpt-x", "models of locked: model gpt-x"}},
		"all":                                        {"", `{"all":true}`, 3, []string{"models of both: model gpt-x", "models of locked: model gpt-x family spark"}},
		"filters in the query":                       {"?model=spark-1&provider=one", "", 1, []string{"models of locked: family spark"}},
		"all in the query":                           {"?all=true", "", 3, []string{"models of both: model gpt-x", "models of locked: model gpt-x family spark"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClinic(t)
			response, body := h.call("DELETE", "/api/resilience/model-cooldowns"+c.query, manageKey, c.body)
			require.Equal(t, 200, response.StatusCode, body)
			require.Equal(t, c.want, h.cluster.taken())
			var done lockoutsCleared
			require.NoError(t, json.Unmarshal([]byte(body), &done))
			require.True(t, done.OK)
			require.Equal(t, c.removed, done.Removed)
			require.Len(t, done.Lockouts, c.removed)
			require.Equal(t, strings.Contains(c.query+c.body, "all"), done.ClearedAll)
		})
	}
}

func TestCooldownsAreClearedAndTerminalStatesStay(t *testing.T) {
	for name, c := range map[string]struct {
		query, body string
		want        cooldownsCleared
		calls       []string
	}{
		"all": {
			"", `{"all":true}`,
			cooldownsCleared{OK: true, Cleared: 2, LockoutsCleared: 3, Unchanged: 1, SkippedTerminal: 1, Connections: []models.ConnectionID{"both", "cooling"}},
			[]string{"cooldown of both", "cooldown of cooling", "models of both: model gpt-x", "models of locked: model gpt-x family spark"},
		},
		"of a provider": {
			"", `{"provider":"two"}`,
			cooldownsCleared{OK: true, Cleared: 1, LockoutsCleared: 1, SkippedTerminal: 1, Connections: []models.ConnectionID{"both"}},
			[]string{"cooldown of both", "models of both: model gpt-x"},
		},
		"of a connection, in the query": {
			"?connection=cooling", "",
			cooldownsCleared{OK: true, Cleared: 1, Connections: []models.ConnectionID{"cooling"}},
			[]string{"cooldown of cooling"},
		},
		"of a terminal connection": {
			"", `{"connection":"banned"}`,
			cooldownsCleared{OK: true, SkippedTerminal: 1, Connections: []models.ConnectionID{}},
			nil,
		},
		"of one that is terminal for all but this replica": {
			"", `{"connection":"healthy"}`,
			cooldownsCleared{OK: true, SkippedTerminal: 1, Connections: []models.ConnectionID{}},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newClinic(t)
			h.cluster.terminal = "healthy"
			response, body := h.call("DELETE", "/api/resilience/cooldowns"+c.query, manageKey, c.body)
			require.Equal(t, 200, response.StatusCode, body)
			var done cooldownsCleared
			require.NoError(t, json.Unmarshal([]byte(body), &done))
			require.Equal(t, c.want, done)
			require.Equal(t, c.calls, h.cluster.taken())
		})
	}
}

func TestAClearingThatNamesNothingOrNonsenseIsRefused(t *testing.T) {
	h := newClinic(t)
	for _, c := range []struct {
		path, body string
		code       models.Code
	}{
		{"model-cooldowns", ``, models.CodeInvalidRequest},
		{"model-cooldowns", `{}`, models.CodeInvalidRequest},
		{"model-cooldowns", `{"all":false}`, models.CodeInvalidRequest},
		{"model-cooldowns", `{"all":true,"model":"gpt-x"}`, models.CodeInvalidRequest},
		{"model-cooldowns", `{"models":["gpt-x"]}`, models.CodeInvalidJSON},
		{"model-cooldowns", `[]`, models.CodeInvalidJSON},
		{"model-cooldowns", `{"connection":"nowhere","model":"gpt-x"}`, models.CodeNotFound},
		{"model-cooldowns", `{"provider":"two","connection":"locked"}`, models.CodeInvalidRequest},
		{"model-cooldowns", strings.Repeat(" ", maxBodyBytes+1), models.CodeBodyTooLarge},
		{"model-cooldowns?model=gpt-x", `{"model":"gpt-x"}`, models.CodeInvalidRequest},
		{"model-cooldowns?all=perhaps", ``, models.CodeInvalidRequest},
		{"model-cooldowns?modell=gpt-x", ``, models.CodeInvalidRequest},
		{"model-cooldowns?model=a&model=b", ``, models.CodeInvalidRequest},
		{"cooldowns", ``, models.CodeInvalidRequest},
		{"cooldowns", `{"model":"gpt-x"}`, models.CodeInvalidJSON},
		{"cooldowns?model=gpt-x", ``, models.CodeInvalidRequest},
		{"cooldowns", `{"provider":"nowhere"}`, models.CodeNotFound},
	} {
		_, body := h.call("DELETE", "/api/resilience/"+c.path, manageKey, c.body)
		require.Equal(t, c.code, h.failure(body).Code, "%s %.40s", c.path, c.body)
	}
	for _, path := range []string{"model-cooldowns?reason=x", "cooldowns?model=gpt-x", "cooldowns?provider=a&provider=b"} {
		response, body := h.call("GET", "/api/resilience/"+path, manageKey, "")
		require.Equal(t, 400, response.StatusCode, path)
		require.NotEmpty(t, h.failure(body).Param)
	}
	require.Empty(t, h.cluster.taken())
}

func TestOperatorActionsAnswer503WhileTemporalIsAway(t *testing.T) {
	for _, c := range []struct{ method, path, body string }{
		{"POST", "reset", `{"connection":"both"}`},
		{"POST", "reset", `{"provider":"one"}`},
		{"DELETE", "model-cooldowns", `{"all":true}`},
		{"DELETE", "cooldowns", `{"all":true}`},
	} {
		h := newClinic(t)
		h.cluster.away = true
		response, body := h.call(c.method, "/api/resilience/"+c.path, adminToken, c.body)
		require.Equal(t, 503, response.StatusCode)
		require.Equal(t, models.CodeDurableUnavailable, h.failure(body).Code)
		require.Equal(t, "5", response.Header.Get("Retry-After"))
		entries, err := h.store.AuditLog(t.Context(), 1, 0)
		require.NoError(t, err)
		require.Equal(t, "test", entries[0].Actor, "what did not happen is not in the audit log")
	}
}

func TestHealthListsTheLockoutsOfEachConnection(t *testing.T) {
	h := newClinic(t)
	_, body := h.call("GET", "/api/monitoring/health", adminToken, "")
	var health Health
	require.NoError(t, json.Unmarshal([]byte(body), &health))
	require.Len(t, health.Lockouts, 3)
	counts := map[models.ConnectionID]int{}
	for _, c := range health.Connections {
		counts[c.Connection] = len(c.Lockouts)
	}
	require.Equal(t, map[models.ConnectionID]int{"banned": 0, "both": 1, "cooling": 0, "healthy": 0, "locked": 2}, counts)
	well := health.Providers[2]
	require.Equal(t, models.ReasonQuotaExhausted, well.Hold.Reason)
	require.InDelta(t, 60, well.Hold.SecondsLeft, 2)
	require.Nil(t, well.Gate)
}
