package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"omniroute/gateway/config"
	"omniroute/models"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// cli is the whole command line.
type cli struct {
	Gateway gatewayCmd `cmd:"" help:"Serve clients."`
	Worker  workerCmd  `cmd:"" help:"Run the workflows and activities."`
	Migrate migrateCmd `cmd:"" help:"Bring the database to this version's schema."`
	Apply   applyCmd   `cmd:"" help:"Make the catalog what a file says, all or nothing."`
	Export  exportCmd  `cmd:"" help:"Write the catalog as a file; secrets are left out."`
	Keys    keysCmd    `cmd:"" help:"Manage the API keys of clients."`
	Reset   resetCmd   `cmd:"" help:"Begin anew what is out: a connection, a provider, a model, or everything."`
	Doctor  doctorCmd  `cmd:"" help:"Check everything a process needs, and say what is missing."`
	Config  configCmd  `cmd:"" help:"Show the configuration."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

// process is what a command may touch of the world.
type process struct {
	args    []string
	environ []string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
}

// getenv looks a variable up in the process's environment.
func (p *process) getenv(name string) (string, bool) {
	for _, variable := range p.environ {
		if key, value, _ := strings.Cut(variable, "="); key == name {
			return value, true
		}
	}
	return "", false
}

// run parses the command line, runs its command until it is done or a signal ends it, and
// returns the exit code. A second signal kills, because the first one's handler is gone.
func run(p process) int {
	var grammar cli
	parsed, err := config.Parse(&grammar, config.Invocation{
		Name:        "omniroute",
		Description: "One endpoint in front of many LLM providers, accounts and models.",
		Args:        p.args, Environ: p.environ, Stdout: p.stdout, Stderr: p.stderr,
	})
	var usage config.UsageError
	switch {
	case errors.Is(err, config.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(p.stderr, "omniroute: %v\n", err)
		return exitUsage
	case err != nil:
		fmt.Fprintf(p.stderr, "omniroute: %v\n", err)
		return exitFailure
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	parsed.Bind(&p, parsed)
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(); err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintf(p.stderr, "omniroute: %s\n", explain(err))
		}
		if errors.As(err, &usage) {
			return exitUsage
		}
		return exitFailure
	}
	return exitOK
}

// explain is an error for a terminal: a coded one with its cause, which an operator may see.
func explain(err error) string {
	var coded *models.Error
	if !errors.As(err, &coded) {
		return err.Error()
	}
	if coded.Cause == nil {
		return coded.Message
	}
	return coded.Message + ": " + strings.Join(strings.Fields(coded.Cause.Error()), " ")
}

// errReported ends a command that has already said what is wrong.
var errReported = errors.New("reported")

type versionCmd struct{}

// Run prints the version and what built it.
func (versionCmd) Run(p *process) error {
	_, err := fmt.Fprintf(p.stdout, "omniroute %s %s %s/%s\n", currentVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is set by a release's build.
var version string

// currentVersion is the release's version, else what the toolchain knows of the module.
func currentVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
