// Package store keeps the catalog, the published states and the request log in Postgres or
// SQLite. It is the only importer of gorm; everything above sees catalog values.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"omniroute/models/catalog"
	"omniroute/models/secrets"
)

// Dialects of the database.
const (
	Postgres = "postgres"
	SQLite   = "sqlite"
)

// openTimeout bounds the first contact with the database.
const openTimeout = 10 * time.Second

// Store is one database. It is safe for concurrent use.
type Store struct {
	db        *gorm.DB
	pool      *sql.DB
	dialect   string
	listenURL string
	now       string // SQL expression for the database's clock in epoch milliseconds
	ring      *secrets.KeyRing
	// environment stands behind the stored settings in every snapshot.
	environment catalog.Environment
	log         logrus.FieldLogger
	watchers    watchers
}

// Open connects to the database of a URL, "postgres://..." or "sqlite:PATH". It does not
// migrate. Its errors are one line: a URL that means nothing, an unreachable server, a damaged
// SQLite file, a key ring that is not the one the stored secrets were made with. Without a key
// ring (nil) everything works that needs no secret.
func Open(ctx context.Context, databaseURL string, ring *secrets.KeyRing, log logrus.FieldLogger) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()

	var s *Store
	var err error
	scheme, rest, _ := strings.Cut(databaseURL, ":")
	switch scheme {
	case "postgres", "postgresql":
		s, err = openPostgres(ctx, databaseURL)
	case "sqlite":
		s, err = openSQLite(ctx, strings.TrimPrefix(rest, "//"))
	default:
		// The URL is not shown: it may hold a password.
		return nil, errors.New("a database URL is postgres://... or sqlite:PATH")
	}
	if err != nil {
		return nil, err
	}
	s.ring, s.log = ring, log
	if err := s.checkKeyRing(ctx); err != nil {
		s.pool.Close() //nolint:errcheck // the key ring's error is the one to tell
		return nil, err
	}
	return s, nil
}

// SetEnvironment says what stands behind the stored settings in every snapshot. It is called
// once, before anything is loaded.
func (s *Store) SetEnvironment(e catalog.Environment) { s.environment = e }

// Close ends all connections.
func (s *Store) Close() error {
	s.watchers.close()
	return s.pool.Close()
}

// Dialect is "postgres" or "sqlite".
func (s *Store) Dialect() string { return s.dialect }

// ListenURL is the Postgres URL on which changes are notified; empty on SQLite, where Watch
// and a look at the revision take its place.
func (s *Store) ListenURL() string { return s.listenURL }

// Ping asks the database for a sign of life.
func (s *Store) Ping(ctx context.Context) error {
	return s.fail("ping", s.pool.PingContext(ctx))
}

// Texts by which a wrong key ring is noticed. They are stored sealed and hashed.
const (
	keyTestText   = "omniroute key ring test"
	keyTestTable  = "catalog_meta"
	keyTestRow    = "1"
	keyTestColumn = "seal_test"
)

// checkKeyRing compares the ring with what the catalog was made with. A database without a
// catalog, or one that has seen no key ring yet, accepts any.
func (s *Store) checkKeyRing(ctx context.Context) error {
	if s.ring == nil {
		return nil
	}
	var meta catalog.Meta
	err := s.db.WithContext(ctx).Where("id = 1").Take(&meta).Error
	switch {
	case isMissingTable(err) || errors.Is(err, gorm.ErrRecordNotFound):
		return nil
	case err != nil:
		return s.fail("read the catalog's key test", err)
	}
	if meta.SealTest != "" {
		if _, err := s.ring.Open(meta.SealTest, keyTestTable, keyTestRow, keyTestColumn); err != nil {
			return fmt.Errorf("the encryption keys are not the ones this database was made with: %w", err)
		}
	}
	if meta.HashTest != "" && meta.HashTest != catalog.HashText(s.ring.HashKey(keyTestText)) {
		return errors.New("the encryption keys changed their last entry, by which API keys are hashed: " +
			"list the original key last")
	}
	return nil
}

// rememberKeyRing stores the key test once, inside the transaction that first has both a
// catalog and a key ring.
func (s *Store) rememberKeyRing(tx *gorm.DB, meta *catalog.Meta) error {
	if s.ring == nil || meta.SealTest != "" {
		return nil
	}
	sealed, err := s.ring.Seal([]byte(keyTestText), keyTestTable, keyTestRow, keyTestColumn)
	if err != nil {
		return err
	}
	meta.SealTest, meta.HashTest = sealed, catalog.HashText(s.ring.HashKey(keyTestText))
	return tx.Model(meta).Select("SealTest", "HashTest").Updates(meta).Error
}

// reading runs f in a transaction that sees one state of the database.
func (s *Store) reading(ctx context.Context, f func(tx *gorm.DB) error) error {
	options := &sql.TxOptions{ReadOnly: true}
	if s.dialect == Postgres {
		options.Isolation = sql.LevelRepeatableRead
	}
	return s.db.WithContext(ctx).Transaction(f, options)
}

// changingCatalog runs f in the one transaction at a time that may change the catalog. f
// returns whether it did; then the revision grows, and the change is notified with it.
func (s *Store) changingCatalog(ctx context.Context, f func(tx *gorm.DB) (changed bool, err error)) error {
	var hint string
	err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		hint = ""
		meta, err := s.lockMeta(tx)
		if err != nil {
			return err
		}
		if err := s.rememberKeyRing(tx, meta); err != nil {
			return err
		}
		changed, err := f(tx)
		if err != nil || !changed {
			return err
		}
		if err := tx.Exec("UPDATE catalog_meta SET revision = revision + 1 WHERE id = 1").Error; err != nil {
			return err
		}
		hint = catalog.ChangedCatalog
		return s.notify(tx, hint)
	})
	if err == nil && hint != "" {
		s.watchers.tell(hint)
	}
	return err
}

// lockMeta takes the catalog's write lock: a row lock on Postgres; on SQLite every writing
// transaction begins immediate, which is the lock.
func (s *Store) lockMeta(tx *gorm.DB) (*catalog.Meta, error) {
	query := "SELECT * FROM catalog_meta WHERE id = 1"
	if s.dialect == Postgres {
		query += " FOR UPDATE"
	}
	var meta catalog.Meta
	found := tx.Raw(query).Scan(&meta)
	if found.Error == nil && found.RowsAffected == 0 {
		return nil, errors.New("the row of catalog_meta is missing")
	}
	return &meta, found.Error
}

// nowMs reads the database's clock in epoch milliseconds.
func (s *Store) nowMs(tx *gorm.DB) (int64, error) {
	var now int64
	err := tx.Raw("SELECT " + s.now).Scan(&now).Error
	return now, err
}

func gormConfig() *gorm.Config {
	return &gorm.Config{
		Logger:                 logger.Discard, // errors are returned; statements hold sealed secrets
		SkipDefaultTransaction: true,
		TranslateError:         false,
	}
}
