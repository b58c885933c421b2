package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/access"
	"omniroute/gateway/live"
	"omniroute/gateway/outbox"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminToken = "the-operators-own-admin-token"
	manageKey  = "a-key-with-the-scope-manage-0123456789"
	clientKey  = "a-key-with-scope-inference-only-0123456789"
	expiredKey = "a-key-that-has-expired-long-ago-0123456789"

	world = `
providers: [{id: one, class: api_key, dialect: openai, baseURL: "https://one.example/v1"}]
connections:
  - {id: one-1, provider: one, credential: {apiKey: "sk-first-credential-of-provider-one"}, priority: 1}
  - {id: "one-2", provider: one, credential: {apiKey: "sk-second-credential-of-provider-one"}, priority: 2}
models: [{id: gpt-x, provider: one}]
apiKeys:
  - {name: boss, key: ` + manageKey + `, scopes: [inference, manage]}
  - {name: app, key: ` + clientKey + `, scopes: [inference]}
  - {name: old, key: ` + expiredKey + `, scopes: [manage], expiresAt: 2020-01-01T00:00:00Z}
`
)

// cluster stands for Temporal: it takes resets, or is away.
type cluster struct {
	mu    sync.Mutex
	away  bool
	reset []string
	// terminal is a connection whose workflow knows of a terminal state that the replica has not
	// heard of.
	terminal models.ConnectionID
	broken   string // what does not get through
}

func (c *cluster) Reset(_ context.Context, id models.ConnectionID) error {
	return c.take("connection " + string(id))
}

func (c *cluster) ResetProvider(_ context.Context, id models.ProviderID) error {
	return c.take("provider " + string(id))
}

func (c *cluster) EnableModels(_ context.Context, id models.ConnectionID, keys []resilience.LockKey) error {
	what := "models of " + string(id) + ":"
	for _, key := range keys {
		what += " " + string(key.Scope) + " " + key.Name
	}
	return c.take(what)
}

func (c *cluster) ClearCooldown(_ context.Context, id models.ConnectionID) error {
	if id == c.terminal {
		return models.Errorf(models.CodeInvalidRequest, "it is banned, which ends by a reset or by new credentials only")
	}
	return c.take("cooldown of " + string(id))
}

// taken is what was asked for since the last time, sorted.
func (c *cluster) taken() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.reset
	c.reset = nil
	slices.Sort(taken)
	return taken
}

func (c *cluster) take(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away || what == c.broken {
		return models.Errorf(models.CodeDurableUnavailable, "the reset did not reach its workflow; try again")
	}
	c.reset = append(c.reset, what)
	return nil
}

func (c *cluster) answers(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return errors.New("connection refused")
	}
	return nil
}

// house is a management API on a real store and a real live, with Temporal's part played.
type house struct {
	t       *testing.T
	store   *store.Store
	live    *live.Live
	cluster *cluster
	outbox  outbox.Stats
	service *Service
	handler http.Handler
}

func newHouse(t *testing.T) *house { return newHouseOf(t, world, catalog.Environment{}) }

func newHouseOf(t *testing.T, world string, environment catalog.Environment) *house {
	t.Helper()
	spec, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	ring, err := secrets.ParseKeyRing(spec)
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(io.Discard)

	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "omniroute.db"), ring, log)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	s.SetEnvironment(environment)
	require.NoError(t, s.Migrate(t.Context()))
	doc, err := catalog.ParseDocument(strings.NewReader(world), "world", func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	_, err = s.Apply(t.Context(), doc, store.ApplyOptions{Actor: "test"})
	require.NoError(t, err)

	h := &house{t: t, store: s, cluster: &cluster{}}
	h.live = live.New(live.Options{Replica: "r1", Log: log, Registerer: prometheus.NewRegistry()})
	t.Cleanup(h.live.Stop)
	snapshot, err := s.LoadSnapshot(t.Context())
	require.NoError(t, err)
	h.live.CatalogChanged(snapshot)
	h.live.FeedHealth(nil)
	h.service = New(Options{
		Store: s, Live: h.live, Durable: h.cluster, Environment: environment, Temporal: h.cluster.answers,
		Outbox: func() outbox.Stats { return h.outbox }, Ledger: func() int { return 3 },
		HashKey: ring.HashKey, AdminToken: adminToken,
		TemporalUI: "http://temporal.example/", Namespace: "default", Version: "v1.2.3", Replica: "r1", Refusals: access.NewRefusals(log, nil), Log: log,
	})
	h.handler = h.service.Handler()
	return h
}

