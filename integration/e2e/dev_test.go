package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
	"omniroute/integration/harness"
)

func TestAFirstStartAnswersTheBannersCallAndASecondFindsItsData(t *testing.T) {
	data, ports := filepath.Join(t.TempDir(), "data"), harness.NewDevPorts(t)

	// The first start brings the demo; the banner's call is answered by the second key.
	first := harness.StartDev(t, data, ports)
	for _, said := range []string{"http://" + ports.Gateway + "/v1", first.Access["OMNIROUTE_API_KEY"], "http://" + ports.UI, first.Access["OMNIROUTE_ADMIN_TOKEN"], "curl -N"} {
		require.Contains(t, first.Output(), said)
	}
	info, err := os.Stat(filepath.Join(data, "demo.env"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.Equal(t, "http://"+ports.Gateway, first.Access["OMNIROUTE_URL"])
	require.Equal(t, http.StatusOK, first.Reach(t, first.Access["TEMPORAL_UI_URL"]))
	answer := first.Stream(t, "demo")
	answer.RequireComplete(t)
	require.Equal(t, fakeprovider.Text, answer.Text())
	require.Equal(t, "limited-2", answer.Connection())
	for _, model := range []string{"healthy/chat", "slow/chat", "rescue"} {
		require.Equal(t, http.StatusOK, first.Chat(t, model).Status, model)
	}
	require.GreaterOrEqual(t, first.Chat(t, "failing/chat").Status, 500)

	// The operator changes the demo, with the command line beside the running process.
	file := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(file, []byte("combos: [{name: demo, strategy: priority, targets: [{model: healthy/chat}]}]\n"), 0o600))
	out, code := harness.Run(t, nil, harness.Binary(t), "apply", "--data-dir", data, "-f", file)
	require.Zero(t, code, out)
	harness.Await(t, 10*time.Second, "the change is served", func() error {
		if a := first.Chat(t, "demo"); a.Header.Get("X-Omniroute-Provider") != "healthy" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})

	// Ctrl-C ends it in under 5 s, with a stream under way.
	go first.Send(t.Context(), harness.Body("slow/chat", true))
	began := time.Now()
	first.Signal(t, syscall.SIGINT)
	require.Zero(t, first.Wait(t, 10*time.Second), first.Output())
	within(t, 5*time.Second, time.Since(began), "stopping")
	requireFree(t, ports)

	// The second start has the same key, the same token, the operator's change, no new demo.
	second := harness.StartDev(t, data, ports)
	require.Equal(t, first.Access, second.Access)
	again := second.Chat(t, "demo")
	require.Equal(t, "healthy", again.Header.Get("X-Omniroute-Provider"), "%s", again)
}

func TestAKilledSystemFindsTheCooldownWhereItWas(t *testing.T) {
	data, ports := t.TempDir(), harness.NewDevPorts(t)
	first := harness.StartDev(t, data, ports)
	limited := time.Now()
	require.Equal(t, "limited-2", first.Chat(t, "limited/chat").Connection())
	harness.Await(t, 5*time.Second, "the cooldown is durable", func() error {
		if c := first.Connection(t, "limited-1"); !c.Durable || c.Phase != "cooling" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})

	first.Kill()
	second := harness.StartDev(t, data, ports)

	c := second.Connection(t, "limited-1")
	require.Equal(t, "cooling", c.Phase)
	require.InDelta(t, 30, c.Until.Sub(limited).Seconds(), 1, "the remaining time, not longer")
	require.Equal(t, "limited-2", second.Chat(t, "limited/chat").Connection())
	// The demo's provider began its script anew: key 1's next call is limited once more, and
	// two attempts in one request show that it was tried.
	harness.Await(t, 40*time.Second, "key 1 is tried again", func() error {
		if a := second.Chat(t, "limited/chat"); a.Header.Get("X-Omniroute-Attempts") != "2" {
			return fmt.Errorf("%s", a)
		}
		return nil
	})
	require.InDelta(t, 30, time.Since(limited).Seconds(), 2)
}

// Nobody chose the scripted provider's port, so one that was taken meanwhile stops nothing.
func TestTheDemoFollowsItsProviderToAnotherPort(t *testing.T) {
	data, ports := t.TempDir(), harness.NewDevPorts(t)
	ports.Demo = ""
	first := harness.StartDev(t, data, ports)
	require.Equal(t, http.StatusOK, first.Chat(t, "healthy/chat").Status)
	text, err := os.ReadFile(filepath.Join(data, "demo-provider.url"))
	require.NoError(t, err)
	before, err := url.Parse(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	first.Signal(t, syscall.SIGTERM)
	require.Zero(t, first.Wait(t, 10*time.Second), first.Output())

	squatter, err := net.Listen("tcp", before.Host)
	require.NoError(t, err)
	t.Cleanup(func() { squatter.Close() })
	second := harness.StartDev(t, data, ports)

	require.Equal(t, http.StatusOK, second.Chat(t, "healthy/chat").Status)
}

func TestWithoutTheDemoThereIsAKeyAndNoProvider(t *testing.T) {
	d := harness.StartDev(t, t.TempDir(), harness.NewDevPorts(t), "--no-demo", "--temporal-ui=")

	status, body := d.Get(t, "/v1/models", d.Access["OMNIROUTE_API_KEY"])
	require.Equal(t, http.StatusOK, status, body)
	require.JSONEq(t, `{"object":"list","data":[]}`, body)
	require.Empty(t, d.Access["TEMPORAL_UI_URL"])
	require.NoError(t, listen(d.Ports.Demo))
	require.NoError(t, listen(d.Ports.UI))
}

// Whatever is in the way of a start is one clear line, an exit code and nothing left behind.
func TestAStartThatCannotWorkSaysWhyInOneLine(t *testing.T) {
	seeded := filepath.Join(t.TempDir(), "seeded")
	ports := harness.NewDevPorts(t)
	d := harness.StartDev(t, seeded, ports)
	d.Signal(t, syscall.SIGTERM)
	require.Zero(t, d.Wait(t, 10*time.Second), d.Output())

	taken := func(address func(harness.DevPorts) string, flag string) func(*testing.T) (string, harness.DevPorts, string) {
		return func(t *testing.T) (string, harness.DevPorts, string) {
			ports := harness.NewDevPorts(t)
			listener, err := net.Listen("tcp", address(ports))
			require.NoError(t, err)
			t.Cleanup(func() { listener.Close() })
			return filepath.Join(t.TempDir(), "data"), ports, address(ports) + ".*taken.*--" + flag
		}
	}
	corrupt := func(file string) func(*testing.T) (string, harness.DevPorts, string) {
		return func(t *testing.T) (string, harness.DevPorts, string) {
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(seeded)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), bytes.Repeat([]byte("not a database "), 1000), 0o600))
			return dir, harness.NewDevPorts(t), regexp.QuoteMeta(file)
		}
	}
	for name, world := range map[string]func(*testing.T) (dir string, ports harness.DevPorts, says string){
		"gateway's port taken":  taken(func(p harness.DevPorts) string { return p.Gateway }, "listen"),
		"Temporal's port taken": taken(func(p harness.DevPorts) string { return p.Temporal }, "temporal-address"),
		"Web UI's port taken":   taken(func(p harness.DevPorts) string { return p.UI }, "temporal-ui"),
		"demo's port taken":     taken(func(p harness.DevPorts) string { return p.Demo }, "demo-listen"),
		"data directory is a file": func(t *testing.T) (string, harness.DevPorts, string) {
			file := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			return file, harness.NewDevPorts(t), "data directory .*file"
		},
		"data directory cannot be written": func(t *testing.T) (string, harness.DevPorts, string) {
			return "/proc/omniroute", harness.NewDevPorts(t), "data directory /proc/omniroute"
		},
		"catalog's database corrupt":  corrupt("omniroute.db"),
		"Temporal's database corrupt": corrupt("temporal.db"),
	} {
		t.Run(name, func(t *testing.T) {
			dir, ports, says := world(t)

			out, code := harness.Run(t, nil, harness.DevBinary(t), append([]string{"--data-dir", dir, "--log-level", "error"}, ports.Args()...)...)

			require.NotZero(t, code)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			require.Len(t, lines, 1, out)
			require.Regexp(t, `^omniroute-dev: .*`+says, lines[0])
			require.NotContains(t, out, "goroutine")
			require.NotContains(t, out, "panic")
		})
	}
}

func TestASecondInstanceOnTheSameDataIsRefused(t *testing.T) {
	data := t.TempDir()
	harness.StartDev(t, data, harness.NewDevPorts(t))

	out, code := harness.Run(t, nil, harness.DevBinary(t), append([]string{"--data-dir", data}, harness.NewDevPorts(t).Args()...)...)

	require.Equal(t, 1, code)
	require.Regexp(t, `^omniroute-dev: data directory .* is in use by another omniroute-dev \(process \d+\).*\n$`, out)
}

// requireFree fails when somebody still listens.
func requireFree(t *testing.T, p harness.DevPorts) {
	t.Helper()
	for _, address := range []string{p.Gateway, p.Temporal, p.UI, p.Demo} {
		require.NoError(t, listen(address))
	}
}

func listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return listener.Close()
}
