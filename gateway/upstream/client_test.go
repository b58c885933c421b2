package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connection(baseURL string) *catalog.ConnectionView {
	provider := &catalog.ProviderView{ID: "p", Class: models.ClassAPIKey, BaseURL: baseURL, Timeouts: catalog.Timeouts{Connect: 2 * time.Second}}
	return &catalog.ConnectionView{ID: "c", Provider: provider, APIKey: catalog.NewSecret("sk-secret")}
}

func newClient(t *testing.T) *Client {
	c := New(Options{Version: "1.2.3"})
	t.Cleanup(c.Close)
	return c
}

func TestAProviderSeesItsKeyAndNothingOfTheClient(t *testing.T) {
	const sent = "a body, byte for byte"
	var got *http.Request
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read, _ := io.ReadAll(r.Body)
		got, body = r, string(read)
		fmt.Fprint(w, `{}`)
	}))
	defer server.Close()
	resp, signal := newClient(t).Do(t.Context(), connection(server.URL+"/v1"), []byte(sent), true)
	require.Nil(t, signal)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "/v1/chat/completions", got.URL.Path)
	require.Equal(t, sent, body)
	require.Equal(t, http.Header{
		"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer sk-secret"},
		"Content-Type": {"application/json"}, "Content-Length": {"21"}, "User-Agent": {"omniroute/1.2.3"},
	}, got.Header)
}

func TestANewCredentialIsUsedAtOnce(t *testing.T) {
	var key string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key = r.Header.Get("Authorization") }))
	defer server.Close()
	client := newClient(t)
	for _, secret := range []string{"sk-old", "sk-new"} {
		conn := connection(server.URL)
		conn.APIKey = catalog.NewSecret(secret)
		resp, signal := client.Do(t.Context(), conn, nil, false)
		require.Nil(t, signal)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "Bearer "+secret, key)
	}
	require.Len(t, client.templates, 1)
}

func catalogOf(connections ...*catalog.ConnectionView) *catalog.Snapshot {
	s := &catalog.Snapshot{
		Providers: map[models.ProviderID]*catalog.ProviderView{}, Connections: map[models.ConnectionID]*catalog.ConnectionView{},
	}
	for _, conn := range connections {
		s.Connections[conn.ID], s.Providers[conn.Provider.ID] = conn, conn.Provider
	}
	return s
}

// A key that was taken out of the catalog must not live on in memory, wherever it was taken
// out: the connection, or the provider with all of its connections.
func TestNoCredentialOutlivesItsEntryInTheCatalog(t *testing.T) {
	var seen atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen.Store(r.Header.Get("Authorization")) }))
	defer server.Close()
	client := newClient(t)
	call := func(conn *catalog.ConnectionView) {
		resp, signal := client.Do(t.Context(), conn, nil, false)
		require.Nil(t, signal)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "Bearer "+conn.APIKey.Reveal(), seen.Load())
	}
	gone, stays := connection(server.URL), connection(server.URL)
	stays.ID, stays.Provider.ID, stays.APIKey = "c2", "p2", catalog.NewSecret("sk-stays")
	client.Keep(catalogOf(gone, stays))
	call(gone)
	call(stays)
	require.Len(t, client.templates, 2)
	require.Len(t, client.pools, 2)

	client.Keep(catalogOf(stays))
	require.Len(t, client.templates, 1)
	require.Len(t, client.pools, 1)
	require.Contains(t, client.templates, models.ConnectionID("c2"))
	call(gone) // by a request that planned before the change
	require.Len(t, client.templates, 1)
	require.Len(t, client.pools, 1)

	// The same entry with another key and another limit: nothing of the old one is left, and a
	// late attempt with the old view brings nothing back.
	renewed := connection(server.URL)
	renewed.ID, renewed.Provider.ID, renewed.APIKey = "c2", "p2", catalog.NewSecret("sk-renewed")
	renewed.Provider.Timeouts.Connect++
	client.Keep(catalogOf(renewed))
	require.Empty(t, client.templates)
	call(renewed)
	sockets := client.pools[keyOf(renewed)]
	call(stays)
	require.Same(t, renewed, client.templates["c2"].conn)
	require.Same(t, sockets, client.pools[keyOf(renewed)])
}

