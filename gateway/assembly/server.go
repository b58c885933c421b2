package assembly

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"
)

// Limits of every HTTP server of ours. A body's and an answer's time are bounded further in,
// where it is known what they carry.
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 120 * time.Second
	maxHeaderBytes    = 64 << 10
)

// listen opens the address, with one line that says what is wrong with it.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: the port is taken by another process", setting, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s %s: this user may not listen on that port", setting, address)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w", setting, address, err)
	}
	return listener, nil
}

// serve answers on the listener until the server is shut down. An unexpected end is sent to
// failed, which has room for it.
func serve(server *http.Server, listener net.Listener, failed chan<- error) {
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		failed <- fmt.Errorf("serving on %s: %w", listener.Addr(), err)
	}
}

func newServer(handler http.Handler, entry logrus.FieldLogger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(debugWriter{entry}, "", 0),
	}
}

// debugWriter takes net/http's own complaints: about clients that break off handshakes and
// headers, which is their affair and not an operator's.
type debugWriter struct{ log logrus.FieldLogger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.Debug(string(line))
	return len(line), nil
}
