package ingress_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/access"
	"omniroute/gateway/ingress"
	"omniroute/gateway/relay"
	"omniroute/gateway/upstream"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	goodKey   = "omr_good"
	narrowKey = "omr_narrow"
	staleKey  = "omr_stale"
	adminKey  = "omr_admin"
	maxBody   = 100_000
)

// edge is the HTTP edge on a real socket, in front of an upstream that always answers.
type edge struct {
	url      string
	client   *http.Client
	calls    atomic.Int32
	ready    error
	registry *prometheus.Registry
	log      *logtest.Hook
	snapshot *catalog.Snapshot
	admin    http.HandlerFunc
	ledger   ledger
}

func newEdge(t *testing.T) *edge {
	e := &edge{registry: prometheus.NewRegistry()}
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.calls.Add(1)
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hel\"}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
			return
		}
		fmt.Fprint(w, `{"id":"x","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`)
	}))
	t.Cleanup(provider.Close)
	e.snapshot = snapshot(provider.URL)
	h := health{e.snapshot}
	sockets := upstream.New(upstream.Options{})
	t.Cleanup(sockets.Close)
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	e.log = hook
	server := httptest.NewServer(ingress.New(ingress.Options{
		Relay: relay.New(relay.Options{
			Health: h, Upstream: sockets, Ledger: &e.ledger, Log: logrus.NewEntry(logger), Registerer: e.registry,
		}),
		Health: h, HashKey: hashKey, Ledger: &e.ledger, Refusals: access.NewRefusals(logger, e.registry), Log: logrus.NewEntry(logger),
		Admin:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.admin(w, r) }),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics") }),
		Status:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "status") }),
		Ready:   func() error { return e.ready },
	}))
	t.Cleanup(server.Close)
	e.client = &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	t.Cleanup(e.client.CloseIdleConnections)
	e.url = server.URL
	return e
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (e *edge) do(t *testing.T, method, path, body string, header ...string) answer {
	req, err := http.NewRequest(method, e.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := e.client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	read, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return answer{resp.StatusCode, resp.Header, string(read)}
}

// code is the error's code, from an answer in OpenAI's envelope.
func (a answer) code(t *testing.T) string {
	var envelope struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &envelope), a.body)
	require.NotEmpty(t, envelope.Error.Message)
	require.NotEmpty(t, envelope.Error.Type)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	return envelope.Error.Code
}

const chat = `{"model":"p/m","messages":[{"role":"user","content":"hi"}]}`

func TestAKeyIsNeededAndEitherHeaderCarriesIt(t *testing.T) {
	e := newEdge(t)
	for _, header := range [][]string{{"Authorization", "Bearer " + goodKey}, {"authorization", "bearer  " + goodKey}, {"x-api-key", goodKey}} {
		require.Equal(t, 200, e.do(t, "POST", "/v1/chat/completions", chat, header...).status)
	}
	refused := map[string]struct {
		header []string
		status int
		code   string
	}{
		"no key":          {nil, 401, "invalid_api_key"},
		"an unknown key":  {[]string{"Authorization", "Bearer nope"}, 401, "invalid_api_key"},
		"another scheme":  {[]string{"Authorization", "Basic " + goodKey}, 401, "invalid_api_key"},
		"an empty bearer": {[]string{"Authorization", "Bearer "}, 401, "invalid_api_key"},
		"an expired key":  {[]string{"x-api-key", staleKey}, 401, "invalid_api_key"},
		"another scope":   {[]string{"x-api-key", adminKey}, 403, "insufficient_scope"},
	}
	before := e.calls.Load()
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/chat/completions", "/v1/models", "/v1/models/p/m"} {
				method := map[bool]string{true: "POST", false: "GET"}[strings.HasSuffix(path, "completions")]
				got := e.do(t, method, path, chat, c.header...)
				require.Equal(t, c.status, got.status)
				require.Equal(t, c.code, got.code(t))
				require.Equal(t, c.status == 401, got.header.Get("WWW-Authenticate") != "")
			}
		})
	}
	require.Equal(t, before, e.calls.Load())
}

