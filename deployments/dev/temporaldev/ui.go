package temporaldev

import (
	"context"
	"fmt"
	"net/http"
	"time"

	uiserver "github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	uioptions "github.com/temporalio/ui-server/v2/server/server_options"
)

// webUI is Temporal's Web UI. Its assets are embedded and it asks no other host.
type webUI struct {
	server *uiserver.Server
	url    string
	ended  chan struct{}
}

func startUI(ctx context.Context, address, temporalAddress, namespace string) (*webUI, error) {
	tcp, err := resolve(address)
	if err != nil {
		return nil, fmt.Errorf("temporal Web UI: %w", err)
	}
	// The UI server ends the process when it cannot listen, so the port is tried before.
	if err := CheckFree(tcp.String()); err != nil {
		return nil, fmt.Errorf("temporal Web UI on %s: %w", address, err)
	}
	ui := &webUI{url: "http://" + tcp.String(), ended: make(chan struct{})}
	ui.server = uiserver.NewServer(uioptions.WithConfigProvider(&uiconfig.Config{
		Host: tcp.IP.String(), Port: tcp.Port, TemporalGRPCAddress: temporalAddress,
		EnableUI: true, DefaultNamespace: namespace,
		CORS:     uiconfig.CORS{CookieInsecure: true}, // plain HTTP on loopback
		HideLogs: true, DisableNewsFetch: true,
	}))
	go func() {
		defer close(ui.ended)
		_ = ui.server.Start() // returns when stopped
	}()
	if err := ui.await(ctx); err != nil {
		ui.stop()
		return nil, fmt.Errorf("temporal Web UI on %s: %w", address, err)
	}
	return ui, nil
}

func (ui *webUI) await(ctx context.Context) error {
	client := http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if resp, err := client.Get(ui.url + "/healthz"); err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ui.ended:
			return fmt.Errorf("ended at start")
		case <-tick.C:
		}
	}
}

func (ui *webUI) stop() {
	ui.server.Stop()
	select {
	case <-ui.ended:
	case <-time.After(time.Second):
	}
}
