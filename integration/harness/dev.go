package harness

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Dev is an omniroute-dev: the whole system in one process, as "make run" starts it.
type Dev struct {
	*Gateway
	DataDir string
	Access  map[string]string // what demo.env says
	Ports   DevPorts
}

// DevPorts are where it listens.
type DevPorts struct{ Gateway, Temporal, UI, Demo string }

// NewDevPorts are four free ports.
func NewDevPorts(t testing.TB) DevPorts {
	t.Helper()
	return DevPorts{FreeAddress(t), FreeAddress(t), FreeAddress(t), FreeAddress(t)}
}

// Args are the flags for the ports; without one for the demo, omniroute-dev finds its own.
func (p DevPorts) Args() []string {
	args := []string{"--listen", p.Gateway, "--temporal-address", p.Temporal, "--temporal-ui", p.UI}
	if p.Demo != "" {
		args = append(args, "--demo-listen", p.Demo)
	}
	return args
}

// StartDev starts one on a data directory and returns once its banner is there.
func StartDev(t testing.TB, dataDir string, ports DevPorts, args ...string) *Dev {
	t.Helper()
	all := append(append([]string{"--data-dir", dataDir}, ports.Args()...), args...)
	d := &Dev{DataDir: dataDir, Ports: ports, Access: map[string]string{}}
	process := Spawn(t, "omniroute-dev", nil, DevBinary(t), all...)
	process.Says(t, 90*time.Second, "Ctrl-C stops")

	file, err := os.Open(filepath.Join(dataDir, "demo.env"))
	require.NoError(t, err)
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		d.Access[name] = value
	}
	d.Gateway = &Gateway{
		Process: process, address: ports.Gateway, client: newClient(t),
		world: &World{ClientKey: d.Access["OMNIROUTE_API_KEY"], AdminToken: d.Access["OMNIROUTE_ADMIN_TOKEN"]},
	}
	return d
}

// Reach reads a URL of the system, such as the Web UI's.
func (d *Dev) Reach(t testing.TB, url string) int {
	t.Helper()
	resp, err := d.client.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
