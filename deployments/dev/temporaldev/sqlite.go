package temporaldev

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
	_ "modernc.org/sqlite" // driver "sqlite", which the server links anyway
)

// quickCheckLimit bounds the files that are checked page by page at start; a larger one
// gets the cheap checks only.
const quickCheckLimit = 64 << 20

// prepareDatabase makes file a Temporal database with the namespace in it. A file that is
// there already must be one.
func prepareDatabase(file, namespace string, retention time.Duration) (*config.SQL, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	_, err = os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := createDatabase(file); err != nil {
			return nil, fmt.Errorf("temporal database %s: %w", file, err)
		}
	case err != nil:
		return nil, fmt.Errorf("temporal database %s: %w", file, err)
	default:
		if err := checkDatabase(file); err != nil {
			return nil, fmt.Errorf("temporal database %s is damaged (%w); move it away to start with an empty one", file, err)
		}
	}
	conf := sqlConfig(file)
	ns, err := sqlite.NewNamespaceConfig(clusterName, namespace, false, nil)
	if err != nil {
		return nil, fmt.Errorf("temporal namespace %q: %w", namespace, err)
	}
	ns.Detail.Config.Retention = durationpb.New(retention)
	if err := sqlite.CreateNamespaces(conf, ns); err != nil {
		return nil, fmt.Errorf("temporal namespace %q: %w", namespace, err)
	}
	return conf, nil
}

// sqlConfig opens the file with a write-ahead log: twice as fast as the default journal, and
// as safe against a killed process.
func sqlConfig(file string) *config.SQL {
	return &config.SQL{
		PluginName:   sqliteplugin.PluginName,
		DatabaseName: file,
		ConnectAttributes: map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "1", "busy_timeout": "10000",
		},
	}
}

// createDatabase lays the schema in a file beside and renames it, so that a process killed
// half-way leaves nothing that looks like a database.
func createDatabase(file string) error {
	draft := file + ".new"
	for _, leftover := range []string{draft, draft + "-journal"} {
		if err := os.Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	conf := &config.SQL{
		PluginName: sqliteplugin.PluginName, DatabaseName: draft,
		ConnectAttributes: map[string]string{"mode": "rwc"},
	}
	if err := sqlite.SetupSchema(conf); err != nil {
		return err
	}
	if err := os.Chmod(draft, 0o600); err != nil {
		return err
	}
	return os.Rename(draft, file)
}

func checkDatabase(file string) error {
	info, err := checkHeader(file)
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+file+"?mode=rw&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, table := range []string{"namespaces", "executions", "history_node", "executions_visibility"} {
		if err := db.QueryRowContext(ctx, "SELECT 1 FROM "+table+" LIMIT 1").Scan(new(int)); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if info.Size() > quickCheckLimit {
		return nil
	}
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return errors.New("quick check failed")
	}
	return nil
}

// checkHeader tells a file of another kind apart before SQLite does, in plainer words.
func checkHeader(file string) (fs.FileInfo, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	magic := []byte("SQLite format 3\x00")
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(f, head); err != nil || !bytes.Equal(head, magic) {
		return nil, errors.New("not an SQLite file")
	}
	return f.Stat()
}