// call makes a request; token may be empty. headers are names and values in turn.
func (h *house) call(method, target, token, body string, headers ...string) (*http.Response, string) {
	h.t.Helper()
	request := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	recorder := httptest.NewRecorder()
	h.handler.ServeHTTP(recorder, request)
	response := recorder.Result()
	return response, recorder.Body.String()
}

// failure reads an error envelope.
func (h *house) failure(body string) envelopeError {
	h.t.Helper()
	var document envelope
	require.NoError(h.t, json.Unmarshal([]byte(body), &document), body)
	return document.Error
}

// fail makes one attempt on a connection and reports a rate limit with a hint.
func (h *house) fail(id models.ConnectionID, hint time.Duration) {
	h.t.Helper()
	h.failed(id, hint, time.Now())
}

// failed is fail at a time in the past.
func (h *house) failed(id models.ConnectionID, hint time.Duration, at time.Time) {
	h.t.Helper()
	h.ends(id, "another-model", failure.Verdict{
		Reason: models.ReasonRateLimited, Blame: models.BlameUpstream, Scope: models.ScopeConnection,
		Failover: true, Hint: hint, UpstreamStatus: 429, Status: 429,
	}, at)
}

// locked makes one attempt with a model and reports what keeps the model out.
func (h *house) locked(id models.ConnectionID, model string, scope models.LockScope, hint time.Duration) {
	h.t.Helper()
	h.ends(id, model, failure.Verdict{
		Reason: models.ReasonQuotaExhausted, Blame: models.BlameUpstream, Scope: models.ScopeModel, Lock: scope,
		Failover: true, Hint: hint, UpstreamStatus: 429, Status: 429,
	}, time.Now())
}

// banned makes one attempt that ends a connection for good.
func (h *house) banned(id models.ConnectionID) {
	h.t.Helper()
	h.ends(id, "gpt-x", failure.Verdict{
		Reason: models.ReasonBanned, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Terminal: models.PhaseBanned,
		Failover: true, UpstreamStatus: 403, Status: 503,
	}, time.Now())
}

func (h *house) ends(id models.ConnectionID, model string, v failure.Verdict, at time.Time) {
	h.t.Helper()
	connection := h.live.Snapshot().Connections[id]
	pass, out := h.live.Admit(h.t.Context(), connection, models.ModelRef{Provider: connection.Provider.ID, Model: model}, false, at)
	require.Nil(h.t, out)
	pass.Failed(v, at)
}

func TestOnlyManagersMayManage(t *testing.T) {
	h := newHouse(t)
	for name, c := range map[string]struct {
		token string
		want  int
		code  models.Code
	}{
		"nobody":           {"", 401, models.CodeInvalidAPIKey},
		"a wrong token":    {"the-operators-own-admin-tokem", 401, models.CodeInvalidAPIKey},
		"an expired key":   {expiredKey, 401, models.CodeInvalidAPIKey},
		"a client's key":   {clientKey, 403, models.CodeForbidden},
		"the admin token":  {adminToken, 200, ""},
		"a manager's key":  {manageKey, 200, ""},
		"part of a token":  {adminToken[:10], 401, models.CodeInvalidAPIKey},
		"an unknown thing": {"omr_unknown", 401, models.CodeInvalidAPIKey},
	} {
		t.Run(name, func(t *testing.T) {
			response, body := h.call("GET", "/api/catalog/export", c.token, "")
			require.Equal(t, c.want, response.StatusCode, body)
			if c.code != "" {
				require.Equal(t, c.code, h.failure(body).Code)
			}
			require.Equal(t, c.want == 401, response.Header.Get("WWW-Authenticate") != "")
		})
	}
}

