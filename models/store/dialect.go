package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/libtnb/sqlite"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

// Bounds of the connection pools. The healthy path of a request needs no connection, so a
// replica needs few: the feed, the ledger's batches, operators, and the worker's activities.
const (
	postgresMaxOpen  = 10
	postgresMaxIdle  = 4
	postgresIdleTime = 5 * time.Minute
	postgresLifetime = 30 * time.Minute
	connectTimeout   = 5 * time.Second

	sqliteMaxOpen     = 4
	sqliteBusyTimeout = 5 * time.Second
	// A larger file is not checked page by page at start: that would cost seconds.
	sqliteCheckBelow = 64 << 20
)

func openPostgres(ctx context.Context, databaseURL string) (*Store, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		// pgx quotes the URL in its error, with the password masked only where it can tell.
		return nil, errors.New("the database URL is not a valid postgres:// URL")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "omniroute"
	}
	pool := stdlib.OpenDB(*config)
	pool.SetMaxOpenConns(postgresMaxOpen)
	pool.SetMaxIdleConns(postgresMaxIdle)
	pool.SetConnMaxIdleTime(postgresIdleTime)
	pool.SetConnMaxLifetime(postgresLifetime)
	if err := pool.PingContext(ctx); err != nil {
		pool.Close() //nolint:errcheck // nothing was open
		return nil, fmt.Errorf("cannot reach Postgres database %q at %s:%d: %s",
			config.Database, config.Host, config.Port, oneLine(err))
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: pool}), gormConfig())
	if err != nil {
		pool.Close() //nolint:errcheck // the error of opening is the one to tell
		return nil, fmt.Errorf("cannot open the Postgres database: %s", oneLine(err))
	}
	return &Store{
		db: db, pool: pool, dialect: Postgres, listenURL: databaseURL,
		// clock_timestamp moves on inside a transaction, now() does not.
		now: "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
	}, nil
}

func openSQLite(ctx context.Context, path string) (*Store, error) {
	if path == "" || path == ":memory:" {
		return nil, errors.New("a SQLite database needs a file: sqlite:PATH")
	}
	if err := createPrivately(path); err != nil {
		return nil, fmt.Errorf("cannot use the SQLite database %s: %w", path, rootOf(err))
	}
	pool, err := sql.Open(sqlite.DriverName, sqliteDSN(path))
	if err != nil {
		return nil, fmt.Errorf("cannot open the SQLite database %s: %s", path, oneLine(err))
	}
	pool.SetMaxOpenConns(sqliteMaxOpen)
	pool.SetMaxIdleConns(sqliteMaxOpen)
	if err := checkSQLite(ctx, pool, path); err != nil {
		pool.Close() //nolint:errcheck // the damage is the error to tell
		return nil, err
	}
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), gormConfig())
	if err != nil {
		pool.Close() //nolint:errcheck // the error of opening is the one to tell
		return nil, fmt.Errorf("cannot open the SQLite database %s: %s", path, oneLine(err))
	}
	return &Store{
		db: db, pool: pool, dialect: SQLite,
		now: "CAST(ROUND(unixepoch('subsec') * 1000) AS INTEGER)",
	}, nil
}

// createPrivately makes the file and its directory readable by the owner only: it holds
// sealed credentials and a request log.
func createPrivately(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// sqliteDSN writes the path as a URI, in which only '?', '#' and '%' mean something. Writing
// transactions begin immediate: a deferred one that turns to writing cannot wait for its lock.
func sqliteDSN(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_txlock=immediate" +
		"&_pragma=" + url.QueryEscape(fmt.Sprintf("busy_timeout(%d)", sqliteBusyTimeout.Milliseconds())) +
		"&_pragma=" + url.QueryEscape("journal_mode(WAL)") +
		"&_pragma=" + url.QueryEscape("synchronous(NORMAL)") +
		"&_pragma=" + url.QueryEscape("foreign_keys(1)")
}

func checkSQLite(ctx context.Context, pool *sql.DB, path string) error {
	check := "PRAGMA schema_version"
	if info, err := os.Stat(path); err == nil && info.Size() < sqliteCheckBelow {
		check = "PRAGMA quick_check(1)"
	}
	var answer string
	err := pool.QueryRowContext(ctx, check).Scan(&answer)
	switch {
	case isDamaged(err) || err == nil && check == "PRAGMA quick_check(1)" && answer != "ok":
		return fmt.Errorf("the file %s is damaged or is not a SQLite database; restore it or move it away", path)
	case err != nil:
		return fmt.Errorf("cannot open the SQLite database %s: %s", path, oneLine(err))
	default:
		return nil
	}
}
