package assembly

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/integration/fakeprovider"
)

func TestAGatewayServesBooksAndStopsWithinASecondWhenIdle(t *testing.T) {
	w := newWorld(t)
	a := w.start(RoleGateway)

	response, body := call(t, a, "POST", chatPath, clientKey, chat("m1", false))
	require.Equal(t, 200, response.StatusCode, body)
	require.Equal(t, "fake-1", response.Header.Get("X-OmniRoute-Connection"))

	response, _ = call(t, a, "GET", "/readyz", "", "")
	require.Equal(t, 200, response.StatusCode)
	_, metrics := call(t, a, "GET", "/metrics", "", "")
	for _, name := range []string{
		`omniroute_build_info{version="v1.2.3"} 1`, "go_goroutines", "process_resident_memory_bytes",
		"omniroute_ledger_records_total", "omniroute_outbox_",
	} {
		require.Contains(t, metrics, name)
	}
	response, page := call(t, a, "GET", "/", "", "")
	require.Equal(t, 200, response.StatusCode)
	require.Contains(t, page, "v1.2.3")

	start := time.Now()
	a.Stop(t.Context())
	require.Less(t, time.Since(start), time.Second)
	a.Stop(t.Context())

	// The ledger was flushed by the stop.
	id := response.Header.Get("X-Request-Id")
	require.NotEmpty(t, id)
	require.NotContains(t, w.log.String(), upstreamKey)
	require.NotContains(t, w.log.String(), clientKey)
	require.NotContains(t, w.log.String(), adminToken)
}

func TestARequestOfTheLastMomentIsInTheLedger(t *testing.T) {
	w := newWorld(t)
	a := w.start(RoleGateway)
	response, _ := call(t, a, "POST", chatPath, clientKey, chat("m1", false))
	id := response.Header.Get("X-Request-Id")
	a.Stop(t.Context())

	again := w.start(RoleGateway)
	response, body := call(t, again, "GET", "/api/requests/"+id, adminToken, "")
	require.Equal(t, 200, response.StatusCode, body)
	require.Contains(t, body, `"modelServed":"fake/m1"`)
}

func TestTheCatalogFileIsAppliedAtStartAndNothingChangesTheSecondTime(t *testing.T) {
	w := newWorld(t)
	a := w.start(RoleGateway)
	revision := health(t, a).Catalog.Revision
	require.Positive(t, revision)
	a.Stop(t.Context())

	require.Equal(t, revision, health(t, w.start(RoleGateway)).Catalog.Revision)
}

type healthDocument struct {
	Status   string `json:"status"`
	Database struct {
		OK bool `json:"ok"`
	} `json:"database"`
	Catalog struct {
		Revision int64 `json:"revision"`
	} `json:"catalog"`
	Ledger struct {
		Pending int `json:"pending"`
	} `json:"ledger"`
}

func health(t *testing.T, a *Assembly) healthDocument {
	t.Helper()
	response, body := call(t, a, "GET", "/api/monitoring/health", adminToken, "")
	require.Equal(t, 200, response.StatusCode)
	var document healthDocument
	require.NoError(t, json.Unmarshal([]byte(body), &document))
	return document
}

func TestAStopLetsARunningStreamComeToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.provider.On(fakeprovider.Any, "m1", fakeprovider.Step{PaceMs: 10})
	a := w.start(RoleGateway)
	rest := firstContent(t, open(t, a, "POST", chatPath, clientKey, chat("m1", true)))

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Stop(context.WithoutCancel(t.Context()))
	}()
	text, err := io.ReadAll(rest)
	require.NoError(t, err)
	require.Contains(t, string(text), "data: [DONE]")
	<-stopped
	require.ErrorIs(t, a.Ready(), errDraining)
}

