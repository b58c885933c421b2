package upstream

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models/catalog"
	"omniroute/models/failure"
)

// through is a connection whose requests leave by a proxy.
func through(proxy, baseURL string) *catalog.ConnectionView {
	conn := connection(baseURL)
	conn.Proxy = catalog.NewSecret(proxy)
	return conn
}

func answers(t *testing.T, c *Client, conn *catalog.ConnectionView) string {
	t.Helper()
	resp, signal := c.Do(t.Context(), conn, nil, false)
	require.Nil(t, signal)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(body)
}

// provider answers with the address that the request seems to come from.
func provider(t *testing.T, secure bool) *httptest.Server {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprint(w, host)
	})
	server := httptest.NewUnstartedServer(handler)
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// trust makes a client accept the certificates of test servers.
func trust(t *testing.T, c *Client, conn *catalog.ConnectionView) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := c.pool(conn, true)
	require.NoError(t, err)
	for _, transport := range []*http.Transport{p.transport, p.once} {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // certificates of the test itself
	}
}

// proxy is an HTTP proxy that asks for user and password, and notes what it was asked for.
type proxy struct {
	*httptest.Server
	mu     sync.Mutex
	routes []string // "CONNECT host:port" or "GET http://..."
	refuse int      // status it answers with, when not 0
	tunnel sync.WaitGroup
}

func startProxy(t *testing.T, secure bool) *proxy {
	p := &proxy{}
	p.Server = httptest.NewUnstartedServer(p)
	if secure {
		p.StartTLS()
	} else {
		p.Start()
	}
	t.Cleanup(func() {
		p.Close()
		p.tunnel.Wait()
	})
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.routes = append(p.routes, r.Method+" "+r.RequestURI)
	refuse := p.refuse
	p.mu.Unlock()
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("user:pass word")) {
		refuse = http.StatusProxyAuthRequired
	}
	switch {
	case refuse != 0:
		w.WriteHeader(refuse)
	case r.Method == http.MethodConnect:
		target, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		p.tunnel.Go(func() { join(client, buffered, target) })
	default:
		r.RequestURI = ""
		r.Header.Del("Proxy-Authorization")
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close() //nolint:errcheck // a test's proxy
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}
}

func (p *proxy) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.routes...)
}

func (p *proxy) as(user string) string {
	u, _ := url.Parse(p.URL)
	u.User = url.UserPassword(user, "pass word")
	return u.String()
}

// join copies both ways until both sides have ended.
func join(client net.Conn, from io.Reader, target net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(target, from)
		_ = target.Close()
	})
	_, _ = io.Copy(client, target)
	_ = client.Close()
	both.Wait()
}

func TestAConnectionsRequestsLeaveThroughItsHTTPProxy(t *testing.T) {
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, secureProxy := range []bool{false, true} {
		proxied := startProxy(t, secureProxy)
		client := newClient(t)
		for _, secure := range []bool{false, true} {
			upstream := provider(t, secure)
			conn := through(proxied.as("user"), upstream.URL)
			client.Close() // another provider of the same id
			trust(t, client, conn)

			require.Equal(t, "127.0.0.1", answers(t, client, conn))

			route := "POST " + upstream.URL + "/chat/completions"
			if secure {
				route = "CONNECT " + upstream.Listener.Addr().String()
			}
			asked := proxied.asked()
			require.Equal(t, route, asked[len(asked)-1])
		}
	}
}

func TestAConnectionsRequestsLeaveThroughItsSOCKSProxy(t *testing.T) {
	upstream := provider(t, true)
	address, targets := startSOCKS(t)
	conn := through("socks5://user:pass%20word@"+address, upstream.URL)
	client := newClient(t)
	trust(t, client, conn)

	require.Equal(t, "127.0.0.1", answers(t, client, conn))

	require.Equal(t, upstream.Listener.Addr().String(), <-targets)
}

func TestARequestLeavesFromItsConnectionsAddress(t *testing.T) {
	upstream := provider(t, false)
	client := newClient(t)
	for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
		conn := connection(upstream.URL)
		conn.LocalAddress = address

		require.Equal(t, address, answers(t, client, conn))
	}
	require.Len(t, client.pools, 2, "a socket is kept for those who leave by it")
}

