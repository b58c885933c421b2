package worker

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/workflows/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// at makes a worker whose client looks for Temporal at an address.
func at(t *testing.T, address string) *Worker {
	c, err := dial.Lazy(dial.Config{Address: address, Role: "worker"}, quiet())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return New(Options{Client: c, Log: quiet()})
}

func TestAWorkerStartsAndStopsWhileTemporalRefuses(t *testing.T) {
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, refusing.Close())
	w := at(t, refusing.Addr().String())
	w.Start()
	w.Start() // again, without effect
	require.False(t, w.Running())
	begin := time.Now()
	w.Stop(t.Context())
	w.Stop(t.Context())
	require.Less(t, time.Since(begin), time.Second)
}

func TestAWorkerStopsInTimeWhileTemporalIsFrozen(t *testing.T) {
	frozen, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, says nothing
	require.NoError(t, err)
	defer frozen.Close()
	accepted := make(chan net.Conn, 16)
	go func() {
		defer close(accepted)
		for {
			conn, err := frozen.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	w := at(t, frozen.Addr().String())
	w.Start()
	(<-accepted).Close()
	begin := time.Now()
	w.Stop(t.Context())
	require.Less(t, time.Since(begin), 5*time.Second)
	frozen.Close()
	for conn := range accepted {
		conn.Close()
	}
}

func TestAWorkerThatNeverStartedStopsAtOnce(t *testing.T) {
	w := at(t, "127.0.0.1:1")
	w.Stop(context.Background())
	w.Start()
	require.False(t, w.Running())
}
