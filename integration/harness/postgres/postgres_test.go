package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestEachDatabaseOfTheSharedServerIsItsOwn(t *testing.T) {
	server := Shared(t)
	first, second := connect(t, server.Database(t)), connect(t, server.DatabaseTCP(t))

	_, err := first.Exec(t.Context(), "CREATE TABLE mine (id int)")
	require.NoError(t, err)

	var seen bool
	require.NoError(t, second.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&seen))
	require.False(t, seen)
	require.Same(t, server, Shared(t))
}

func TestACommitSurvivesAKillAndARestartOnTheSameAddress(t *testing.T) {
	server := Start(t)
	address := server.DatabaseTCP(t)
	before := connect(t, address)
	_, err := before.Exec(t.Context(), "CREATE TABLE kept (id int)")
	require.NoError(t, err)

	server.Kill(t)
	_, err = pgx.Connect(t.Context(), address)
	require.Error(t, err)
	server.Restart(t)

	_, err = connect(t, address).Exec(t.Context(), "INSERT INTO kept VALUES (1)")
	require.NoError(t, err)
}

func TestAPausedServerHoldsAConnectionOpenAndAnswersOnceResumed(t *testing.T) {
	server := Start(t)
	connection := connect(t, server.Database(t))

	server.Pause(t)
	answer := make(chan error, 1)
	go func() {
		_, err := connection.Exec(context.Background(), "SELECT 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume(t)

	require.NoError(t, <-answer)
}

func TestNothingOfAServerIsLeft(t *testing.T) {
	server, err := start()
	require.NoError(t, err)

	server.remove()

	require.NoDirExists(t, server.dir)
	require.Nil(t, server.process)
	_, err = pgx.Connect(t.Context(), server.TCPURL("postgres"))
	require.Error(t, err)
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { connection.Close(context.Background()) }) //nolint:errcheck // the server may be gone
	return connection
}
