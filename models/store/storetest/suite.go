// Package storetest is the conformance suite of the store. Every dialect passes the same
// one, each test on a database of its own.
package storetest

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for looking behind the store's back
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"omniroute/models/catalog"
	"omniroute/models/secrets"
	"omniroute/models/store"
)

// Run runs the suite. newDatabase makes a database without a catalog, migrated or not, and
// returns its URL.
func Run(t *testing.T, newDatabase func(t *testing.T) (databaseURL string)) {
	for name, tests := range map[string]map[string]func(*testing.T, *world){
		"Migrations": migrationTests, "Catalog": catalogTests, "Secrets": secretTests,
		"Keys": keyTests, "Tokens": tokenTests, "States": stateTests, "Probe": probeTests, "Requests": requestTests, "Settings": settingTests,
	} {
		t.Run(name, func(t *testing.T) {
			for name, f := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(t, newWorld(t, newDatabase(t)))
				})
			}
		})
	}
}

// Key rings of the suite: one key, and the same after a rotation. The texts are the base64
// of 32 equal bytes.
const (
	oldKey = "old:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
	newKey = "new:QkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkI="
)

// world is one database and what a test does to it.
type world struct {
	url   string
	env   map[string]string
	store *store.Store // migrated, with the key ring "old"
	log   *test.Hook
}

func newWorld(t *testing.T, databaseURL string) *world {
	t.Helper()
	w := &world{url: databaseURL, env: map[string]string{
		"OPENAI_KEY": "sk-openai-secret-one", "OTHER_KEY": "sk-other-secret-two",
		"CI_KEY": "ci-key-ci-key-ci-key-ci-key-ci-key-1",
	}}
	w.store = w.open(t, oldKey)
	require.NoError(t, w.store.Migrate(t.Context()))
	return w
}

// open opens the world's database once more, with the keys of a ring.
func (w *world) open(t *testing.T, keys string) *store.Store {
	t.Helper()
	s, err := w.tryOpen(t, keys)
	require.NoError(t, err)
	return s
}

func (w *world) tryOpen(t *testing.T, keys string) (*store.Store, error) {
	t.Helper()
	var ring *secrets.KeyRing
	if keys != "" {
		var err error
		ring, err = secrets.ParseKeyRing(keys)
		require.NoError(t, err)
	}
	log, hook := test.NewNullLogger()
	log.SetLevel(logrus.DebugLevel)
	w.log = hook
	s, err := store.Open(t.Context(), w.url, ring, log)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, s.Close()) })
	}
	return s, err
}

// sql is the database without the store.
func (w *world) sql(t *testing.T) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", w.url
	if path, isSQLite := strings.CutPrefix(w.url, "sqlite:"); isSQLite {
		driver, dsn = "sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func (w *world) parse(t *testing.T, text string) *catalog.Document {
	t.Helper()
	doc, err := catalog.ParseDocument(strings.NewReader(text), "catalog.yaml", func(name string) (string, bool) {
		value, set := w.env[name]
		return value, set
	})
	require.NoError(t, err)
	return doc
}

func (w *world) apply(t *testing.T, text string) *catalog.Diff {
	t.Helper()
	diff, err := w.store.Apply(t.Context(), w.parse(t, text), store.ApplyOptions{Actor: "test"})
	require.NoError(t, err)
	return diff
}

func (w *world) prune(t *testing.T, text string) (*catalog.Diff, error) {
	t.Helper()
	return w.store.Apply(t.Context(), w.parse(t, text), store.ApplyOptions{Prune: true, Actor: "test"})
}

func (w *world) snapshot(t *testing.T) *catalog.Snapshot {
	t.Helper()
	snapshot, err := w.store.LoadSnapshot(t.Context())
	require.NoError(t, err)
	return snapshot
}

func (w *world) revision(t *testing.T) int64 {
	t.Helper()
	revision, err := w.store.CatalogRevision(t.Context())
	require.NoError(t, err)
	return revision
}

// text is everything in the database as one text, for looking for what must not be there.
func (w *world) text(t *testing.T) string {
	t.Helper()
	db := w.sql(t)
	var all strings.Builder
	for _, table := range w.tables(t, db) {
		rows, err := db.QueryContext(context.Background(), "SELECT * FROM "+table)
		require.NoError(t, err)
		columns, err := rows.Columns()
		require.NoError(t, err)
		for rows.Next() {
			values := make([]sql.NullString, len(columns))
			into := make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			require.NoError(t, rows.Scan(into...))
			for i, v := range values {
				all.WriteString(table + "." + columns[i] + "=" + v.String + "\n")
			}
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	return all.String()
}

func (w *world) tables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	query := "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
	if w.store.Dialect() == store.SQLite {
		query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
	}
	rows, err := db.QueryContext(context.Background(), query)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // checked by Err
	var tables []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(t, rows.Err())
	return tables
}

// The catalog most tests begin with.
const basic = `
providers:   [{id: openai, class: api_key, baseURL: "https://api.openai.com/v1"},
              {id: other, class: api_key, baseURL: "https://other.example", timeouts: {connectMs: 2000}}]
connections: [{id: openai-1, provider: openai, credential: {apiKey: "${OPENAI_KEY}"}, priority: 2, maxConcurrent: 4},
              {id: other-1, provider: other, credential: {apiKey: "${OTHER_KEY}"}}]
models:      [{id: gpt-x, provider: openai, contextWindow: 128000, price: {input: 2.5, output: 10}, capabilities: [tools]},
              {id: deep/y, provider: other}]
combos:      [{name: best, targets: [{model: openai/gpt-x}, {model: other/deep/y, connection: other-1, weight: 30}], config: {maxRetries: 1}}]
apiKeys:     [{name: ci, key: "${CI_KEY}", allowedModels: [best], allowedConnections: [openai-1, other-1], expiresAt: 2030-01-01}]
settings:    {resilience: {connectionCooldown: {apikey: {baseCooldownMs: 5000}}}, timeouts: {idleMs: 90000}}
`

func (w *world) ring(t *testing.T) *secrets.KeyRing {
	t.Helper()
	ring, err := secrets.ParseKeyRing(oldKey)
	require.NoError(t, err)
	return ring
}
