package harness

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"omniroute/integration/harness/postgres"
)

// Main runs a package's tests, stops what they shared and fails when a goroutine is left:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
func Main(m *testing.M) {
	code := postgres.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
