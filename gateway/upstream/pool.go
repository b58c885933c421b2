package upstream

import (
	"net"
	"net/http"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/egress"
)

// Bounds of one pool's sockets.
const (
	maxSockets        = 4096             // open at once; an attempt beyond waits inside its header limit
	maxIdleSockets    = 1024             // kept for reuse
	idleSocketLife    = 55 * time.Second // shorter than the 60 s after which common load balancers hang up
	keepAliveInterval = 30 * time.Second
	maxHeaderBytes    = 256 << 10
	readBuffer        = 16 << 10         // what has arrived of a busy stream is read in one go
	pingAfter         = 30 * time.Second // silence on an HTTP/2 socket before it is probed
	pingTimeout       = 15 * time.Second
)

// poolKey says whose sockets a pool holds: those of one provider's connections that leave in
// the same way. It is compared only, never shown: a way may hold a password.
type poolKey struct {
	provider models.ProviderID
	way      egress.Way
}

func keyOf(conn *catalog.ConnectionView) poolKey {
	return poolKey{conn.Provider.ID, egress.Way{Proxy: conn.Proxy.Reveal(), LocalAddress: conn.LocalAddress}}
}

// pool is the sockets of one key.
type pool struct {
	connect   time.Duration
	transport *http.Transport
	once      *http.Transport // opens a socket for every request and keeps none
}

func newPool(way egress.Way, connect time.Duration) (*pool, error) {
	kept, err := newTransport(way, connect)
	if err != nil {
		return nil, err
	}
	once, err := newTransport(way, connect)
	if err != nil {
		return nil, err
	}
	once.DisableKeepAlives = true
	return &pool{connect: connect, transport: kept, once: once}, nil
}

// newTransport tunes a transport for many long streams to one host.
func newTransport(way egress.Way, connect time.Duration) (*http.Transport, error) {
	t := &http.Transport{
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DisableCompression:     true,
		MaxIdleConns:           maxIdleSockets,
		MaxIdleConnsPerHost:    maxIdleSockets,
		MaxConnsPerHost:        maxSockets,
		IdleConnTimeout:        idleSocketLife,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         readBuffer,
	}
	return t, way.Take(t, &net.Dialer{Timeout: connect, KeepAlive: keepAliveInterval})
}

func (p *pool) close() { p.transport.CloseIdleConnections() }
