// Package upstream sends one attempt to a provider: it builds the request for a connection,
// keeps one pool of sockets per provider and way out, and turns whatever goes wrong before the
// answer's body into a failure signal.
package upstream

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"sync"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// chatPath is appended to a provider's base URL.
const chatPath = "/chat/completions"

// Options are what a Client is made of.
type Options struct {
	// Version goes into the User-Agent; empty means "dev".
	Version string
	// RoundTripper replaces the network for every connection; nil means sockets.
	RoundTripper http.RoundTripper
}

// Client sends attempts. It is safe for concurrent use. A connection or provider that changed
// is noticed by the identity of its view; what has left the catalog is forgotten with Keep.
type Client struct {
	userAgent string
	fixed     http.RoundTripper

	mu        sync.RWMutex
	current   *catalog.Snapshot // nil until the first Keep: then any view counts as current
	pools     map[poolKey]*pool
	templates map[models.ConnectionID]*template
}

// New makes a Client without any sockets yet.
func New(o Options) *Client {
	version := o.Version
	if version == "" {
		version = "dev"
	}
	return &Client{
		userAgent: "omniroute/" + version,
		fixed:     o.RoundTripper,
		pools:     make(map[poolKey]*pool),
		templates: make(map[models.ConnectionID]*template),
	}
}

// Do sends body, already in the provider's dialect, and returns when the response headers
// arrived. Any answer but a 2xx, and any failure before one, is a signal; its body has then
// been read as far as it is of use. The caller closes the body of a response.
//
// An attempt whose kept socket turns out to have been closed by the server is sent once more,
// on a socket that is certainly fresh, and blames nobody: a server may close an idle socket at
// any time, also while a request is on its way (RFC 9112 9.5). RFC 9112 9.3.1 forbids repeating
// a POST that way unless the client knows that this is safe. It is as safe as what comes
// otherwise: nothing has reached the client, so the request would be sent again in any case, to
// the next target (P8), and a completion changes nothing at the provider. What fails on the
// fresh socket is a failure.
func (c *Client) Do(ctx context.Context, conn *catalog.ConnectionView, body []byte, stream bool) (*http.Response, *failure.Signal) {
	t := c.template(conn)
	if t == nil {
		return nil, &failure.Signal{Kind: failure.KindOurs}
	}
	resp, err := t.send(ctx, body, stream)
	if err != nil {
		return nil, &failure.Signal{Kind: kindOf(ctx, err)}
	}
	if resp.StatusCode == http.StatusProxyAuthRequired && !conn.Proxy.Empty() {
		closeBody(resp.Body)
		return nil, &failure.Signal{Kind: failure.KindConnect} // the proxy's word, not the provider's
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp)
	}
	if err := decode(resp); err != nil {
		closeBody(resp.Body)
		return nil, &failure.Signal{Kind: failure.KindMalformed, Status: resp.StatusCode, Headers: resp.Header}
	}
	return resp, nil
}

// Close shuts the idle sockets of every pool. Attempts in flight end by themselves.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pools {
		p.close()
	}
	clear(c.pools)
	clear(c.templates)
}

// template is everything about a connection's requests that does not change between them:
// the hot path copies it shallowly, the transport only reads its URL and headers.
type template struct {
	conn      *catalog.ConnectionView
	transport http.RoundTripper
	once      http.RoundTripper // never on a kept socket; nil when there are no sockets of ours
	plain     *http.Request
	streaming *http.Request
}

// template finds or rebuilds the template of a connection; nil when its provider's base URL or
// its proxy is none, which no catalog file gets past.
func (c *Client) template(conn *catalog.ConnectionView) *template {
	c.mu.RLock()
	t := c.templates[conn.ID]
	c.mu.RUnlock()
	if t != nil && t.conn == conn {
		return t
	}

	endpoint, err := url.Parse(conn.Provider.BaseURL + chatPath)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t = &template{
		conn:      conn,
		transport: c.fixed,
		plain:     c.newRequest(endpoint, conn, "application/json"),
		streaming: c.newRequest(endpoint, conn, "text/event-stream"),
	}
	remembered := c.current == nil || c.current.Connections[conn.ID] == conn
	if t.transport == nil {
		p, err := c.pool(conn, remembered)
		if err != nil {
			return nil
		}
		t.transport, t.once = p.transport, p.once
	}
	if remembered {
		c.templates[conn.ID] = t
	}
	return t
}

// Keep forgets what the catalog no longer has: no credential is held for longer than its
// entry, and no sockets to a provider that nobody calls. Attempts in flight run to their end.
func (c *Client) Keep(snapshot *catalog.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = snapshot
	for id, t := range c.templates {
		if snapshot.Connections[id] != t.conn {
			delete(c.templates, id)
		}
	}
	used := make(map[poolKey]bool, len(c.pools))
	for _, conn := range snapshot.Connections {
		used[keyOf(conn)] = true
	}
	for key, p := range c.pools {
		if !used[key] {
			p.close()
			delete(c.pools, key)
		}
	}
}

// newRequest builds the head of a connection's requests. No header of the client is passed
// on: what a provider sees is this list. Accept-Encoding is set so that the transport asks
// for no compression, whose buffering would delay tokens.
func (c *Client) newRequest(endpoint *url.URL, conn *catalog.ConnectionView, accept string) *http.Request {
	header := http.Header{
		"Content-Type":    {"application/json"},
		"Accept":          {accept},
		"Accept-Encoding": {"identity"},
		"User-Agent":      {c.userAgent},
	}
	if !conn.APIKey.Empty() {
		header["Authorization"] = []string{"Bearer " + conn.APIKey.Reveal()}
	}
	return &http.Request{
		Method: http.MethodPost, URL: endpoint, Host: endpoint.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// send makes the round trip, a second one if the first met a stale socket.
func (t *template) send(ctx context.Context, body []byte, stream bool) (*http.Response, error) {
	if t.once == nil {
		return t.transport.RoundTrip(t.request(ctx, body, stream))
	}
	seen, w := watched(ctx)
	resp, err := t.transport.RoundTrip(t.request(seen, body, stream))
	switch {
	case err == nil:
		w.release()
	case w.stale(ctx, err):
		return t.once.RoundTrip(t.request(ctx, body, stream))
	}
	return resp, err
}

// request derives one request. GetBody lets the transport send it again on a fresh socket
// when the old one turns out closed, or the server's GOAWAY says that it was not processed:
// in both cases the provider has not seen it.
func (t *template) request(ctx context.Context, body []byte, stream bool) *http.Request {
	base := t.plain
	if stream {
		base = t.streaming
	}
	req := base.WithContext(ctx)
	req.ContentLength = int64(len(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return req
}

// pool finds or replaces the sockets that a connection uses; the caller holds the lock. A
// provider whose connect limit changed gets new sockets, and attempts on the old ones run to
// their end. A late attempt through a view that is not remembered changes nothing: it uses what
// is there, or sockets of its own.
func (c *Client) pool(conn *catalog.ConnectionView, remembered bool) (*pool, error) {
	key := keyOf(conn)
	p := c.pools[key]
	if p != nil && (!remembered || p.connect == conn.Provider.Timeouts.Connect) {
		return p, nil
	}
	fresh, err := newPool(key.way, conn.Provider.Timeouts.Connect)
	if err != nil {
		return nil, err
	}
	if !remembered {
		fresh.transport = fresh.once
		return fresh, nil
	}
	if p != nil {
		p.close()
	}
	c.pools[key] = fresh
	return fresh, nil
}

// closeBody gives a body up. What its Close reports is of no use to anyone by then.
func closeBody(body io.Closer) {
	_ = body.Close()
}
