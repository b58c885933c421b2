// Package egress is how the requests of a connection leave this machine: through its proxy,
// from its local address, or as the machine chooses. The gateway's sockets and a worker's
// refreshes leave in the same way, so that a provider sees one address.
package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Way is how requests leave. The zero value is the machine's choice, with the proxy that the
// usual environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY) names.
type Way struct {
	Proxy        string // URL: http, https or socks5; it may hold a password
	LocalAddress string // IP address
}

// String is the way without the proxy's user and password.
func (w Way) String() string {
	if w.Proxy == "" {
		return w.LocalAddress
	}
	proxy, err := url.Parse(w.Proxy)
	if err != nil {
		return "a proxy"
	}
	return "proxy " + proxy.Host
}

// GoString is String for %#v.
func (w Way) GoString() string { return w.String() }

var (
	errProxy   = errors.New("the proxy's URL is not usable")
	errAddress = errors.New("the local address is not usable")
)

// Take makes a transport send its requests this way: it sets how the transport dials and which
// proxy it uses. The dialer is the transport's own from then on.
func (w Way) Take(t *http.Transport, dialer *net.Dialer) error {
	if w.LocalAddress != "" {
		address, err := netip.ParseAddr(w.LocalAddress)
		if err != nil {
			return errAddress
		}
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0))
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, &Error{err}
		}
		return conn, nil
	}
	t.Proxy = http.ProxyFromEnvironment
	if w.Proxy != "" {
		proxy, err := url.Parse(w.Proxy)
		if err != nil || proxy.Host == "" {
			return errProxy
		}
		t.Proxy = http.ProxyURL(proxy)
	}
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
		if answer.StatusCode != http.StatusOK {
			return &Error{errors.New("the proxy answers " + answer.Status)}
		}
		return nil
	}
	return nil
}

// Error is a failure before there was a way to the other side: no request was sent.
type Error struct{ err error }

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Timeout lets what wraps it tell that time ran out.
func (e *Error) Timeout() bool {
	var inner net.Error
	return errors.As(e.err, &inner) && inner.Timeout()
}

// NotSent reports whether a round trip failed before its request was sent, on the way there.
func NotSent(err error) bool {
	var own *Error
	if errors.As(err, &own) {
		return true
	}
	// net/http speaks to proxies by itself; these are its words for what went wrong there.
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "proxyconnect" || strings.HasPrefix(op.Op, "socks"))
}
