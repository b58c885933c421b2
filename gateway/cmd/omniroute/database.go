package main

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"github.com/sirupsen/logrus"

	"omniroute/gateway/config"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

// catalogGroup is what a command needs that works on the catalog's database.
type catalogGroup struct {
	config.Process
	config.Database
	config.Keys
}

// with opens the catalog for f, and refuses one whose schema is not this version's.
func (g catalogGroup) with(ctx context.Context, p *process, f func(*store.Store) error) error {
	if err := g.mustExist(); err != nil {
		return err
	}
	ring, err := g.Ring(g.Process)
	if err != nil {
		return err
	}
	return g.open(ctx, ring, g.Logger(p.stderr), f)
}

func (g catalogGroup) open(ctx context.Context, ring *secrets.KeyRing, log logrus.FieldLogger, f func(*store.Store) error) error {
	s, err := store.Open(ctx, g.URL(g.Process), ring, log)
	if err != nil {
		return err
	}
	return closing(s, func() error {
		pending, err := s.PendingMigrations(ctx)
		if err != nil {
			return err
		}
		if pending > 0 {
			return behind(pending)
		}
		return f(s)
	})
}

// closing closes the database after f; what f says goes before what closing says.
func closing(s *store.Store, f func() error) error {
	err := f()
	if closed := s.Close(); err == nil {
		err = closed
	}
	return err
}

func behind(pending int) error {
	return fmt.Errorf("the database is %d migrations behind this version: run 'omniroute migrate' first", pending)
}

// mustExist refuses an embedded database that is not there yet: opening it would make an
// empty one, most likely in the wrong place.
func (g catalogGroup) mustExist() error {
	path, embedded := strings.CutPrefix(g.URL(g.Process), "sqlite:")
	if !embedded {
		return nil
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("no database at %s: set OMNIROUTE_DATABASE_URL, or run 'omniroute migrate' to make one there", filepath.Clean(path))
	}
	return nil
}

// actor names who runs a command, for the audit log.
func actor() string {
	if u, err := user.Current(); err == nil {
		return "cli:" + u.Username
	}
	return "cli"
}