func TestARefusalIsReadAsFarAsItIsOfUse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, strings.Repeat("x", 1<<20))
	}))
	defer server.Close()
	resp, signal := newClient(t).Do(t.Context(), connection(server.URL), nil, false)
	require.Nil(t, resp)
	require.Equal(t, failure.KindHTTP, signal.Kind)
	require.Equal(t, 429, signal.Status)
	require.Equal(t, "30", signal.Headers.Get("Retry-After"))
	require.Len(t, signal.Body, maxErrorBody)
}

func TestARefusalThatDribblesDoesNotHoldUpTheFailover(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":`)
		http.NewResponseController(w).Flush() //nolint:errcheck // seen by the assertions
		<-r.Context().Done()
	}))
	defer server.Close()
	started := time.Now()
	_, signal := newClient(t).Do(t.Context(), connection(server.URL), nil, false)
	require.Equal(t, 503, signal.Status)
	require.Equal(t, `{"error":`, string(signal.Body))
	require.InDelta(t, errorBodyWait.Seconds(), time.Since(started).Seconds(), 1)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			elsewhere.Add(1)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	_, signal := newClient(t).Do(t.Context(), connection(server.URL), []byte(`{}`), false)
	require.Equal(t, 307, signal.Status)
	require.Zero(t, elsewhere.Load())
}

// listen accepts sockets and lets handle do with each what it wants.
func listen(t *testing.T, handle func(net.Conn)) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handle(conn)
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String()
}

// request reads one request from a socket.
func request(conn net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // what follows is the test
	}
}

func TestEveryWayNotToAnswerHasItsKind(t *testing.T) {
	silent := listen(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusing := closed.Addr().String()
	require.NoError(t, closed.Close())
	say := func(text string) string {
		return listen(t, func(c net.Conn) { request(c); io.WriteString(c, text); c.Close() }) //nolint:errcheck // what follows is the test
	}
	reset := listen(t, func(c net.Conn) {
		request(c)
		c.(*net.TCPConn).SetLinger(0) //nolint:errcheck // what follows is the test
		c.Close()
	})
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	private := httptest.NewUnstartedServer(http.NotFoundHandler())
	private.Config.ErrorLog = log.New(io.Discard, "", 0) // its failed handshakes are the test
	private.StartTLS()
	defer private.Close()

	cases := map[string]struct {
		baseURL string
		want    failure.Kind
	}{
		"refused":                     {"http://" + refusing, failure.KindConnect},
		"no such host":                {"http://no-such-host.invalid", failure.KindConnect},
		"a TLS handshake that hangs":  {"https://" + silent, failure.KindConnectTimeout},
		"not TLS":                     {"https" + strings.TrimPrefix(plain.URL, "http"), failure.KindConnect},
		"a certificate nobody signed": {private.URL, failure.KindConnect},
		"a reset":                     {"http://" + reset, failure.KindReset},
		"an end without an answer":    {"http://" + say(""), failure.KindReset},
		"half a header":               {"http://" + say("HTTP/1.1 200 OK\r\nContent-"), failure.KindReset},
		"not HTTP":                    {"http://" + say("SSH-2.0-OpenSSH\r\n\r\n"), failure.KindMalformed},
		"endless headers":             {"http://" + say("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2*maxHeaderBytes)), failure.KindMalformed},
		"an unknown encoding":         {"http://" + say("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 0\r\n\r\n"), failure.KindMalformed},
		"no host":                     {"http://", failure.KindOurs},
		"another scheme":              {"ftp://host", failure.KindOurs},
		"not a URL":                   {"http://[", failure.KindOurs},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			resp, signal := newClient(t).Do(t.Context(), connection(c.baseURL), []byte(`{}`), false)
			require.Nil(t, resp)
			require.Equal(t, c.want, signal.Kind)
			require.NotContains(t, string(signal.Body), "sk-secret")
			require.Less(t, time.Since(started), 5*time.Second)
		})
	}
}

func TestAClientThatLeavesIsNotTheUpstreamsFailure(t *testing.T) {
	silent := listen(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	_, signal := newClient(t).Do(ctx, connection("http://"+silent), []byte(`{}`), true)
	require.Equal(t, failure.KindClientGone, signal.Kind)
}

func TestHTTP2IsSpokenWhereTheProviderDoes(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client, conn := newClient(t), connection(server.URL)
	sockets, err := client.pool(conn, true)
	require.NoError(t, err)
	sockets.transport.TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
	resp, signal := client.Do(t.Context(), conn, []byte(`{}`), false)
	require.Nil(t, signal)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0", string(body))
}
