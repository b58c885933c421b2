package ingress_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABodyAboveTheLimitIsRefusedWithoutReadingOn(t *testing.T) {
	e := newEdge(t)
	for name, head := range map[string]string{
		"declared": fmt.Sprintf("Content-Length: %d\r\n", 10<<30),
		"chunked":  "Transfer-Encoding: chunked\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: %s\r\n%s\r\n", goodKey, head)
			if name == "chunked" {
				fmt.Fprintf(conn, "%x\r\n%s\r\n", maxBody+1, strings.Repeat("x", maxBody+1)) // and no end
			}
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Second)))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 413, resp.StatusCode)
			require.True(t, resp.Close)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
		})
	}
	fits := `{"model":"p/m","messages":[{"role":"user","content":"` + strings.Repeat("x", maxBody-100) + `"}]}`
	require.Equal(t, 200, e.do(t, "POST", "/v1/chat/completions", fits, "x-api-key", goodKey).status)
}

// upload opens a socket and sends the head of a request, framed by head.
func (e *edge) upload(t *testing.T, head string) net.Conn {
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nx-api-key: %s\r\n%s\r\n", goodKey, head)
	return conn
}

// Python's urllib, for one, would see a reset connection instead of the refusal.
func TestAClientThatWritesAllBeforeItReadsSeesWhyItsBodyWasRefused(t *testing.T) {
	const size = 24 << 20 // more than the sockets' buffers hold
	body := strings.Repeat("x", size)
	for name, request := range map[string]struct{ head, body string }{
		"declared":              {fmt.Sprintf("Content-Length: %d\r\n", size), body},
		"chunked":               {"Transfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)},
		"chunked, after asking": {"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, body)},
	} {
		t.Run(name, func(t *testing.T) {
			conn := newEdge(t).upload(t, request.head)
			_, err := io.WriteString(conn, request.body)
			require.NoError(t, err)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			if resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(in, nil)
				require.NoError(t, err)
			}
			defer resp.Body.Close()
			require.Equal(t, 413, resp.StatusCode)
			read, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Contains(t, string(read), "request_too_large")
			_, err = in.ReadByte()
			require.ErrorIs(t, err, io.EOF, "closed, not reset")
		})
	}
}

func TestARefusedBodyIsReadOnWithinBoundsOnly(t *testing.T) {
	e := newEdge(t)
	t.Run("size", func(t *testing.T) {
		conn := e.upload(t, fmt.Sprintf("Content-Length: %d\r\n", 10<<30))
		var err error
		sent, chunk := 0, make([]byte, 1<<20)
		for err == nil && sent < 256<<20 {
			_, err = conn.Write(chunk)
			sent += len(chunk)
		}
		require.Error(t, err, "hung up on")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Greater(t, sent, 64<<20)
	})
	t.Run("time", func(t *testing.T) {
		started := time.Now()
		conn := e.upload(t, fmt.Sprintf("Content-Length: %d\r\n", 10<<30))
		read, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(read), "request_too_large")
		require.InDelta(t, 2, time.Since(started).Seconds(), 1.5)
	})
	t.Run("a body that was not asked for", func(t *testing.T) {
		started := time.Now()
		conn := e.upload(t, fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n", 10<<30))
		read, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(read), "HTTP/1.1 413 "), "%s", read)
		require.Less(t, time.Since(started), 1500*time.Millisecond)
	})
}
