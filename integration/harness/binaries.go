package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Variables that name binaries built before, as "make test" does. They lack the program's
// own prefix, which would make them settings.
const (
	envBinary      = "OMNI_TEST_BIN"
	envPlainBinary = "OMNI_TEST_PLAIN_BIN"
	envDevBinary   = "OMNI_TEST_DEV_BIN"
)

// binary is omniroute under the race detector.
var binary = sync.OnceValues(func() (string, error) {
	return built(envBinary, "bin/race/omniroute", ".", "-race", "./gateway/cmd/omniroute")
})

// plainBinary is omniroute as people run it, for tests that measure.
var plainBinary = sync.OnceValues(func() (string, error) {
	return built(envPlainBinary, "bin/omniroute", ".", "./gateway/cmd/omniroute")
})

// devBinary is omniroute-dev. Its Temporal server is not ours to race-check.
var devBinary = sync.OnceValues(func() (string, error) {
	return built(envDevBinary, "bin/omniroute-dev", "deployments/dev", "-ldflags=-s -w", ".")
})

func built(env, target, folder string, args ...string) (string, error) {
	if path := os.Getenv(env); path != "" {
		return path, nil
	}
	target = filepath.Join(root(), target)
	build := exec.Command("go", append([]string{"-C", filepath.Join(root(), folder), "build", "-o", target}, args...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", target, err, out)
	}
	return target, nil
}

// root is the folder of the repository, from where this file was compiled.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Binary is the path of omniroute.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	require.NoError(t, err)
	return path
}

// PlainBinary is the path of omniroute without the race detector.
func PlainBinary(t testing.TB) string {
	t.Helper()
	path, err := plainBinary()
	require.NoError(t, err)
	return path
}

// DevBinary is the path of omniroute-dev.
func DevBinary(t testing.TB) string {
	t.Helper()
	path, err := devBinary()
	require.NoError(t, err)
	return path
}
