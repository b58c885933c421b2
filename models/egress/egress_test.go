package egress_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models/egress"
)

// That requests really leave as a way says is proved with sockets, beside those who use it.

func TestAWayIsTakenWholeOrRefusedWithoutShowingIt(t *testing.T) {
	for _, way := range []egress.Way{
		{Proxy: "http://user:hunter2@[::1"}, {Proxy: "hunter2"}, {LocalAddress: "hunter2"},
	} {
		err := way.Take(&http.Transport{}, &net.Dialer{})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hunter2")
	}

	transport, dialer := &http.Transport{}, &net.Dialer{}
	require.NoError(t, egress.Way{Proxy: "socks5://user:hunter2@proxy:1080", LocalAddress: "2001:db8::7"}.Take(transport, dialer))
	proxy, err := transport.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "provider"}})
	require.NoError(t, err)
	require.Equal(t, "proxy:1080", proxy.Host)
	require.Equal(t, "[2001:db8::7]:0", dialer.LocalAddr.String())
}

func TestAWayPrintsWithoutUserAndPassword(t *testing.T) {
	for want, way := range map[string]egress.Way{
		"proxy proxy:1080": {Proxy: "socks5://user:hunter2@proxy:1080", LocalAddress: "192.0.2.7"},
		"192.0.2.7":        {LocalAddress: "192.0.2.7"},
		"":                 {},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			require.Equal(t, want, fmt.Sprintf(verb, way))
		}
	}
}

func TestWhatFailsOnTheWayIsToldApartFromWhatFailsAtTheEnd(t *testing.T) {
	transport := &http.Transport{}
	require.NoError(t, egress.Way{}.Take(transport, &net.Dialer{}))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := transport.DialContext(gone, "tcp", "127.0.0.1:1")
	require.True(t, egress.NotSent(fmt.Errorf("wrapped: %w", err)))

	_, err = (&net.Dialer{Timeout: time.Nanosecond}).DialContext(t.Context(), "tcp", "127.0.0.1:1")
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	slow := &http.Transport{}
	require.NoError(t, egress.Way{}.Take(slow, &net.Dialer{Timeout: time.Nanosecond}))
	_, err = slow.DialContext(t.Context(), "tcp", "127.0.0.1:1")
	through := &net.OpError{Op: "proxyconnect", Err: err} // as net/http wraps it
	require.True(t, through.Timeout(), "a proxy that is not reached in time is told as such")

	require.False(t, egress.NotSent(errors.New("reset")))
	require.False(t, egress.NotSent(&net.OpError{Op: "read", Err: errors.New("reset")}))
	require.True(t, egress.NotSent(&net.OpError{Op: "proxyconnect", Err: errors.New("refused")}))
	require.True(t, egress.NotSent(&net.OpError{Op: "socks connect", Err: errors.New("refused")}))
}