func TestAKeyMayComeInXApiKey(t *testing.T) {
	h := newHouse(t)
	request := httptest.NewRequest(http.MethodGet, "/api/catalog/export", nil)
	request.Header.Set("x-api-key", manageKey)
	recorder := httptest.NewRecorder()
	h.handler.ServeHTTP(recorder, request)
	require.Equal(t, 200, recorder.Code)
}

func TestWithoutAnAdminTokenNoEmptyTokenManages(t *testing.T) {
	h := newHouse(t)
	h.service.o.AdminToken = ""
	request := httptest.NewRequest(http.MethodGet, "/api/catalog/export", nil)
	request.Header.Set("Authorization", "Bearer ")
	recorder := httptest.NewRecorder()
	h.handler.ServeHTTP(recorder, request)
	require.Equal(t, 401, recorder.Code)
}

func TestHealthTellsAnybodyTheStatusAndManagersEverything(t *testing.T) {
	h := newHouse(t)
	h.fail("one-2", 30*time.Second)

	response, body := h.call("GET", "/api/monitoring/health", "", "")
	require.Equal(t, 200, response.StatusCode)
	require.JSONEq(t, `{"status":"ok","version":"v1.2.3"}`, body)
	_, body = h.call("GET", "/api/monitoring/health", clientKey, "")
	require.JSONEq(t, `{"status":"ok","version":"v1.2.3"}`, body)

	_, body = h.call("GET", "/api/monitoring/health", adminToken, "")
	var health Health
	require.NoError(t, json.Unmarshal([]byte(body), &health))
	require.Equal(t, "ok", health.Status)
	require.Equal(t, "r1", health.Replica)
	require.Equal(t, CatalogHealth{Revision: health.Catalog.Revision, Providers: 1, Connections: 2, Models: 1, APIKeys: 3}, health.Catalog)
	require.Equal(t, 3, health.Ledger.Pending)
	require.Len(t, health.Providers, 1)
	require.Equal(t, "provider/one", health.Providers[0].Workflow.ID)

	require.Len(t, health.Connections, 2)
	require.Equal(t, models.PhaseReady, health.Connections[0].Phase)
	cooling := health.Connections[1]
	require.Equal(t, models.PhaseCooling, cooling.Phase)
	require.Equal(t, models.ReasonRateLimited, cooling.Reason)
	require.Equal(t, 429, cooling.Status)
	require.InDelta(t, 30, cooling.SecondsLeft, 1)
	require.Equal(t, "connection/one-2", cooling.Workflow.ID)
	require.Equal(t, "http://temporal.example/namespaces/default/workflows/connection%2Fone-2", cooling.Workflow.URL)

	require.NotContains(t, body, "sk-first-credential")
	require.NotContains(t, body, manageKey)
}

func TestHealthIsDegradedWhileAPartIsAwayAndNeverAnythingBut200(t *testing.T) {
	for name, trouble := range map[string]func(*house){
		"temporal": func(h *house) { h.cluster.away = true },
		"database": func(h *house) { require.NoError(h.t, h.store.Close()) },
		"feed":     func(h *house) { h.live.FeedHealth(errors.New("no snapshot")) },
		"outbox":   func(h *house) { h.outbox.Degraded = true },
		// Temporal takes the message and no worker ever acts on it.
		"worker": func(h *house) { h.failed("one-1", time.Minute, time.Now().Add(-6*time.Second)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			trouble(h)
			response, body := h.call("GET", "/api/monitoring/health", "", "")
			require.Equal(t, 200, response.StatusCode)
			require.JSONEq(t, `{"status":"degraded","version":"v1.2.3"}`, body)
			_, body = h.call("GET", "/api/monitoring/health", adminToken, "")
			require.Contains(t, body, `"status":"degraded"`)
		})
	}
}

func TestHealthCountsWhatNoOtherReplicaKnowsYetWithoutAlarmAtOnce(t *testing.T) {
	h := newHouse(t)
	h.fail("one-1", time.Minute)
	health := h.service.Health()
	require.Equal(t, 1, health.Unpublished.Entities)
	require.Equal(t, "ok", health.Status)
}