func TestAStreamThatOutlivesTheDrainTimeoutEndsWithAnError(t *testing.T) {
	w := newWorld(t)
	w.settings.DrainTimeout = 300 * time.Millisecond
	w.provider.On(fakeprovider.Any, "m1", fakeprovider.Step{Hang: fakeprovider.HangMidStream, AfterTokens: 3})
	a := w.start(RoleGateway)
	rest := firstContent(t, open(t, a, "POST", chatPath, clientKey, chat("m1", true)))

	start := time.Now()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.Stop(context.WithoutCancel(t.Context()))
	}()
	text, err := io.ReadAll(rest)
	require.NoError(t, err)
	require.Contains(t, string(text), "shutting_down")
	require.NotContains(t, string(text), "[DONE]")
	<-stopped
	require.Less(t, time.Since(start), 3*time.Second)
}

func TestWhatCannotStartIsRefusedInOneLine(t *testing.T) {
	taken := freePort(t).Addr().String()
	for name, c := range map[string]struct {
		role  Role
		spoil func(*world)
		want  string
	}{
		"an old schema": {
			RoleGateway, func(w *world) { w.settings.Migrate = false },
			"run 'omniroute migrate' first, or start with --migrate",
		},
		"an old schema, worker": {
			RoleWorker, func(w *world) { w.settings.Migrate = false },
			"run 'omniroute migrate' first",
		},
		"a taken port": {
			RoleGateway, func(w *world) { w.settings.Listen = taken },
			"listen " + taken + ": the port is taken by another process",
		},
		"a worker's taken port": {
			RoleWorker, func(w *world) { w.settings.WorkerListen = taken },
			"worker-listen " + taken + ": the port is taken by another process",
		},
		"no key ring": {
			RoleGateway, func(w *world) { w.settings.EncryptionKeys = "" },
			"set OMNIROUTE_ENCRYPTION_KEYS",
		},
		"a bad catalog": {
			RoleGateway, func(w *world) {
				w.catalog("combos: [{name: x, strategy: priority, targets: [{model: nowhere/m}]}]")
			},
			"catalog.yaml:1: combos[0].targets[0].model",
		},
		"no catalog": {
			RoleGateway, func(w *world) { w.settings.CatalogFile += ".missing" },
			"no such file or directory",
		},
		"no database": {
			RoleGateway, func(w *world) { w.settings.DatabaseURL = "postgres://u:geheim@127.0.0.1:1/none" },
			"cannot reach Postgres database",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.spoil(w)
			err := w.refused(c.role)
			require.Contains(t, err, c.want)
			require.NotContains(t, err, "\n")
			require.NotContains(t, err, "geheim")
		})
	}
}

func TestAProcessThatIsNotStartedIsNotReadyAndCanBeStopped(t *testing.T) {
	w := newWorld(t)
	a, err := New(t.Context(), w.config(RoleGateway))
	require.NoError(t, err)
	require.ErrorIs(t, a.Ready(), errStarting)
	a.Stop(t.Context())
	require.ErrorIs(t, a.Ready(), errDraining)
}

func TestAWorkerWithoutTemporalIsAliveAndNotReady(t *testing.T) {
	w := newWorld(t)
	a := w.start(RoleWorker)

	response, _ := call(t, a, "GET", "/healthz", "", "")
	require.Equal(t, 200, response.StatusCode)
	response, body := call(t, a, "GET", "/readyz", "", "")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	require.Equal(t, "waiting for Temporal\n", body)
	_, metrics := call(t, a, "GET", "/metrics", "", "")
	require.Contains(t, metrics, "omniroute_build_info")

	start := time.Now()
	a.Stop(t.Context())
	require.Less(t, time.Since(start), 2*time.Second)
}

func TestBothSidesLiveInOneProcess(t *testing.T) {
	w := newWorld(t)
	a := w.start(RoleBoth)
	response, body := call(t, a, "POST", chatPath, clientKey, chat("m1", false))
	require.Equal(t, 200, response.StatusCode, body)
}

func TestAWorkerMayServeNothing(t *testing.T) {
	w := newWorld(t)
	w.settings.WorkerListen = "off"
	require.Empty(t, w.start(RoleWorker).Addr())
}
