// Package fakeprovider is a scriptable upstream that speaks OpenAI's chat API over HTTP/1.1
// and, with TLS, HTTP/2. It plays a script per (key, model): healthy answers, refusals,
// hangs, cut streams and every shape of event stream a client must survive. It logs each
// attempt, so that a test can ask what really reached the upstream. Beside it is an OAuth token
// endpoint, whose access tokens are keys that can expire. It also serves the demo.
package fakeprovider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Options say how a provider listens and how much it remembers.
type Options struct {
	Addr string // where to listen; default a free loopback port
	TLS  bool   // serve HTTPS with HTTP/2 under a certificate of its own
	// LogLimit is how many attempts are remembered, the oldest going first; default 10,000.
	LogLimit int
	// BodyLimit is how many bytes of each request body are remembered; default 16 MiB.
	BodyLimit int
}

// Provider is a running fake upstream.
type Provider struct {
	options  Options
	listener net.Listener
	server   *http.Server
	cert     *certificate // nil without TLS
	stopping chan struct{}
	served   chan struct{}
	stop     sync.Once

	scripts  scripts
	log      attemptLog
	counters counters
	holds    holds
	tokens   tokens
}

// Start listens and serves until Stop.
func Start(o Options) (*Provider, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.LogLimit <= 0 {
		o.LogLimit = 10_000
	}
	if o.BodyLimit <= 0 {
		o.BodyLimit = 16 << 20
	}
	listener, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		options:  o,
		listener: listener,
		stopping: make(chan struct{}),
		served:   make(chan struct{}),
	}
	p.log.limit = o.LogLimit
	p.holds.init()
	p.server = &http.Server{
		Handler:           p.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
		ErrorLog: discardLog,
	}
	if o.TLS {
		if p.cert, err = newCertificate(); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		p.server.TLSConfig = &tls.Config{
			Certificates: []tls.Certificate{p.cert.pair},
			NextProtos:   []string{"h2", "http/1.1"},
			MinVersion:   tls.VersionTLS12,
		}
	}
	go p.serve()
	return p, nil
}

func (p *Provider) serve() {
	defer close(p.served)
	if p.cert != nil {
		_ = p.server.ServeTLS(p.listener, "", "")
		return
	}
	_ = p.server.Serve(p.listener)
}

// Stop ends every hang and stream at once and closes the port. It may be repeated.
func (p *Provider) Stop() {
	p.stop.Do(func() {
		close(p.stopping)
		_ = p.server.Close()
		<-p.served
		p.counters.awaitIdle(5 * time.Second)
	})
}

// URL is the base URL that a catalog's provider takes, such as http://127.0.0.1:41234/v1.
func (p *Provider) URL() string {
	scheme := "http"
	if p.cert != nil {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s/v1", scheme, p.listener.Addr())
}

// Addr is the address the provider listens on.
func (p *Provider) Addr() string { return p.listener.Addr().String() }

// CertPEM is the certificate a client must trust; nil without TLS.
func (p *Provider) CertPEM() []byte {
	if p.cert == nil {
		return nil
	}
	return p.cert.pem
}

func (p *Provider) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", p.chat)
	mux.HandleFunc("POST /token", p.token)
	mux.HandleFunc("GET /__log", p.getLog)
	mux.HandleFunc("DELETE /__log", p.deleteLog)
	mux.HandleFunc("GET /__script", p.getScript)
	mux.HandleFunc("PUT /__script", p.putScript)
	mux.HandleFunc("POST /__release", p.postRelease)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusNotFound, nil, "")
	})
	return mux
}

// connKey finds a request's network connection in its context.
type connKey struct{}
