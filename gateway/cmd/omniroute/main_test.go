package main

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"omniroute/models/secrets"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"omniroute": main})
}

// TestCommandLine runs every script of testdata/script in a directory and with a key ring
// of its own, on SQLite, where nothing answers for Temporal.
func TestCommandLine(t *testing.T) {
	ring, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	other, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			address, err := freeAddress()
			if err != nil {
				return err
			}
			env.Setenv("ADDRESS", address)
			env.Setenv("OMNIROUTE_ENCRYPTION_KEYS", ring)
			env.Setenv("OMNIROUTE_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			env.Setenv("OMNIROUTE_TEMPORAL_ADDRESS", "127.0.0.1:1")
			env.Setenv("OTHER_RING", other)
			return os.Mkdir(filepath.Join(env.WorkDir, "data"), 0o700)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"answers": answers},
	})
}

// freeAddress is a loopback address that nobody listens on at this moment.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// answers waits until a URL answers 200, for 20 seconds at most.
func answers(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: answers URL")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		response, err := http.Get(args[0])
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return
		}
	}
	ts.Fatalf("%s did not answer 200", args[0])
}
