package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"omniroute/models"
	"omniroute/models/catalog"
)

// SQLSTATE classes and codes that mean "not now" rather than "not so": connection
// exceptions, insufficient resources, operator intervention (shutdown, crash, starting up).
var awayClasses = []string{"08", "53", "57"}

const missingTable = "42P01"

// Primary result codes of SQLite.
const (
	sqliteBusy    = 5
	sqliteLocked  = 6
	sqliteIOError = 10
	sqliteCorrupt = 11
	sqliteFull    = 13
	sqliteCantOpn = 14
	sqliteNotADB  = 26
)

// fail gives every error that leaves the package its form. One that says the database is
// away becomes the coded error a client sees as 503; problems and coded errors pass; the
// rest is told with what was being done.
func (s *Store) fail(doing string, err error) error {
	if err == nil {
		return nil
	}
	var coded *models.Error
	var document *catalog.DocumentError
	switch {
	case errors.As(err, &coded), errors.As(err, &document), errors.Is(err, context.Canceled):
		return err
	case isMissingTable(err):
		return fmt.Errorf("%s: the database is not migrated; run omniroute migrate", doing)
	case isAway(err):
		return models.Errorf(models.CodeCatalogUnavailable, "the database is not available (%s)", doing).WithCause(err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// isAway reports whether the error speaks of the database as a whole, so that the same
// operation may succeed later unchanged.
func isAway(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		for _, class := range awayClasses {
			if strings.HasPrefix(refused.Code, class) {
				return true
			}
		}
		return false
	}
	if code, ok := sqliteCode(err); ok {
		switch code {
		case sqliteBusy, sqliteLocked, sqliteIOError, sqliteFull, sqliteCantOpn:
			return true
		}
		return false
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	return errors.As(err, &network) || errors.As(err, &connecting) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, sql.ErrConnDone) ||
		pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "sql: database is closed")
}

func isMissingTable(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code == missingTable
	}
	return err != nil && strings.Contains(err.Error(), "no such table")
}

func isDamaged(err error) bool {
	code, ok := sqliteCode(err)
	return ok && (code == sqliteCorrupt || code == sqliteNotADB)
}

// sqliteCode is the primary result code of an error of the SQLite driver.
func sqliteCode(err error) (int, bool) {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return 0, false
	}
	return coded.Code() & 0xff, true
}

// oneLine is an error for an operator's terminal.
func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", " ")), " ")
}

// rootOf drops the operation and path a file error repeats.
func rootOf(err error) error {
	var pathError *os.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}