func TestAskingForTheHealthLooksAtThePartsOnceInTwoSeconds(t *testing.T) {
	looks := 0
	look := func(context.Context) error { looks++; return nil }
	p := &parts{database: look, temporal: func(context.Context) error { return nil }}
	for range 100 {
		p.look()
	}
	require.Equal(t, 1, looks)
	p.checked = time.Now().Add(-partsFresh)
	p.look()
	require.Equal(t, 2, looks)
}

func TestApplyOverHTTPIsTheCommandsApply(t *testing.T) {
	h := newHouse(t)
	const more = `models: [{id: gpt-x, provider: one}, {id: gpt-y, provider: one}]`

	response, body := h.call("POST", "/api/catalog/apply?dryRun=1", manageKey, more)
	require.Equal(t, 200, response.StatusCode, body)
	var diff diffDocument
	require.NoError(t, json.Unmarshal([]byte(body), &diff))
	require.True(t, diff.DryRun)
	require.Len(t, diff.Changes, 1)
	require.Equal(t, "one/gpt-y", diff.Changes[0].ID)
	_, exported := h.call("GET", "/api/catalog/export", manageKey, "")
	require.NotContains(t, exported, "gpt-y")

	response, _ = h.call("POST", "/api/catalog/apply", manageKey, more)
	require.Equal(t, 200, response.StatusCode)
	response, exported = h.call("GET", "/api/catalog/export", manageKey, "")
	require.Equal(t, "application/yaml", response.Header.Get("Content-Type"))
	require.Contains(t, exported, "gpt-y")
	require.NotContains(t, exported, "sk-first-credential")

	_, body = h.call("POST", "/api/catalog/apply", manageKey, more)
	require.Contains(t, body, `"changes":[]`)
	_, body = h.call("POST", "/api/catalog/apply?prune=1", manageKey, `models: [{id: gpt-x, provider: one}]`)
	require.Contains(t, body, `"action":"delete"`)
}

func TestABadCatalogIsRefusedWithEveryPathAndLine(t *testing.T) {
	h := newHouse(t)
	_, before := h.call("GET", "/api/catalog/export", manageKey, "")

	response, body := h.call("POST", "/api/catalog/apply", manageKey, "models:\n  - {id: new, provider: one}\n  - {id: gpt-z, provider: nowhere}\n")
	require.Equal(t, 400, response.StatusCode)
	refused := h.failure(body)
	require.Equal(t, models.CodeInvalidRequest, refused.Code)
	details, err := json.Marshal(refused.Details)
	require.NoError(t, err)
	require.Contains(t, string(details), `"path":"models[1].provider"`)
	require.Contains(t, string(details), `"line":3`)

	_, after := h.call("GET", "/api/catalog/export", manageKey, "")
	require.Equal(t, before, after)
}

func TestTheServersEnvironmentIsOutOfReachOfAnAPICaller(t *testing.T) {
	h := newHouse(t)
	t.Setenv("SECRET_OF_THE_SERVER", "not-for-api-callers-of-any-kind")
	response, body := h.call("POST", "/api/catalog/apply", manageKey, `connections: [{id: x, provider: one, credential: {apiKey: "${SECRET_OF_THE_SERVER}"}}]`)
	require.Equal(t, 400, response.StatusCode)
	require.Contains(t, body, "SECRET_OF_THE_SERVER")
	require.NotContains(t, body, "not-for-api-callers")
}

func TestACatalogAboveTheLimitIs413AndAFlagThatIsNoneIs400(t *testing.T) {
	h := newHouse(t)
	response, _ := h.call("POST", "/api/catalog/apply", manageKey, strings.Repeat("#", maxCatalogBytes+1))
	require.Equal(t, 413, response.StatusCode)
	response, body := h.call("POST", "/api/catalog/apply?dryRun=perhaps", manageKey, "")
	require.Equal(t, 400, response.StatusCode)
	require.Equal(t, "dryRun", h.failure(body).Param)
}

