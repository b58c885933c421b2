package temporaldev

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// ErrPortTaken is the cause when somebody else listens on a wanted address.
var ErrPortTaken = errors.New("the port is taken")

// CheckFree reports ErrPortTaken, or why the address cannot be listened on.
func CheckFree(address string) error {
	listener, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ErrPortTaken
	case err != nil:
		var op *net.OpError
		if errors.As(err, &op) {
			return op.Err
		}
		return err
	}
	return listener.Close()
}

// ports are where the four services of the server listen. Only the frontend is spoken to
// from outside; the others take free ports.
type ports struct {
	ip                                               string
	frontend, frontendHTTP, history, matching, inner int
}

func choosePorts(frontend *net.TCPAddr) (ports, error) {
	p := ports{ip: frontend.IP.String(), frontend: frontend.Port}
	if p.frontend != 0 {
		if err := CheckFree(p.frontendAddress()); err != nil {
			return ports{}, err
		}
	}
	wanted := []*int{&p.frontendHTTP, &p.history, &p.matching, &p.inner}
	if p.frontend == 0 {
		wanted = append(wanted, &p.frontend)
	}
	// All listeners stay open until every port is chosen, so that no two are the same.
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	for _, port := range wanted {
		l, err := listenFree(p.ip)
		if err != nil {
			return ports{}, err
		}
		listeners = append(listeners, l)
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// listenFree takes a port below those that the system gives to outgoing connections: between
// this choice and the server's own listening, nothing but bad luck can take it.
func listenFree(ip string) (l net.Listener, err error) {
	const low, high, tries = 15_000, 30_000, 50
	for range tries {
		port := low + rand.IntN(high-low)
		if l, err = net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	return nil, err
}

func (p ports) address(port int) string { return net.JoinHostPort(p.ip, strconv.Itoa(port)) }

func (p ports) frontendAddress() string { return p.address(p.frontend) }
