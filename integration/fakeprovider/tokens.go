package fakeprovider

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// tokenMark begins every access token of the endpoint. A key that begins so is good only while
// the endpoint stands by it; other keys are not its business.
const tokenMark = "fake-at-"

// TokenStep is one behaviour of the token endpoint. The zero TokenStep grants: a new access
// token, and a new refresh token in the place of the one that was presented.
type TokenStep struct {
	Times     int    // how many calls it serves; 0 = all that follow
	Error     string // an OAuth error code (RFC 6749 section 5.2) instead of tokens
	Status    int    // of an answer that is none: with Body, and without an OAuth error
	Body      string
	Headers   map[string]string
	Hang      bool // no answer until the caller leaves, Release, or Stop
	LatencyMs int64
	// Keep leaves the refresh token good and out of the answer, as providers without rotation do.
	Keep      bool
	ExpiresIn int // seconds; 0 = 3600, negative = left out
}

// TokenCall is one call of the token endpoint.
type TokenCall struct {
	At       time.Time
	ClientID string
	InHeader bool   // how the client authenticated: by header, or in the form
	Refresh  string // the refresh token that was presented
	Scope    string
	From     string // host that the call came from
	Status   int    // answered; 0 when it was not
}

// TokenURL is the endpoint that a provider of class oauth takes.
func (p *Provider) TokenURL() string {
	return strings.TrimSuffix(p.URL(), "/v1") + "/token"
}

// Grant makes a first pair of tokens, as an account's owner gets them by signing in.
func (p *Provider) Grant() (access, refresh string) { return p.tokens.grant() }

// Expire ends access tokens: a call with one of them is a 401. Without any, all that were given
// so far end.
func (p *Provider) Expire(access ...string) { p.tokens.expire(access) }

// Revoke ends a refresh token: presenting it is an invalid_grant.
func (p *Provider) Revoke(refresh string) { p.tokens.revoke(refresh) }

// Client makes the endpoint know one client only. With inForm, it takes the client's secret in
// the form and not in the header, as some providers do.
func (p *Provider) Client(id, secret string, inForm bool) {
	p.tokens.mu.Lock()
	defer p.tokens.mu.Unlock()
	p.tokens.client = &tokenClient{id, secret, inForm}
}

// OnToken replaces what the calls of the token endpoint meet, step after step, and then grants.
func (p *Provider) OnToken(steps ...TokenStep) {
	p.tokens.mu.Lock()
	defer p.tokens.mu.Unlock()
	p.tokens.steps, p.tokens.served = steps, 0
}

// TokenCalls lists the calls of the token endpoint so far.
func (p *Provider) TokenCalls() []TokenCall {
	p.tokens.mu.Lock()
	defer p.tokens.mu.Unlock()
	return append([]TokenCall{}, p.tokens.calls...)
}

// tokens is what the endpoint stands by.
type tokens struct {
	mu      sync.Mutex
	client  *tokenClient // nil = any
	access  map[string]bool
	refresh map[string]bool
	issued  int
	steps   []TokenStep
	served  int // calls of the first step
	calls   []TokenCall
}

type tokenClient struct {
	id, secret string
	inForm     bool
}

// maxTokenCalls bounds what is remembered of calls.
const maxTokenCalls = 10_000

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	id, secret, inHeader := r.BasicAuth()
	if err := r.ParseForm(); err != nil {
		refuseToken(w, http.StatusBadRequest, "invalid_request")
		return
	}
	if !inHeader {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	released := p.holds.wait() // before the list of calls tells a test that it may release
	step, done := p.tokens.begin(TokenCall{
		At: time.Now(), ClientID: id, InHeader: inHeader, From: host,
		Refresh: r.PostForm.Get("refresh_token"), Scope: r.PostForm.Get("scope"),
	})
	a := answer{provider: p, r: r, w: w}
	if a.pause(step.LatencyMs) != nil || step.Hang && a.waitFor(released) != nil {
		return
	}
	status := p.answerToken(w, r, step, tokenClient{id, secret, !inHeader})
	done(status)
}

