package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"omniroute/gateway/config"
	"omniroute/gateway/durable"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/store"
	"omniroute/workflows/dial"
)

// resetWidth is how many workflows are asked at a time.
const resetWidth = 8

// resetCmd asks the workflows that own the state, so that every replica follows. It needs the
// catalog for the names and no gateway.
type resetCmd struct {
	Connection string `placeholder:"ID" help:"Begin a new, healthy era of a connection, whatever it is out for. With --model: only there."`
	Provider   string `placeholder:"ID" help:"Close a provider's breaker and end its cooldowns; its connections stay as they are."`
	Model      string `placeholder:"NAME" help:"End the lockouts of a model, PROVIDER/MODEL or its id alone, on every connection that has one."`
	All        bool   `help:"Reset every provider and connection whose published state is not healthy."`

	config.Process
	config.Database
	config.Temporal
}

// resetStep is one request to one workflow.
type resetStep struct {
	audit catalog.Audit
	done  string // what is printed once it is done
	run   func(context.Context, *durable.Durable) error
}

// Run resets what is named and prints a line for each. What was done before an error stays
// done, and is printed.
func (c resetCmd) Run(ctx context.Context, p *process) error {
	if err := c.check(); err != nil {
		return config.UsageError{Err: err}
	}
	group := catalogGroup{c.Process, c.Database, config.Keys{}}
	if err := group.mustExist(); err != nil {
		return err
	}
	// Nothing that is sealed is needed, so there is no key ring, and nothing to say about that.
	return group.open(ctx, nil, c.Logger(io.Discard), func(s *store.Store) error {
		snapshot, err := s.LoadSnapshot(ctx)
		if err != nil {
			return err
		}
		states, err := s.States(ctx, 0)
		if err != nil {
			return err
		}
		steps, err := c.plan(snapshot, states, time.Now())
		if err != nil {
			return err
		}
		if len(steps) == 0 {
			_, err := fmt.Fprintln(p.stdout, "nothing to reset: "+c.nothing())
			return err
		}
		return c.carryOut(ctx, p, s, snapshot, steps)
	})
}

func (c resetCmd) check() error {
	named := 0
	for _, given := range []bool{c.Connection != "" && c.Model == "", c.Provider != "", c.Model != "", c.All} {
		if given {
			named++
		}
	}
	if named != 1 {
		return errors.New("name one of --connection, --provider, --model and --all; only --model goes with --connection")
	}
	return nil
}

// plan works out what a selection means, by the catalog and the published states.
func (c resetCmd) plan(snapshot *catalog.Snapshot, states *catalog.States, now time.Time) ([]resetStep, error) {
	connection := models.ConnectionID(c.Connection)
	if c.Connection != "" && snapshot.Connections[connection] == nil {
		return nil, unknownName("connection", c.Connection, snapshot.Connections)
	}
	provider := models.ProviderID(c.Provider)
	if c.Provider != "" && snapshot.Providers[provider] == nil {
		return nil, unknownName("provider", c.Provider, snapshot.Providers)
	}
	switch {
	case c.Model != "":
		return c.planModel(snapshot, states, now)
	case c.Connection != "":
		return []resetStep{resetConnection(connection)}, nil
	case c.Provider != "":
		return []resetStep{resetProvider(provider)}, nil
	}
	var steps []resetStep
	for _, state := range states.Providers {
		if !state.State.Settled() {
			steps = append(steps, resetProvider(state.Provider))
		}
	}
	for _, state := range states.Connections {
		if !state.State.Settled() {
			steps = append(steps, resetConnection(state.Connection))
		}
	}
	return steps, nil
}

// planModel finds the lockouts of a model. On a connection that is named they are ended whether
// or not they have been published: a replica may know of one that no row tells.
func (c resetCmd) planModel(snapshot *catalog.Snapshot, states *catalog.States, now time.Time) ([]resetStep, error) {
	var steps []resetStep
	found := false
	for ref, model := range snapshot.Models {
		if c.Model != ref.Model && c.Model != ref.String() {
			continue
		}
		found = true
		keys := resilience.KeysOf(ref.Model, model.Family)
		if c.Connection != "" {
			if snapshot.Connections[models.ConnectionID(c.Connection)].Provider.ID == ref.Provider {
				steps = append(steps, enableModel(models.ConnectionID(c.Connection), ref, keys))
			}
			continue
		}
		for _, state := range states.Connections {
			if lock, _ := state.State.Locked(ref.Model, model.Family, now); state.Provider == ref.Provider && lock != nil {
				steps = append(steps, enableModel(state.Connection, ref, keys))
			}
		}
	}
	if !found {
		var known []string
		for ref := range snapshot.Models {
			known = append(known, ref.String())
		}
		return nil, fmt.Errorf("there is no model %q%s", c.Model, didYouMean(c.Model, known))
	}
	if c.Connection != "" && len(steps) == 0 {
		return nil, fmt.Errorf("model %q is not one of connection %q, whose provider is %q",
			c.Model, c.Connection, snapshot.Connections[models.ConnectionID(c.Connection)].Provider.ID)
	}
	slices.SortFunc(steps, func(a, b resetStep) int { return strings.Compare(a.done, b.done) })
	return steps, nil
}

