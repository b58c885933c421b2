package store

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"gorm.io/gorm"
)

//go:embed migrations/postgres/*.sql migrations/sqlite/*.sql
var migrations embed.FS

// A replica waits up to five minutes for another's migration, looking every second.
const (
	lockPeriod = 1 // seconds
	lockTries  = 300
)

// MigrationStatus is one migration and when it was applied; AppliedAt is zero when it is pending.
type MigrationStatus struct {
	Version   int64
	Name      string
	AppliedAt time.Time
}

// Migrate applies every pending migration. On Postgres a session lock lets replicas that
// start together do it one after the other.
func (s *Store) Migrate(ctx context.Context) error {
	provider, err := s.migrator()
	if err != nil {
		return err
	}
	for range s.migrateTries() {
		if _, err = provider.Up(ctx); err == nil {
			break
		}
	}
	if err != nil {
		return s.fail("migrate", err)
	}
	return s.fail("store the key test", s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		meta, err := s.lockMeta(tx)
		if err != nil {
			return err
		}
		return s.rememberKeyRing(tx, meta)
	}))
}

// MigrateDown takes the latest migration back.
func (s *Store) MigrateDown(ctx context.Context) error {
	provider, err := s.migrator()
	if err != nil {
		return err
	}
	_, err = provider.Down(ctx)
	return s.fail("migrate down", err)
}

// MigrationStatus lists every migration this binary knows, oldest first.
func (s *Store) MigrationStatus(ctx context.Context) ([]MigrationStatus, error) {
	provider, err := s.migrator()
	if err != nil {
		return nil, err
	}
	known, err := provider.Status(ctx)
	if err != nil {
		return nil, s.fail("read the migrations", err)
	}
	list := make([]MigrationStatus, len(known))
	for i, m := range known {
		list[i] = MigrationStatus{Version: m.Source.Version, Name: path.Base(m.Source.Path)}
		if m.State == goose.StateApplied {
			list[i].AppliedAt = m.AppliedAt
		}
	}
	return list, nil
}

// PendingMigrations counts the migrations this binary knows and the database lacks.
func (s *Store) PendingMigrations(ctx context.Context) (int, error) {
	list, err := s.MigrationStatus(ctx)
	pending := 0
	for _, m := range list {
		if m.AppliedAt.IsZero() {
			pending++
		}
	}
	return pending, err
}

// migrateTries is more than one on SQLite, which has no session lock: there the slower of two
// processes that migrate together finds the other's table where it would make it, and goes on
// from there. Each migration is one transaction, so nothing is half done.
func (s *Store) migrateTries() int {
	if s.dialect == Postgres {
		return 1
	}
	return 10
}

func (s *Store) migrator() (*goose.Provider, error) {
	dialect, options := goose.DialectSQLite3, []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if s.dialect == Postgres {
		session, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockPeriod, lockTries))
		if err != nil {
			return nil, err
		}
		dialect, options = goose.DialectPostgres, append(options, goose.WithSessionLocker(session))
	}
	files, err := fs.Sub(migrations, "migrations/"+s.dialect)
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(dialect, s.pool, files, options...)
	if err != nil {
		return nil, fmt.Errorf("the embedded migrations are unusable: %w", err)
	}
	return provider, nil
}