// answerToken answers by the step, the client and the grant, and says with which status.
func (p *Provider) answerToken(w http.ResponseWriter, r *http.Request, step TokenStep, client tokenClient) int {
	for name, value := range step.Headers {
		w.Header().Set(name, value)
	}
	switch {
	case step.Error != "":
		return refuseToken(w, step.Status, step.Error)
	case step.Status != 0:
		w.WriteHeader(step.Status)
		_, _ = w.Write([]byte(step.Body))
		return step.Status
	case !p.tokens.knows(client):
		return refuseToken(w, http.StatusUnauthorized, "invalid_client")
	case r.PostForm.Get("grant_type") != "refresh_token":
		return refuseToken(w, http.StatusBadRequest, "unsupported_grant_type")
	}
	access, refresh, ok := p.tokens.exchange(r.PostForm.Get("refresh_token"), step.Keep)
	if !ok {
		return refuseToken(w, http.StatusBadRequest, "invalid_grant")
	}
	granted := map[string]any{"access_token": access, "token_type": "Bearer"}
	if refresh != "" {
		granted["refresh_token"] = refresh
	}
	if step.ExpiresIn == 0 {
		step.ExpiresIn = 3600
	}
	if step.ExpiresIn > 0 {
		granted["expires_in"] = step.ExpiresIn
	}
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, granted)
	return http.StatusOK
}

// refuseToken answers with an OAuth error; a description that quotes what was sent is what some
// providers give.
func refuseToken(w http.ResponseWriter, status int, code string) int {
	if status == 0 {
		status = http.StatusBadRequest
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"error":%q,"error_description":"The scripted token endpoint refuses."}`, code)
	return status
}

// begin notes a call and says what it meets; done notes how it was answered.
func (t *tokens) begin(call TokenCall) (step TokenStep, done func(status int)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.steps) > 0 {
		step = t.steps[0]
		if t.served++; step.Times > 0 && t.served >= step.Times {
			t.steps, t.served = t.steps[1:], 0
		}
	}
	at := len(t.calls)
	if at < maxTokenCalls {
		t.calls = append(t.calls, call)
	}
	return step, func(status int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at < len(t.calls) {
			t.calls[at].Status = status
		}
	}
}

func (t *tokens) knows(c tokenClient) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.client == nil || c.id == t.client.id && c.secret == t.client.secret && (!t.client.inForm || c.inForm)
}

func (t *tokens) grant() (access, refresh string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.issue(true)
}

// issue makes new tokens; the caller holds the lock.
func (t *tokens) issue(both bool) (access, refresh string) {
	if t.access == nil {
		t.access, t.refresh = map[string]bool{}, map[string]bool{}
	}
	t.issued++
	access = fmt.Sprintf("%s%d-%s", tokenMark, t.issued, strings.Repeat("a", 20))
	t.access[access] = true
	if both {
		refresh = fmt.Sprintf("fake-rt-%d-%s", t.issued, strings.Repeat("r", 20))
		t.refresh[refresh] = true
	}
	return access, refresh
}

// exchange uses a refresh token up, unless it is kept.
func (t *tokens) exchange(presented string, keep bool) (access, refresh string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.refresh[presented] {
		return "", "", false
	}
	if !keep {
		delete(t.refresh, presented)
	}
	access, refresh = t.issue(!keep)
	return access, refresh, true
}

func (t *tokens) expire(access []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(access) == 0 {
		clear(t.access)
	}
	for _, token := range access {
		delete(t.access, token)
	}
}

func (t *tokens) revoke(refresh string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.refresh, refresh)
}

// refuses reports whether a key is an access token that the endpoint does not stand by.
func (t *tokens) refuses(key string) bool {
	if !strings.HasPrefix(key, tokenMark) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.access[key]
}