func TestARequestIsFoundByItsID(t *testing.T) {
	h := newHouse(t)
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.NoError(t, h.store.InsertRequests(t.Context(), []catalog.RequestRecord{{
		ID: "req_1", ClientID: "mine", Key: "key-1", Asked: "best", Served: "one/gpt-x", Connection: "one-1", Attempts: 2,
		Status: 200, Stream: true, InputTokens: 11, OutputTokens: 60, StartedAt: started,
		FirstToken: 120 * time.Millisecond, Total: 2 * time.Second,
	}}))

	response, body := h.call("GET", "/api/requests/req_1", manageKey, "")
	require.Equal(t, 200, response.StatusCode)
	require.JSONEq(t, `{"id":"req_1","clientRequestId":"mine","apiKey":"key-1","modelAsked":"best","modelServed":"one/gpt-x","connection":"one-1",
		"attempts":2,"status":200,"stream":true,"inputTokens":11,"outputTokens":60,"startedAt":"2026-01-02T03:04:05Z",
		"firstTokenMs":120,"totalMs":2000}`, body)

	_, same := h.call("GET", "/api/requests/mine", manageKey, "")
	require.Equal(t, body, same)

	require.NoError(t, h.store.InsertRequests(t.Context(), []catalog.RequestRecord{{ID: "req_0", ClientID: "mine", StartedAt: started.Add(time.Second)}}))
	_, body = h.call("GET", "/api/requests/mine", manageKey, "")
	var several struct {
		Requests []struct{ ID, ClientRequestID string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &several))
	require.Equal(t, []struct{ ID, ClientRequestID string }{{"req_0", "mine"}, {"req_1", "mine"}}, several.Requests, "the newest first")

	response, body = h.call("GET", "/api/requests/req_2", manageKey, "")
	require.Equal(t, 404, response.StatusCode)
	require.Equal(t, models.CodeNotFound, h.failure(body).Code)
}

func TestARefusedCallerIsLoggedByNameWhereItHasOne(t *testing.T) {
	h := newHouse(t)
	log, hook := logtest.NewNullLogger()
	h.service.o.Refusals = access.NewRefusals(log, nil)
	for token, want := range map[string]any{"guessed": nil, clientKey: "api:key app"} {
		response, _ := h.call("POST", "/api/resilience/reset", token, "")
		line := hook.LastEntry()
		require.Equal(t, response.StatusCode, line.Data["status"])
		require.Equal(t, want, line.Data["key"])
		require.Equal(t, "/api/resilience/reset", line.Data["path"])
	}
	require.Len(t, hook.AllEntries(), 2)
	h.call("GET", "/api/catalog/export", manageKey, "")
	require.Len(t, hook.AllEntries(), 2, "what is answered is no refusal")
}

func TestUnknownPathsAndMethodsAreErrorsOfTheSameShape(t *testing.T) {
	h := newHouse(t)
	response, body := h.call("GET", "/api/nothing", adminToken, "")
	require.Equal(t, 404, response.StatusCode)
	require.Equal(t, models.CodeNotFound, h.failure(body).Code)
	response, body = h.call("DELETE", "/api/catalog/export", adminToken, "")
	require.Equal(t, 405, response.StatusCode)
	require.Equal(t, models.CodeMethodNotAllowed, h.failure(body).Code)
	require.Equal(t, "GET", response.Header.Get("Allow"))
}

func TestTheStatusPageShowsNothingThatNeedsAToken(t *testing.T) {
	h := newHouse(t)
	h.fail("one-1", time.Minute)
	ready := errors.New("starting")
	page := h.service.StatusPage(func() error { return ready })
	show := func() string {
		recorder := httptest.NewRecorder()
		page.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, 200, recorder.Code)
		return recorder.Body.String()
	}

	text := show()
	require.Contains(t, text, "v1.2.3")
	require.Contains(t, text, "not now")
	require.Contains(t, text, `href="http://temporal.example/"`)
	require.NotContains(t, text, "one-1")
	require.NotContains(t, text, "<script")
	ready = nil
	require.Contains(t, show(), "<dd>yes</dd>")
}
