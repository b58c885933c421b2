package store

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
	"omniroute/models/catalog"
)

// entities are all tables of the migrations, as the code reads and writes them.
var entities = []any{
	&catalog.Provider{}, &catalog.Connection{}, &catalog.Model{}, &catalog.Combo{}, &catalog.ComboTarget{},
	&catalog.APIKey{}, &catalog.Setting{}, &catalog.Audit{}, &catalog.Meta{},
	&catalog.ConnectionTokens{}, &catalog.ConnectionStateRow{}, &catalog.CircuitBreakerRow{}, &catalog.RequestRow{},
}

// The oracle is what gorm would create from the entities: every table and column of the
// migrations is one of theirs, with the same type, nullability and place in the primary key.
func TestTheMigrationsMakeTheColumnsTheEntitiesExpect(t *testing.T) {
	for dialect, newDatabase := range map[string]func(*testing.T) string{
		SQLite:   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "test.db") },
		Postgres: func(t *testing.T) string { return postgres.Shared(t).Database(t) },
	} {
		t.Run(dialect, func(t *testing.T) {
			migrated, oracle := open(t, newDatabase(t)), open(t, newDatabase(t))
			require.NoError(t, migrated.Migrate(t.Context()))
			require.NoError(t, oracle.db.AutoMigrate(entities...))

			require.Equal(t, schema(t, oracle), schema(t, migrated))
		})
	}
}

func open(t *testing.T, databaseURL string) *Store {
	t.Helper()
	s, err := Open(t.Context(), databaseURL, nil, logrus.New())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// schema lists the columns as "table.column type null key", sorted.
func schema(t *testing.T, s *Store) []string {
	t.Helper()
	tables, err := s.db.Migrator().GetTables()
	require.NoError(t, err)
	var columns []string
	for _, table := range tables {
		if table == "goose_db_version" || strings.HasPrefix(table, "sqlite_") {
			continue
		}
		types, err := s.db.Migrator().ColumnTypes(table)
		require.NoError(t, err)
		for _, column := range types {
			nullable, _ := column.Nullable()
			key, _ := column.PrimaryKey()
			line := table + "." + column.Name() + " " + strings.ToLower(column.DatabaseTypeName())
			if nullable && !key {
				line += " null"
			}
			if key {
				line += " key"
			}
			columns = append(columns, line)
		}
	}
	slices.Sort(columns)
	return columns
}