func TestConnectionsThatLeaveTheSameWayShareTheirSockets(t *testing.T) {
	upstream := provider(t, false)
	client := newClient(t)
	one, two, other := connection(upstream.URL), connection(upstream.URL), connection(upstream.URL)
	two.ID, two.LocalAddress = "c2", "127.0.0.2"
	one.LocalAddress = "127.0.0.2"
	other.ID = "c3"
	client.Keep(catalogOf(one, two, other))
	for _, conn := range []*catalog.ConnectionView{one, two, other} {
		answers(t, client, conn)
	}
	require.Len(t, client.pools, 2)

	client.Keep(catalogOf(other))

	require.Len(t, client.pools, 1)
	require.Contains(t, client.pools, keyOf(other))
}

// What goes wrong on the way to the provider is told as such, not as an answer of it.
func TestAProxyThatRefusesIsAProviderThatCannotBeReached(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	proxied := startProxy(t, false)
	socks, _ := startSOCKS(t)
	plain, secure := provider(t, false), provider(t, true)
	for name, conn := range map[string]*catalog.ConnectionView{
		"wrong user, tunnel":  through(proxied.as("nobody"), secure.URL),
		"wrong user, plain":   through(proxied.as("nobody"), plain.URL),
		"target not there":    through(proxied.as("user"), "https://"+gone.Addr().String()),
		"proxy not there":     through("http://"+gone.Addr().String(), plain.URL),
		"SOCKS not there":     through("socks5://"+gone.Addr().String(), plain.URL),
		"SOCKS wrong user":    through("socks5://nobody:x@"+socks, plain.URL),
		"SOCKS no such place": through("socks5://user:pass%20word@"+socks, "http://"+gone.Addr().String()),
	} {
		resp, signal := newClient(t).Do(t.Context(), conn, nil, false)

		require.Nil(t, resp, name)
		require.Equal(t, failure.KindConnect, signal.Kind, name)
	}

	_, signal := newClient(t).Do(t.Context(), through("not a URL", plain.URL), nil, false)
	require.Equal(t, failure.KindOurs, signal.Kind)
}

func TestAWayOutDoesNotShowItsPassword(t *testing.T) {
	key := keyOf(through("http://user:hunter2@proxy:1", "http://x"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(verb, key.way), "hunter2", verb)
	}
}

// startSOCKS serves SOCKS 5 with user and password (RFC 1928, RFC 1929) and tells each target.
func startSOCKS(t *testing.T) (address string, targets <-chan string) {
	asked := make(chan string, 16)
	var sessions sync.WaitGroup
	address = listen(t, func(c net.Conn) {
		sessions.Go(func() {
			defer c.Close() //nolint:errcheck // a test's proxy
			if target := socksTarget(c); target != "" {
				asked <- target
				if out, err := net.Dial("tcp", target); err == nil {
					_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
					join(c, c, out)
					return
				}
			}
			_, _ = c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0}) // connection refused
		})
	})
	t.Cleanup(sessions.Wait)
	return address, asked
}

// socksTarget reads the greeting, the user and the request; empty when they will not do.
func socksTarget(c net.Conn) string {
	field := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(c, b); err != nil {
			return make([]byte, n)
		}
		return b
	}
	field(int(field(2)[1]))      // version, methods
	_, _ = c.Write([]byte{5, 2}) // user and password
	user := field(int(field(2)[1]))
	password := field(int(field(1)[0]))
	if string(user) != "user" || string(password) != "pass word" {
		_, _ = c.Write([]byte{1, 1})
		return ""
	}
	_, _ = c.Write([]byte{1, 0})
	var host string
	switch head := field(4); head[3] {
	case 1:
		host = net.IP(field(4)).String()
	case 3:
		host = string(field(int(field(1)[0])))
	}
	return net.JoinHostPort(host, fmt.Sprint(binary.BigEndian.Uint16(field(2))))
}
