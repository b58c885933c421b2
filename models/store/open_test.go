package store_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

func TestAnUnusableURLIsOneLineWithoutItsPassword(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for databaseURL, want := range map[string]string{
		"":                                   "a database URL is postgres://... or sqlite:PATH",
		"mysql://u:hunter2@h/d":              "a database URL is postgres://... or sqlite:PATH",
		"sqlite:":                            "a SQLite database needs a file",
		"sqlite::memory:":                    "a SQLite database needs a file",
		"sqlite:" + directory:                "is a directory",
		"sqlite:" + filepath.Join(file, "x"): "not a directory",
		"postgres://u:hunter2@127.0.0.1:1/d": `cannot reach Postgres database "d" at 127.0.0.1:1`,
		"postgres://u:hunter2@[::1/d":        "not a valid postgres:// URL",
		"postgres://u:hunter2@h:port/d":      "not a valid postgres:// URL",
	} {
		_, err := store.Open(t.Context(), databaseURL, nil, logrus.New())
		require.ErrorContains(t, err, want, databaseURL)
		require.NotContains(t, err.Error(), "hunter2")
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestADamagedSQLiteFileIsOneClearLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "omniroute.db")
	s := openSQLite(t, path)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)

	for name, content := range map[string][]byte{
		"another file":     []byte(strings.Repeat("this is not a database\n", 100)),
		"a broken page":    slicesReplaced(whole, 4096, bytes.Repeat([]byte{0xff}, 3000)),
		"a truncated file": whole[:len(whole)/2],
	} {
		require.NoError(t, os.WriteFile(path, content, 0o600))

		_, err := store.Open(t.Context(), "sqlite:"+path, nil, logrus.New())

		require.EqualError(t, err, fmt.Sprintf("the file %s is damaged or is not a SQLite database; restore it or move it away", path), name)
	}
}

func TestASQLiteFileIsPrivateAndItsDirectoryIsMade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "omniroute.db")
	s := openSQLite(t, path)
	defer s.Close() //nolint:errcheck // nothing was written

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	info, err = os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestWhatOneSQLiteProcessWritesAnotherWaitsForAndSees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "omniroute.db")
	first := openSQLite(t, path)
	defer first.Close() //nolint:errcheck // the reads are done
	require.NoError(t, first.Migrate(t.Context()))
	second := openSQLite(t, path)
	defer second.Close() //nolint:errcheck // the reads are done

	done := make(chan error, 2)
	for i, s := range []*store.Store{first, second} {
		go func() {
			for n := range 50 {
				record := catalog.RequestRecord{ID: models.RequestID(fmt.Sprint(i, "-", n)), StartedAt: time.Now()}
				if err := s.InsertRequests(t.Context(), []catalog.RequestRecord{record}); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}

	require.NoError(t, <-done)
	require.NoError(t, <-done)
	found, err := first.Requests(t.Context(), "1-49", 1)
	require.NoError(t, err)
	require.Len(t, found, 1)
}

func TestWhilePostgresIsAwayEveryOperationSaysSoByCodeAndWorksAgainAfterwards(t *testing.T) {
	server := postgres.Start(t)
	ring, err := secrets.ParseKeyRing("k:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
	require.NoError(t, err)
	s, err := store.Open(t.Context(), server.Database(t), ring, logrus.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	doc, err := catalog.ParseDocument(strings.NewReader(`providers: [{id: p, class: local, baseURL: "http://p"}]`), "f", os.LookupEnv)
	require.NoError(t, err)

	operations := map[string]func() error{
		"ping":     func() error { return s.Ping(t.Context()) },
		"snapshot": func() error { _, err := s.LoadSnapshot(t.Context()); return err },
		"states":   func() error { _, err := s.States(t.Context(), 0); return err },
		"apply":    func() error { _, err := s.Apply(t.Context(), doc, store.ApplyOptions{}); return err },
		"export":   func() error { _, err := s.Export(t.Context()); return err },
		"keys":     func() error { _, err := s.ListKeys(t.Context()); return err },
		"publish": func() error {
			_, err := s.PublishConnection(t.Context(), catalog.ConnectionState{Connection: "c"})
			return err
		},
		"log": func() error { return s.InsertRequests(t.Context(), []catalog.RequestRecord{{ID: "r"}}) },
	}
	server.Kill(t)
	for name, operation := range operations {
		var coded *models.Error
		err := operation()
		require.ErrorAs(t, err, &coded, name)
		require.Equal(t, models.CodeCatalogUnavailable, coded.Code, name)
	}
	server.Restart(t)

	for name, operation := range operations {
		require.NoError(t, operation(), name)
	}
}

func TestANotificationComesWithTheCommitAndOnlyForWhatChanged(t *testing.T) {
	address := postgres.Shared(t).Database(t)
	s, err := store.Open(t.Context(), address, nil, logrus.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	listener, err := pgx.Connect(t.Context(), s.ListenURL())
	require.NoError(t, err)
	defer listener.Close(t.Context()) //nolint:errcheck // the database goes next
	_, err = listener.Exec(t.Context(), "LISTEN "+catalog.ChangeChannel)
	require.NoError(t, err)

	for _, version := range []int64{3, 2, 1} { // the later two lose
		_, err := s.PublishConnection(t.Context(), catalog.ConnectionState{Connection: "c", Stamp: models.Stamp{Version: version}})
		require.NoError(t, err)
	}
	_, err = listener.Exec(t.Context(), "SELECT pg_notify($1, 'end')", catalog.ChangeChannel)
	require.NoError(t, err)

	for _, want := range []string{catalog.ChangedState, "end"} {
		notification, err := listener.WaitForNotification(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, notification.Payload)
	}
}

func openSQLite(t *testing.T, path string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), "sqlite:"+path, nil, logrus.New())
	require.NoError(t, err)
	return s
}

func slicesReplaced(whole []byte, at int, with []byte) []byte {
	changed := bytes.Clone(whole)
	copy(changed[at:], with)
	return changed
}
