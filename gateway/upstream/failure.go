package upstream

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"omniroute/models/egress"
	"omniroute/models/failure"
)

// Bounds of reading the body of an error answer: it is wanted for its message and hints
// only, and an upstream that dribbles it must not hold up the failover.
const (
	maxErrorBody  = 64 << 10
	errorBodyWait = 2 * time.Second
)

// kindOf names the failure of a round trip. The caller knows better when it was its own
// limit that ended the context.
func kindOf(ctx context.Context, err error) failure.Kind {
	if ctx.Err() != nil {
		return failure.KindClientGone
	}
	var timeout net.Error
	timedOut := errors.As(err, &timeout) && timeout.Timeout()
	if egress.NotSent(err) {
		if timedOut {
			return failure.KindConnectTimeout
		}
		return failure.KindConnect
	}
	// The transport has no header limit of its own, so its only other timeout is the TLS
	// handshake's.
	if timedOut && strings.Contains(err.Error(), "TLS handshake") {
		return failure.KindConnectTimeout
	}
	if handshakeFailed(err) {
		return failure.KindConnect
	}
	// net/http has no typed error for a peer that does not speak HTTP.
	if text := err.Error(); strings.Contains(text, "malformed HTTP") || strings.Contains(text, "response headers exceeded") {
		return failure.KindMalformed
	}
	return failure.KindReset
}

func handshakeFailed(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		alert        tls.AlertError
		hostname     x509.HostnameError
	)
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &hostname)
}

// refusal reads an answer that is not a 2xx into a signal and gives its socket back. A
// redirect is one of them: following it would carry a credential to wherever it points.
func refusal(resp *http.Response) *failure.Signal {
	signal := &failure.Signal{Kind: failure.KindHTTP, Status: resp.StatusCode, Headers: resp.Header}
	raw := resp.Body
	timer := time.AfterFunc(errorBodyWait, func() { closeBody(raw) })
	defer timer.Stop()
	defer closeBody(raw)
	if decode(resp) != nil {
		return signal
	}
	// A body that breaks off or comes late is used as far as it got.
	signal.Body, _ = io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	return signal
}

// decode undoes a compression that was not asked for. Gzip is read up to each flush of the
// sender, so events of a stream are not held back.
func decode(resp *http.Response) error {
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return nil
	case "gzip", "x-gzip":
		resp.Body = &gunzip{raw: resp.Body}
		resp.ContentLength = -1
		return nil
	default:
		return fmt.Errorf("content encoding %q was not asked for", encoding)
	}
}

// gunzip opens the gzip header at the first read, which blocks until the sender flushed it.
type gunzip struct {
	raw io.ReadCloser
	zip *gzip.Reader
}

func (g *gunzip) Read(p []byte) (int, error) {
	if g.zip == nil {
		zip, err := gzip.NewReader(g.raw)
		if err != nil {
			return 0, err
		}
		g.zip = zip
	}
	return g.zip.Read(p)
}

func (g *gunzip) Close() error { return g.raw.Close() }
