// Command omniroute-dev is the whole system in one process for development and first looks:
// Temporal server and Web UI, worker, gateway, and a demo against a scripted provider.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"omniroute/gateway/config"
)

// version is set by the build.
var version = "development"

// retention is how long Temporal keeps closed workflows.
const retention = 7 * 24 * time.Hour

// commands is the grammar. Without a command, serve runs.
type commands struct {
	Serve    serveCmd    `cmd:"" default:"withargs" help:"Run everything (the default)."`
	Temporal temporalCmd `cmd:"" help:"Run the Temporal server and its Web UI alone, for gateways and workers started by hand."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
}

type versionCmd struct{}

// process is what this program has from its surroundings.
type process struct {
	args, environ  []string
	stdout, stderr io.Writer
}

func main() {
	// After the first signal the default action is back: a second Ctrl-C ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	err := run(ctx, process{args: os.Args[1:], environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr})
	var usage config.UsageError
	switch {
	case err == nil:
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(os.Stderr, "omniroute-dev: %v\n", oneLine(err))
		os.Exit(2)
	default:
		_, _ = fmt.Fprintf(os.Stderr, "omniroute-dev: %v\n", oneLine(err))
		os.Exit(1)
	}
}

func run(ctx context.Context, p process) error {
	var c commands
	parsed, err := config.Parse(&c, config.Invocation{
		Name:        "omniroute-dev",
		Description: "Everything in one process: Temporal with its Web UI, worker, gateway and a demo provider. Data stays in --data-dir.",
		Args:        p.args, Environ: p.environ, Stdout: p.stdout, Stderr: p.stderr,
	})
	if errors.Is(err, config.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	switch parsed.Command() {
	case "temporal":
		return c.Temporal.run(ctx, p)
	case "version":
		_, err := fmt.Fprintln(p.stdout, "omniroute-dev "+version)
		return err
	default:
		c.Serve.suitAPerson(parsed.Settings)
		return c.Serve.run(ctx, p)
	}
}

// oneLine joins what errors.Join put on several lines.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// anyPort reports whether the address leaves the port to the system.
func anyPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	return err == nil && port == "0"
}
