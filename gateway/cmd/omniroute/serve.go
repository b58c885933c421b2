package main

import (
	"context"

	"omniroute/gateway/assembly"
	"omniroute/gateway/config"
)

type gatewayCmd struct {
	config.Process
	config.Database
	config.Keys
	config.Temporal
	config.Gateway
	config.Migration
}

// Help lists the variables that are no flags.
func (gatewayCmd) Help() string { return config.DefaultsHelp() }

// Run serves clients until a signal. The database must be named: a gateway that invented an
// empty one would refuse every client.
func (c gatewayCmd) Run(ctx context.Context, p *process) error {
	if err := c.Require(); err != nil {
		return err
	}
	return serve(ctx, p, assembly.RoleGateway, config.Config{
		Process: c.Process, Database: c.Database, Keys: c.Keys, Temporal: c.Temporal, Gateway: c.Gateway, Migration: c.Migration,
	})
}

// workerCmd takes the key ring for one activity: refreshing OAuth tokens opens the old ones and
// seals the new ones. Without the ring it does everything else.
type workerCmd struct {
	config.Process
	config.Database
	config.Keys
	config.Temporal
	config.Worker
}

// Run executes workflows and activities until a signal.
func (c workerCmd) Run(ctx context.Context, p *process) error {
	if err := c.Require(); err != nil {
		return err
	}
	return serve(ctx, p, assembly.RoleWorker, config.Config{
		Process: c.Process, Database: c.Database, Keys: c.Keys, Temporal: c.Temporal, Worker: c.Worker,
	})
}

// serve runs a process until ctx ends or a part of it fails.
func serve(ctx context.Context, p *process, role assembly.Role, settings config.Config) error {
	out := config.Gather(p.stderr)
	defer out.Close()
	process, err := assembly.New(ctx, assembly.Config{
		Role: role, Settings: settings, Environ: p.environ,
		Version: currentVersion(), Log: settings.Logger(out),
	})
	if err != nil {
		return err
	}
	defer process.Stop(context.WithoutCancel(ctx))
	if err := process.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-process.Failed():
		return err
	}
}
