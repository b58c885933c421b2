package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"omniroute/gateway/config"
	"omniroute/models/store"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" default:"withargs" help:"Apply every migration that is missing (the default)."`
	Down   migrateDownCmd   `cmd:"" help:"Take back the latest migration."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and when each was applied."`
}

// migrateGroup is what migrations need: no key ring, since they never open a credential.
type migrateGroup struct {
	config.Process
	config.Database
}

func (g migrateGroup) with(ctx context.Context, p *process, f func(*store.Store) error) error {
	s, err := store.Open(ctx, g.URL(g.Process), nil, g.Logger(p.stderr))
	if err != nil {
		return err
	}
	return closing(s, func() error { return f(s) })
}

type migrateUpCmd struct{ migrateGroup }

// Run migrates, under the database's own lock when several do so at once.
func (c migrateUpCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		pending, err := s.PendingMigrations(ctx)
		if err != nil {
			return err
		}
		if pending == 0 {
			_, err := fmt.Fprintln(p.stdout, "up to date")
			return err
		}
		if err := s.Migrate(ctx); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%d migrations applied\n", pending)
		return err
	})
}

type migrateDownCmd struct{ migrateGroup }

// Run takes the latest migration back.
func (c migrateDownCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		latest, err := latestApplied(ctx, s)
		if err != nil {
			return err
		}
		if err := s.MigrateDown(ctx); err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "took back %s\n", latest.Name)
		return err
	})
}

func latestApplied(ctx context.Context, s *store.Store) (store.MigrationStatus, error) {
	all, err := s.MigrationStatus(ctx)
	if err != nil {
		return store.MigrationStatus{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].AppliedAt.IsZero() {
			return all[i], nil
		}
	}
	return store.MigrationStatus{}, errors.New("no migration is applied")
}

type migrateStatusCmd struct{ migrateGroup }

// Run lists the migrations.
func (c migrateStatusCmd) Run(ctx context.Context, p *process) error {
	return c.with(ctx, p, func(s *store.Store) error {
		all, err := s.MigrationStatus(ctx)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "VERSION\tNAME\tAPPLIED")
		for _, m := range all {
			applied := "pending"
			if !m.AppliedAt.IsZero() {
				applied = m.AppliedAt.UTC().Format(time.RFC3339)
			}
			_, _ = fmt.Fprintf(table, "%d\t%s\t%s\n", m.Version, m.Name, applied)
		}
		return table.Flush()
	})
}
