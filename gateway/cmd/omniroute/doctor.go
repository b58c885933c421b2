package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"text/tabwriter"
	"time"

	"omniroute/gateway/config"
	"omniroute/models/secrets"
	"omniroute/models/store"
	"omniroute/workflows/contract"
	"omniroute/workflows/dial"
)

// Each check is given this long, so that a doctor is done when nothing answers.
const doctorTimeout = 5 * time.Second

type doctorCmd struct {
	config.Process
	config.Database
	config.Keys
	config.Temporal
	config.Gateway
}

// finding is one line of the doctor's table.
type finding struct {
	check   string
	problem error
	detail  string
}

// Run checks what a gateway and a worker need, one after the other, and fails when anything
// is missing. It changes nothing.
func (c doctorCmd) Run(ctx context.Context, p *process) error {
	findings := c.checkDatabase(ctx)
	findings = append(findings, c.checkTemporal(ctx, p)...)
	findings = append(findings, c.checkListen(ctx))

	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	failed := false
	for _, f := range findings {
		verdict, detail := "ok", f.detail
		if f.problem != nil {
			verdict, detail, failed = "FAIL", f.problem.Error(), true
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.check, verdict, detail)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if failed {
		return errReported
	}
	return nil
}

var errBefore = errors.New("not checked: see above")

// checkDatabase opens the database without the key ring first, so that a ring that does not
// fit is told apart from a database that does not answer.
func (c doctorCmd) checkDatabase(ctx context.Context) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	database := finding{check: "database"}
	migrations := finding{check: "migrations", detail: "up to date", problem: errBefore}
	keyRing := finding{check: "key ring", detail: "readable"}
	credentials := finding{check: "credentials", problem: errBefore}

	group := catalogGroup{c.Process, c.Database, c.Keys}
	ring, ringErr := c.Ring(c.Process)
	keyRing.problem = ringErr
	database.problem = group.mustExist()
	if database.problem == nil {
		database.detail, migrations.problem, database.problem = c.inspectDatabase(ctx)
	}
	if database.problem == nil && migrations.problem == nil && ringErr == nil {
		keyRing.detail = "the one this database was made with"
		credentials, keyRing.problem = c.inspectCredentials(ctx, ring)
	}
	return []finding{database, migrations, keyRing, credentials}
}

func (c doctorCmd) inspectDatabase(ctx context.Context) (dialect string, schema, unusable error) {
	s, err := store.Open(ctx, c.URL(c.Process), nil, c.Logger(io.Discard))
	if err != nil {
		return "", errBefore, err
	}
	schema = closing(s, func() error {
		pending, err := s.PendingMigrations(ctx)
		if err == nil && pending > 0 {
			err = behind(pending)
		}
		return err
	})
	return s.Dialect(), schema, nil
}

func (c doctorCmd) inspectCredentials(ctx context.Context, ring *secrets.KeyRing) (credentials finding, misfit error) {
	credentials = finding{check: "credentials", problem: errBefore}
	s, err := store.Open(ctx, c.URL(c.Process), ring, c.Logger(io.Discard))
	if err != nil {
		return credentials, err
	}
	credentials.problem = closing(s, func() error {
		opened, err := s.CheckSecrets(ctx)
		credentials.detail = fmt.Sprintf("%d open with the key ring", opened)
		return err
	})
	return credentials, nil
}

func (c doctorCmd) checkTemporal(ctx context.Context, p *process) []finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	reachable := finding{check: "temporal"}
	namespace := finding{check: "namespace", problem: errBefore}
	attributes := finding{check: "search attributes", problem: errBefore}
	workers := finding{check: "workers", problem: errBefore}

	log := c.Logger(io.Discard)
	settings := dial.Config{Role: "doctor", Env: c.Env(p.environ)}
	options, err := dial.Options(settings, log)
	if err != nil {
		reachable.problem = err
		return []finding{reachable, namespace, attributes, workers}
	}
	client, err := dial.Lazy(settings, log)
	if err != nil {
		reachable.problem = err
		return []finding{reachable, namespace, attributes, workers}
	}
	defer client.Close()
	seen := dial.Inspect(ctx, client, options.Namespace)
	reachable.detail, namespace.detail, attributes.detail = options.HostPort, options.Namespace, "registered"
	workers.detail = "one polls " + contract.TaskQueueState
	if seen.Reachable != nil {
		reachable.problem = fmt.Errorf("%s does not answer: %w", options.HostPort, seen.Reachable)
		return []finding{reachable, namespace, attributes, workers}
	}
	namespace.problem = seen.Namespace
	if seen.Namespace == nil {
		attributes.problem, workers.problem = seen.Attributes, seen.Workers
	}
	return []finding{reachable, namespace, attributes, workers}
}

// checkListen accepts an address that is free, and one on which a gateway of ours answers.
func (c doctorCmd) checkListen(ctx context.Context) finding {
	found := finding{check: "listen", detail: c.Listen + " is free"}
	var config net.ListenConfig
	listener, taken := config.Listen(ctx, "tcp", c.Listen)
	if taken == nil {
		found.problem = listener.Close()
		return found
	}
	readiness, ours := askGateway(ctx, c.Listen)
	if !ours {
		found.problem = taken
		return found
	}
	found.detail = c.Listen + " is served by a running gateway, readiness " + readiness
	return found
}

// askGateway asks whoever listens whether it is ready; a gateway is known by its request ids.
func askGateway(ctx context.Context, address string) (readiness string, ours bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return "", false
	}
	client := http.Client{Timeout: doctorTimeout}
	response, err := client.Do(request)
	if err != nil {
		return "", false
	}
	_ = response.Body.Close()
	return response.Status, response.Header.Get("X-Request-Id") != ""
}
