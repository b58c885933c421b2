package main

import (
	"context"
	"fmt"

	"omniroute/deployments/dev/temporaldev"
	"omniroute/gateway/config"
)

// temporalCmd runs the Temporal server alone, as a stand-in for a cluster.
type temporalCmd struct {
	config.Process
	config.Embedded
	TemporalUI string `name:"temporal-ui" env:"OMNIROUTE_TEMPORAL_UI" empty:"means off" default:"127.0.0.1:8233" placeholder:"HOST:PORT" help:"Where the Web UI listens; empty is off."`
}

func (c *temporalCmd) run(ctx context.Context, p process) error {
	data, err := openDataDir(c.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = data.close() }()
	if err := checkPorts([]port{{"Temporal", "temporal-address", c.TemporalAddress}, {"Temporal's Web UI", "temporal-ui", c.TemporalUI}}); err != nil {
		return err
	}
	start, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not up after %s", startLimit))
	defer cancel()
	server, err := temporaldev.Start(start, temporaldev.Options{
		Address: c.TemporalAddress, UIAddress: c.TemporalUI,
		DatabaseFile: data.file("temporal.db"),
		Namespace:    c.TemporalNamespace, Retention: retention, Log: c.Logger(p.stderr),
	})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(p.stdout, "temporal %s  namespace %s  ui %s\n", server.Address(), c.TemporalNamespace, server.UIURL())
	<-ctx.Done()
	return server.Stop()
}
