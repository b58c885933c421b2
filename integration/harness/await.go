// Package harness builds whole systems for tests: real processes of this version, a real
// Temporal server, a real Postgres and the scripted provider, and a client that reads answers
// as strictly as the standards allow.
package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Await polls until check returns nil and returns how long that took. It fails the test with
// the last error when limit passes first.
func Await(t testing.TB, limit time.Duration, what string, check func() error) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		took := time.Since(began)
		if err == nil {
			return took
		}
		if took > limit {
			require.NoError(t, err, "%s did not happen within %s", what, limit)
		}
		<-tick.C
	}
}

// FreeAddress is a loopback address nobody listens on now. Its port is below those that the
// system gives to outgoing connections, so that it is still free when a program takes it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const low, high, tries = 15_000, 30_000, 50
	for range tries {
		address := fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low))
		if listener, err := net.Listen("tcp", address); err == nil {
			require.NoError(t, listener.Close())
			return address
		}
	}
	require.Fail(t, "no free port")
	return ""
}
