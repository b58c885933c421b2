package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/integration/harness/postgres"
	"omniroute/models/store"
	"omniroute/models/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

func TestStoreOnSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) string {
		return "sqlite:" + filepath.Join(t.TempDir(), "it's 100% a #test?.db")
	})
}

func TestStoreOnPostgres(t *testing.T) {
	server := postgres.Shared(t)
	migrated := server.Database(t) // once, and copied: most of a test's time would be migrating
	s, err := store.Open(t.Context(), migrated, nil, logrus.New())
	require.NoError(t, err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.Close())

	storetest.Run(t, func(t *testing.T) string { return server.DatabaseLike(t, migrated) })
}
