package fakeprovider

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

var discardLog = log.New(io.Discard, "", 0)

// settle is how long the peer gets to read what was flushed before its connection is cut:
// a reset makes some stacks discard what the application has not read yet.
const settle = 15 * time.Millisecond

// cut ends the connection the way the step says; bytes may have been sent before.
func (a *answer) cut() error {
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		return err
	}
	switch a.step.Cut {
	case CutEOF:
		return errCut // returning ends the body well-formed
	case CutFIN:
		return a.hangUp(false)
	default:
		return a.reset()
	}
}

// reset answers with RST where the client expects bytes.
func (a *answer) reset() error {
	if a.r.ProtoMajor == 2 {
		time.Sleep(settle)
		a.abort = true // RST_STREAM
		return errCut
	}
	return a.hangUp(true)
}

func (a *answer) hangUp(rst bool) error {
	time.Sleep(settle)
	conn, _, err := http.NewResponseController(a.w).Hijack()
	if err != nil {
		a.abort = true
		return errCut
	}
	raw := conn
	if secure, ok := conn.(*tls.Conn); ok {
		raw = secure.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok && rst {
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
	return errCut
}

// goAway tells an HTTP/2 client that no stream of this connection was processed (RFC 9113
// 6.8), so that it may send the call again elsewhere, and closes the connection. The frame
// is written in one piece beside the server's own writer, which is idle before an answer.
func (a *answer) goAway() error {
	conn, ok := a.r.Context().Value(connKey{}).(*tls.Conn)
	if a.r.ProtoMajor != 2 || !ok {
		return a.reset()
	}
	const goAwayFrame, noError, noStream = 0x7, 0, 0
	frame := make([]byte, 9+8)
	frame[2] = 8 // payload length
	frame[3] = goAwayFrame
	binary.BigEndian.PutUint32(frame[9:], noStream)
	binary.BigEndian.PutUint32(frame[13:], noError)
	_, _ = conn.Write(frame)
	time.Sleep(settle)
	_ = conn.NetConn().Close()
	a.abort = true
	return errCut
}