func TestABadRequestNeverReachesAnUpstream(t *testing.T) {
	e := newEdge(t)
	got := e.do(t, "POST", "/v1/chat/completions", `{"model":"p/m","model":"p/m","messages":[]}`, "x-api-key", goodKey)
	require.Equal(t, 400, got.status)
	require.Equal(t, "invalid_request", got.code(t))
	require.Contains(t, got.body, `"param":"model"`)
	require.Equal(t, 400, e.do(t, "POST", "/v1/chat/completions", `{"model":`, "x-api-key", goodKey).status)
	latin := e.do(t, "POST", "/v1/chat/completions", "{\"model\":\"p/m\",\"messages\":[{\"role\":\"user\",\"content\":\"caf\xe9\"}]}", "x-api-key", goodKey)
	require.Equal(t, 400, latin.status)
	require.Equal(t, "invalid_json", latin.code(t))
	require.Contains(t, latin.body, "offset 56")
	require.Zero(t, e.calls.Load())
}

func TestModelsAreListedAsFarAsTheKeyReaches(t *testing.T) {
	e := newEdge(t)
	list := func(key string) []string {
		got := e.do(t, "GET", "/v1/models", "", "x-api-key", key)
		require.Equal(t, 200, got.status)
		var parsed struct {
			Object string
			Data   []struct {
				ID, Object string
				Created    int64
				OwnedBy    string `json:"owned_by"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(got.body), &parsed))
		require.Equal(t, "list", parsed.Object)
		var ids []string
		for _, m := range parsed.Data {
			require.Equal(t, "model", m.Object)
			require.NotEmpty(t, m.OwnedBy)
			ids = append(ids, m.ID)
		}
		return ids
	}
	require.Equal(t, []string{"best", "p/m", "p/org/deep:free"}, list(goodKey))
	require.Equal(t, []string{"p/m"}, list(narrowKey))

	for _, path := range []string{"p/m", "p%2Fm", "m", "p/org/deep:free", "p%2Forg%2Fdeep%3Afree", "best"} {
		require.Equal(t, 200, e.do(t, "GET", "/v1/models/"+path, "", "x-api-key", goodKey).status, path)
	}
	missing := e.do(t, "GET", "/v1/models/"+url.PathEscape("p/n"), "", "x-api-key", goodKey)
	require.Equal(t, 404, missing.status)
	require.Equal(t, "model_not_found", missing.code(t))
	require.Contains(t, missing.body, "p/m", "a near match")
	hidden := e.do(t, "GET", "/v1/models/best", "", "x-api-key", narrowKey)
	require.Equal(t, 404, hidden.status)
}

func TestAnUnknownModelIsAnsweredWithNearMatchesTheKeyMaySee(t *testing.T) {
	e := newEdge(t)
	ask := strings.Replace(chat, "p/m", "bets", 1)
	require.Contains(t, e.do(t, "POST", "/v1/chat/completions", ask, "x-api-key", goodKey).body, "best")
	narrow := e.do(t, "POST", "/v1/chat/completions", ask, "x-api-key", narrowKey)
	require.Equal(t, 404, narrow.status)
	require.NotContains(t, narrow.body, "best")
	require.Equal(t, 403, e.do(t, "POST", "/v1/chat/completions", strings.Replace(chat, "p/m", "best", 1), "x-api-key", narrowKey).status)
}

func TestWhatDoesNotExistIsAnsweredInTheSameEnvelope(t *testing.T) {
	e := newEdge(t)
	require.Equal(t, "not_found", e.do(t, "GET", "/v2/nothing", "").code(t))
	got := e.do(t, "GET", "/v1/chat/completions", "")
	require.Equal(t, 405, got.status)
	require.Equal(t, "method_not_allowed", got.code(t))
	require.Equal(t, "POST", got.header.Get("Allow"))
	require.Equal(t, "GET, HEAD", e.do(t, "DELETE", "/healthz", "").header.Get("Allow"))
}

// A redirected POST arrives as a GET, or not at all.
func TestAPathThatIsNotCleanIsNotRedirected(t *testing.T) {
	e := newEdge(t)
	for path, hint := range map[string]bool{
		"//v1/chat/completions": true, "/v1//chat/completions": true, "//api/resilience/reset": true, "//": true,
		"/v1/../v1/chat/completions": false, "/./v1/chat/completions": false, "/v1/chat/completions/": false,
	} {
		got := e.do(t, "POST", path, chat, "x-api-key", goodKey)
		require.Equal(t, 404, got.status, path)
		require.Equal(t, "not_found", got.code(t), path)
		require.Contains(t, got.body, path)
		require.Equal(t, hint, strings.Contains(got.body, "a slash too many"), path)
	}
	require.Zero(t, e.calls.Load())
	require.Equal(t, "model_not_found", e.do(t, "GET", "/v1/models/../../metrics", "", "x-api-key", goodKey).code(t), "a model's name, nothing else")
}

func TestThePagesForWhoeverRunsTheProcess(t *testing.T) {
	e := newEdge(t)
	e.admin = func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "admin "+r.Method+" "+r.URL.Path) }
	require.Equal(t, 200, e.do(t, "GET", "/healthz", "").status)
	require.Equal(t, 200, e.do(t, "GET", "/readyz", "").status)
	require.Equal(t, "metrics", e.do(t, "GET", "/metrics", "").body)
	require.Equal(t, "status", e.do(t, "GET", "/", "").body)
	require.Equal(t, "admin POST /api/resilience/reset", e.do(t, "POST", "/api/resilience/reset", "").body)
	e.ready = errors.New("the secret reason")
	got := e.do(t, "GET", "/readyz", "")
	require.Equal(t, 503, got.status)
	require.NotContains(t, got.body, "secret")
	require.Equal(t, 200, e.do(t, "GET", "/healthz", "").status)
}

// Clients repeat their ids: in retries, by defaults, by mistake. Each request is booked all the
// same, under an id of ours.
func TestARepeatedIdOfAClientIsEchoedAndEveryRequestBooked(t *testing.T) {
	e := newEdge(t)
	for range 2 {
		got := e.do(t, "POST", "/v1/chat/completions", chat, "x-api-key", goodKey, "x-request-id", "mine-1")
		require.Equal(t, "mine-1", got.header.Get("x-request-id"))
	}
	e.do(t, "POST", "/v1/chat/completions", chat, "x-api-key", goodKey)
	rows := e.ledger.take()
	require.Len(t, rows, 3)
	ids := map[models.RequestID]bool{}
	for _, row := range rows {
		require.Regexp(t, `^req_[0-9a-f]{32}$`, string(row.ID))
		ids[row.ID] = true
	}
	require.Len(t, ids, 3)
	require.Equal(t, []string{"mine-1", "mine-1", ""}, []string{rows[0].ClientID, rows[1].ClientID, rows[2].ClientID})
}

func TestEveryAnswerCarriesAnIdAndOnlyAHarmlessOneIsEchoed(t *testing.T) {
	e := newEdge(t)
	seen := map[string]bool{}
	for _, brought := range []string{"", "with space", strings.Repeat("x", 129), "ümlaut"} {
		id := e.do(t, "GET", "/healthz", "", "x-request-id", brought).header.Get("x-request-id")
		require.Regexp(t, `^req_[0-9a-f]{32}$`, id)
		require.False(t, seen[id])
		seen[id] = true
	}
}

func TestAPanicIsAnsweredWithoutWhatItSaid(t *testing.T) {
	e := newEdge(t)
	e.admin = func(http.ResponseWriter, *http.Request) { panic("the secret inside") }
	got := e.do(t, "GET", "/api/x", "")
	require.Equal(t, 500, got.status)
	require.Equal(t, "internal_error", got.code(t))
	require.NotContains(t, got.body, "secret")

	e.admin = func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half")
		http.NewResponseController(w).Flush() //nolint:errcheck // seen by the assertions
		panic("in the middle")
	}
	resp, err := e.client.Get(e.url + "/api/x")
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "half an answer must not look like a whole one")
}

func TestNoKeyIsEverLogged(t *testing.T) {
	e := newEdge(t)
	e.do(t, "POST", "/v1/chat/completions", chat, "x-api-key", "omr_guessed")
	e.do(t, "POST", "/v1/chat/completions", chat, "x-api-key", goodKey)
	finished := 0
	for _, entry := range e.log.AllEntries() {
		line, err := entry.String()
		require.NoError(t, err)
		require.NotContains(t, line, "omr_")
		require.NotContains(t, line, "sk-")
		if entry.Message == "request finished" {
			finished++
			require.Equal(t, 200, entry.Data["status"])
			require.EqualValues(t, "c1", entry.Data["connection"])
		}
	}
	require.Equal(t, 1, finished, "one line per finished request")
}

func TestTheOfficialClientUnderstandsAnswersStreamsAndErrors(t *testing.T) {
	e := newEdge(t)
	client := openai.NewClient(option.WithBaseURL(e.url+"/v1"), option.WithAPIKey(goodKey), option.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{Model: "p/m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}}
	got, err := client.Chat.Completions.New(t.Context(), params)
	require.NoError(t, err)
	require.Equal(t, "hello", got.Choices[0].Message.Content)

	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	text := ""
	for stream.Next() {
		text += stream.Current().Choices[0].Delta.Content
	}
	require.NoError(t, stream.Err())
	require.NoError(t, stream.Close())
	require.Equal(t, "hello", text)

	params.Model = "nope"
	_, err = client.Chat.Completions.New(t.Context(), params)
	var problem *openai.Error
	require.ErrorAs(t, err, &problem)
	require.Equal(t, 404, problem.StatusCode)
	require.Equal(t, "model_not_found", problem.Code)
	require.Equal(t, "model", problem.Param)
}

// Stand-ins.

func hashKey(clear string) (hash [32]byte) {
	copy(hash[:], clear)
	return hash
}

func snapshot(baseURL string) *catalog.Snapshot {
	limit := int64(maxBody)
	limits := catalog.Timeouts{Connect: time.Second, Headers: 5 * time.Second, FirstContent: 5 * time.Second, Idle: 5 * time.Second, Total: 10 * time.Second}
	p := &catalog.ProviderView{ID: "p", Class: models.ClassAPIKey, BaseURL: baseURL, Timeouts: limits}
	c1 := &catalog.ConnectionView{ID: "c1", Provider: p, APIKey: catalog.NewSecret("sk-upstream")}
	p.Connections = []*catalog.ConnectionView{c1}
	leg := func(model string) catalog.Leg {
		return catalog.Leg{Model: &catalog.ModelView{Ref: models.ModelRef{Provider: "p", Model: model}, CreatedAt: time.Unix(1_700_000_000, 0)}, Connections: p.Connections}
	}
	best := &catalog.ComboView{Name: "best", Strategy: "priority"}
	best.Route = &catalog.Route{Name: "best", Combo: best, Legs: []catalog.Leg{leg("m")}}
	plain := &catalog.Route{Name: "p/m", Legs: []catalog.Leg{leg("m")}}
	inference := map[string]bool{"inference": true}
	return &catalog.Snapshot{
		Settings:    catalog.Settings{Limits: catalog.LimitSettings{MaxBodyBytes: &limit}},
		Providers:   map[models.ProviderID]*catalog.ProviderView{"p": p},
		Connections: map[models.ConnectionID]*catalog.ConnectionView{"c1": c1},
		Routes: map[string]*catalog.Route{
			"p/m": plain, "m": plain, "best": best.Route,
			"p/org/deep:free": {Name: "p/org/deep:free", Legs: []catalog.Leg{leg("org/deep:free")}},
		},
		Names: []string{"best", "p/m", "p/org/deep:free"},
		Keys: map[[32]byte]*catalog.KeyView{
			hashKey(goodKey):   {ID: "k1", Scopes: inference},
			hashKey(narrowKey): {ID: "k2", Scopes: inference, Models: map[string]bool{"p/m": true}},
			hashKey(staleKey):  {ID: "k3", Scopes: inference, ExpiresAt: time.Now().Add(-time.Second)},
			hashKey(adminKey):  {ID: "k4", Scopes: map[string]bool{"manage": true}},
		},
	}
}

type ledger struct {
	mu   sync.Mutex
	rows []catalog.RequestRecord
}

func (l *ledger) Offer(r catalog.RequestRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, r)
}

// take empties the books.
func (l *ledger) take() []catalog.RequestRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	l.rows = nil
	return rows
}

// health admits everything.
type health struct{ snapshot *catalog.Snapshot }

func (h health) Snapshot() *catalog.Snapshot { return h.snapshot }

func (health) Check(*catalog.ConnectionView, models.ModelRef, bool, time.Time) (*routing.Exclusion, routing.Rank) {
	return nil, routing.RankFull
}

func (health) Admit(_ context.Context, conn *catalog.ConnectionView, _ models.ModelRef, _ bool, _ time.Time) (relay.Pass, *routing.Exclusion) {
	return pass{conn}, nil
}

type pass struct{ conn *catalog.ConnectionView }

func (p pass) Connection() *catalog.ConnectionView { return p.conn }
func (pass) Succeeded(time.Time)                   {}
func (pass) Failed(failure.Verdict, time.Time)     {}
func (pass) Abandoned(time.Time)                   {}
func (pass) FirstContent(time.Duration, time.Time) {}
func (pass) Heard(http.Header, time.Time)          {}
func (pass) Used(int64, time.Time)                 {}