func (c resetCmd) nothing() string {
	if c.Model != "" {
		return fmt.Sprintf("no published state has %q locked; name a --connection to end what only a gateway knows", c.Model)
	}
	return "every published state is healthy"
}

func resetConnection(id models.ConnectionID) resetStep {
	return resetStep{
		catalog.Audit{Action: "reset", Kind: catalog.KindConnection, Entity: string(id), Detail: "cooldown, terminal state and model lockouts reset"},
		fmt.Sprintf("connection %s: reset", id),
		func(ctx context.Context, d *durable.Durable) error { return d.Reset(ctx, id) },
	}
}

func resetProvider(id models.ProviderID) resetStep {
	return resetStep{
		catalog.Audit{Action: "reset", Kind: catalog.KindProvider, Entity: string(id), Detail: "breaker and cooldowns reset"},
		fmt.Sprintf("provider %s: reset", id),
		func(ctx context.Context, d *durable.Durable) error { return d.ResetProvider(ctx, id) },
	}
}

func enableModel(id models.ConnectionID, ref models.ModelRef, keys []resilience.LockKey) resetStep {
	return resetStep{
		catalog.Audit{Action: "enable_models", Kind: catalog.KindConnection, Entity: string(id), Detail: "model lockouts ended: " + ref.String()},
		fmt.Sprintf("connection %s: %s enabled", id, ref),
		func(ctx context.Context, d *durable.Durable) error { return d.EnableModels(ctx, id, keys) },
	}
}

func unknownName[K ~string, V any](what, name string, known map[K]V) error {
	names := make([]string, 0, len(known))
	for id := range known {
		names = append(names, string(id))
	}
	return fmt.Errorf("there is no %s %q%s", what, name, didYouMean(name, names))
}

func didYouMean(name string, known []string) string {
	near := models.Near(name, known)
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}

// carryOut asks the workflows, prints what is done in the order of the plan, and writes the
// audit log.
func (c resetCmd) carryOut(ctx context.Context, p *process, s *store.Store, snapshot *catalog.Snapshot, steps []resetStep) error {
	log := c.Logger(p.stderr)
	settings := dial.Config{Role: "cli", Env: c.Env(p.environ)}
	options, err := dial.Options(settings, log)
	if err != nil {
		return err
	}
	client, err := dial.Lazy(settings, log)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := reachable(ctx, client, options.HostPort, options.Namespace); err != nil {
		return err
	}
	workflows := durable.New(durable.Options{Client: client, Log: log, ProviderOf: func(id models.ConnectionID) (models.ProviderID, bool) {
		connection, ok := snapshot.Connections[id]
		if !ok {
			return "", false
		}
		return connection.Provider.ID, true
	}})
	failures := make([]error, len(steps))
	var group errgroup.Group
	group.SetLimit(resetWidth)
	for i, step := range steps {
		group.Go(func() error {
			failures[i] = step.run(ctx, workflows)
			return nil
		})
	}
	_ = group.Wait() // the errors are kept one by one
	var trail []catalog.Audit
	for i, step := range steps {
		if failures[i] != nil {
			continue
		}
		step.audit.Actor = actor()
		trail = append(trail, step.audit)
		if _, err := fmt.Fprintln(p.stdout, step.done); err != nil {
			return err
		}
	}
	if err := s.Audit(ctx, trail); err != nil {
		log.WithError(err).Warn("done, but the audit log could not be written")
	}
	return summary(failures)
}

// reachable finds out at once what a request would wait for in vain.
func reachable(ctx context.Context, client dial.Client, address, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	seen := dial.Inspect(ctx, client, namespace)
	switch {
	case seen.Reachable != nil:
		return fmt.Errorf("Temporal at %s does not answer: %w", address, seen.Reachable) //nolint:staticcheck // a name
	case seen.Namespace != nil:
		return seen.Namespace
	default:
		return seen.Workers
	}
}

// summary is the first failure, and how many more there were.
func summary(failures []error) error {
	failures = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	switch len(failures) {
	case 0:
		return nil
	case 1:
		return failures[0]
	default:
		return fmt.Errorf("%d requests failed, the first: %s", len(failures), explain(failures[0]))
	}
}
