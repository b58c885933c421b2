package store

import (
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
)

func TestARequestIsWrittenWithAllItsColumns(t *testing.T) {
	s := open(t, postgres.Shared(t).Database(t))
	require.NoError(t, s.Migrate(t.Context()))
	types, err := s.db.Migrator().ColumnTypes("requests")
	require.NoError(t, err)

	var stored, written []string
	for _, column := range types {
		stored = append(stored, column.Name())
	}
	for _, column := range requestColumns {
		written = append(written, column.name)
	}
	require.ElementsMatch(t, stored, written)
}
