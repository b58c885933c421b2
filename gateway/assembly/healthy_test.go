package assembly

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
)

// tolls counts what passes on the way to a server: every piece that arrives from our side.
// A statement, or a call, is at least one.
type tolls struct {
	net.Listener
	passed atomic.Int64
	open   sync.WaitGroup
}

// passTo forwards to a server; without one, what arrives is counted and never answered.
func passTo(t *testing.T, server string) *tolls {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tolls := &tolls{Listener: listener}
	tolls.open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			tolls.open.Go(func() { tolls.forward(conn, server) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		tolls.open.Wait()
	})
	return tolls
}

func (c *tolls) forward(conn net.Conn, server string) {
	defer conn.Close()
	onward := io.Discard
	if server != "" {
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			return
		}
		defer upstream.Close()
		onward = upstream
		c.open.Go(func() {
			_, _ = io.Copy(conn, upstream)
			conn.Close()
		})
	}
	piece := make([]byte, 64<<10)
	for {
		n, err := conn.Read(piece)
		if err != nil {
			return
		}
		c.passed.Add(1)
		if _, err := onward.Write(piece[:n]); err != nil {
			return
		}
	}
}

// A healthy request costs memory look-ups: a thousand of them cause no more traffic to
// Postgres than the ledger's batches and the feed's polls do, and none to Temporal.
func TestAThousandHealthyRequestsCallNeitherPostgresNorTemporal(t *testing.T) {
	server := postgres.Start(t)
	database, temporal := passTo(t, server.Addr()), passTo(t, "")
	w := newWorld(t)
	w.settings.LogLevel = "error"
	w.settings.DatabaseURL = strings.Replace(server.DatabaseTCP(t), server.Addr(), database.Addr().String(), 1)
	w.settings.TemporalAddress = temporal.Addr().String()
	a := w.start(RoleGateway)
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(stream bool) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.Addr()+chatPath, strings.NewReader(chat("m1", stream)))
		if err != nil {
			return 0
		}
		request.Header.Set("Authorization", "Bearer "+clientKey)
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode
	}
	require.Equal(t, 200, ask(false))
	began, queries, calls := time.Now(), database.passed.Load(), temporal.passed.Load()

	var served atomic.Int64
	var clients sync.WaitGroup
	for client := range 8 {
		clients.Go(func() {
			for range 125 {
				if ask(client%2 == 0) == 200 {
					served.Add(1)
				}
			}
		})
	}
	clients.Wait()

	require.EqualValues(t, 1000, served.Load())
	// The ledger's batches, a hundred rows each, and at most a few polls a second.
	require.Less(t, database.passed.Load()-queries, int64(100+20*time.Since(began).Seconds()))
	// Only the connection's own upkeep.
	require.Less(t, temporal.passed.Load()-calls, int64(10))
}
