package upstream

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models/failure"
)

const twoBytes = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"

// serve lets handle do with every socket what it wants, all at once, and ends them with the test.
func serve(t *testing.T, handle func(*net.TCPConn, *bufio.Reader)) string {
	var (
		sockets sync.WaitGroup
		mu      sync.Mutex
		open    []net.Conn
	)
	address := listen(t, func(c net.Conn) {
		mu.Lock()
		open = append(open, c)
		mu.Unlock()
		sockets.Go(func() {
			defer c.Close()
			handle(c.(*net.TCPConn), bufio.NewReader(c))
		})
	})
	t.Cleanup(func() {
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		sockets.Wait()
	})
	return "http://" + address
}

// read takes one whole request off a socket.
func read(in *bufio.Reader) error {
	r, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	return err
}

// call makes one attempt and gives its socket back.
func call(t *testing.T, client *Client, baseURL string) *failure.Signal {
	resp, signal := client.Do(t.Context(), connection(baseURL), []byte(`{}`), false)
	if signal != nil {
		return signal
	}
	_, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return nil
}

// A server may close a kept socket whenever it likes, and cannot say so in time.
func TestASocketThatTheServerClosedMeanwhileIsNobodysFailure(t *testing.T) {
	for name, idle := range map[string]time.Duration{"right after the answer": 0, "5 ms later": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			var sockets atomic.Int32
			baseURL := serve(t, func(c *net.TCPConn, in *bufio.Reader) {
				sockets.Add(1)
				if read(in) != nil {
					return
				}
				io.WriteString(c, twoBytes) //nolint:errcheck // seen by the assertions
				if idle == 0 {
					c.CloseWrite() //nolint:errcheck // seen by the assertions
				} else {
					defer time.AfterFunc(idle, func() { c.CloseWrite() }).Stop() //nolint:errcheck // seen by the assertions
				}
				io.Copy(io.Discard, in) //nolint:errcheck // what crosses with the end is not answered
			})
			client := newClient(t)
			for range 200 {
				require.Nil(t, call(t, client, baseURL))
			}
			require.EqualValues(t, 200, sockets.Load(), "every answer has a socket of its own, no request a third one")
		})
	}
}

// A server that has read a request may have executed it.
func TestAResetUnderARequestIsAFailureAtOnce(t *testing.T) {
	var seen atomic.Int32
	baseURL := serve(t, func(c *net.TCPConn, in *bufio.Reader) {
		for read(in) == nil {
			if seen.Add(1) > 1 {
				c.SetLinger(0) //nolint:errcheck // seen by the assertions
				return
			}
			io.WriteString(c, twoBytes) //nolint:errcheck // seen by the assertions
		}
	})
	client := newClient(t)
	require.Nil(t, call(t, client, baseURL))
	require.Equal(t, failure.KindReset, call(t, client, baseURL).Kind)
	require.EqualValues(t, 2, seen.Load(), "no second try")
}

func TestAStaleSocketIsMadeUpForOnceOnly(t *testing.T) {
	var seen atomic.Int32
	baseURL := serve(t, func(c *net.TCPConn, in *bufio.Reader) {
		for read(in) == nil && seen.Add(1) == 1 {
			io.WriteString(c, twoBytes) //nolint:errcheck // seen by the assertions
		}
	})
	client := newClient(t)
	require.Nil(t, call(t, client, baseURL))
	require.Equal(t, failure.KindReset, call(t, client, baseURL).Kind, "the fresh socket ended too")
	require.EqualValues(t, 3, seen.Load())
	require.Equal(t, failure.KindReset, call(t, client, baseURL).Kind, "a first socket that ends is a failure")
	require.EqualValues(t, 4, seen.Load())
}

// Half an answer shows that the server was at work.
func TestASocketThatEndsAfterTheFirstByteWasNotStale(t *testing.T) {
	var seen atomic.Int32
	baseURL := serve(t, func(c *net.TCPConn, in *bufio.Reader) {
		for read(in) == nil {
			if seen.Add(1) > 1 {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-") //nolint:errcheck // seen by the assertions
				return
			}
			io.WriteString(c, twoBytes) //nolint:errcheck // seen by the assertions
		}
	})
	client := newClient(t)
	require.Nil(t, call(t, client, baseURL))
	require.Equal(t, failure.KindReset, call(t, client, baseURL).Kind)
	require.EqualValues(t, 2, seen.Load())
}

// A server that worked on a request and then died has seen it.
func TestASocketThatEndsLateWasNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := httptrace.GotConnInfo{Reused: true}
		_, w := watched(t.Context())
		w.trace.GotConn(kept)
		time.Sleep(staleWithin)
		require.True(t, w.stale(t.Context(), io.EOF))
		time.Sleep(time.Millisecond)
		require.False(t, w.stale(t.Context(), io.EOF))

		w.trace.GotConn(kept)
		require.False(t, w.stale(t.Context(), context.DeadlineExceeded))
		gone, leave := context.WithCancel(t.Context())
		leave()
		require.False(t, w.stale(gone, io.EOF), "the client left")
		w.trace.GotConn(httptrace.GotConnInfo{})
		require.False(t, w.stale(t.Context(), io.EOF))
	})
}

// A transport may go on reporting on a socket that an attempt has given up.
func TestAReportThatComesLateReachesNoOtherAttempt(t *testing.T) {
	var touched atomic.Int32
	begin := func(ctx context.Context) (*httptrace.ClientTrace, *watch) {
		seen, w := watched(ctx)
		if w.sockets.Load() != 0 || w.took.Load() != 0 || w.answered.Load() {
			touched.Add(1)
		}
		return httptrace.ContextClientTrace(seen), w
	}
	report := func(trace *httptrace.ClientTrace) {
		trace.GotConn(httptrace.GotConnInfo{Reused: true})
		trace.GotFirstResponseByte()
	}
	var attempts, late sync.WaitGroup
	for range 8 {
		attempts.Go(func() {
			for range 300 {
				served, w := begin(t.Context())
				report(served)
				w.release()

				failed, _ := begin(t.Context())
				late.Go(func() { report(failed) })

				servedBySecond, w := begin(t.Context())
				servedBySecond.GotConn(httptrace.GotConnInfo{Reused: true})
				late.Go(servedBySecond.GotFirstResponseByte)
				report(servedBySecond)
				w.release()
			}
		})
	}
	attempts.Wait()
	late.Wait()
	for range 100 {
		begin(t.Context())
	}
	require.Zero(t, touched.Load())
}

func TestATraceOfTheCallersStaysWithItsAttempt(t *testing.T) {
	reports := 0
	traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reports++ }})
	for _, ctx := range []context.Context{traced, t.Context(), t.Context()} {
		_, w := watched(ctx)
		w.trace.GotConn(httptrace.GotConnInfo{})
		w.trace.GotFirstResponseByte()
		w.release()
	}
	require.Equal(t, 1, reports)
}

func BenchmarkAnAttemptOnAKeptSocket(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	defer server.Close()
	client := New(Options{})
	defer client.Close()
	conn, body := connection(server.URL), []byte(`{}`)
	b.ReportAllocs()
	for b.Loop() {
		resp, signal := client.Do(b.Context(), conn, body, false)
		if signal != nil {
			b.Fatal(signal.Kind)
		}
		io.Copy(io.Discard, resp.Body) //nolint:errcheck // only to reuse the socket
		resp.Body.Close()
	}
}
