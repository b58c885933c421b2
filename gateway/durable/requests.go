package durable

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

const (
	// requestTimeout bounds an operator's request, start of the workflow included.
	requestTimeout = 8 * time.Second
	// renewTimeout bounds a refresh of credentials, the wait for a worker included.
	renewTimeout = 45 * time.Second
	// againFirst and againLongest bound the pause before a request is sent again.
	againFirst   = 20 * time.Millisecond
	againLongest = 500 * time.Millisecond
)

// Reset begins a new, healthy era of a connection, whatever it was out for. Like the other
// requests it returns when the workflow has done it and, unless the database is away, published
// it.
func (d *Durable) Reset(ctx context.Context, connection models.ConnectionID) error {
	return d.ofConnection(ctx, connection, newAsk(contract.UpdateReset, func(a contract.Asked) any { return contract.ResetRequest{Asked: a} }))
}

// EnableModels ends lockouts of a connection, also those that only a replica knows. More keys
// than a connection has lockouts are sent in parts.
func (d *Durable) EnableModels(ctx context.Context, connection models.ConnectionID, keys []resilience.LockKey) error {
	for part := range slices.Chunk(keys, resilience.MaxLockouts) {
		if err := d.ofConnection(ctx, connection, newAsk(contract.UpdateEnableModel, func(a contract.Asked) any {
			return contract.EnableModelRequest{Asked: a, Keys: part}
		})); err != nil {
			return err
		}
	}
	return nil
}

// ClearCooldown ends a connection's cooldown and forgets what is counted towards a terminal
// state. Lockouts stay; a terminal state is an error, because only a reset ends it.
func (d *Durable) ClearCooldown(ctx context.Context, connection models.ConnectionID) error {
	return d.ofConnection(ctx, connection, newAsk(contract.UpdateClearCooldown, func(a contract.Asked) any {
		return contract.ClearCooldownRequest{Asked: a}
	}))
}

// ResetProvider closes a provider's breaker on every replica, ends its cooldowns and begins a
// new era of it.
func (d *Durable) ResetProvider(ctx context.Context, provider models.ProviderID) error {
	entity := contract.Entity{Provider: provider}
	start := providerStart(entity, contract.ListProvider(resilience.Provider{}, time.Time{}))
	reset := newAsk(contract.UpdateReset, func(a contract.Asked) any { return contract.ResetRequest{Asked: a} })
	return d.change(ctx, start, contract.WorkflowProvider, contract.Start[resilience.Provider]{Entity: entity}, reset)
}

// Renew asks for credentials newer than the generation that the caller has seen fail, and
// returns the generation that holds now. However many ask, on however many replicas, the
// provider is asked once. The error's code is upstream_rejected when the provider refuses,
// invalid_request when there is nothing to refresh with, and temporal_unavailable when nobody
// could try.
func (d *Durable) Renew(ctx context.Context, connection models.ConnectionID, seen int64) (generation int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	start, argument, err := d.connection(connection)
	if err != nil {
		return 0, err
	}
	var answer contract.RefreshAnswer
	renew := newAsk(contract.UpdateRefreshCredentials, func(a contract.Asked) any { return contract.RefreshRequest{Asked: a, Seen: &seen} })
	if err := d.update(ctx, start, contract.WorkflowConnection, argument, renew, &answer); err != nil {
		return 0, err
	}
	switch answer.Outcome {
	case contract.RefreshRenewed:
		return answer.Generation, nil
	case contract.RefreshImpossible:
		return 0, models.Errorf(models.CodeInvalidRequest, "the credentials of %q cannot be refreshed: %s", connection, answer.Reason)
	case contract.RefreshFailed:
		return 0, models.Errorf(models.CodeUpstreamRejected, "the credentials of %q were not refreshed: %s", connection, answer.Reason)
	default:
		return 0, models.Errorf(models.CodeDurableUnavailable, "the credentials of %q were not refreshed: %s", connection, answer.Reason)
	}
}

// ofConnection asks a connection for a change.
func (d *Durable) ofConnection(ctx context.Context, id models.ConnectionID, a ask) error {
	start, argument, err := d.connection(id)
	if err != nil {
		return err
	}
	return d.change(ctx, start, contract.WorkflowConnection, argument, a)
}

func (d *Durable) connection(id models.ConnectionID) (client.StartWorkflowOptions, contract.Start[resilience.Connection], error) {
	provider, ok := d.options.ProviderOf(id)
	if !ok {
		return client.StartWorkflowOptions{}, contract.Start[resilience.Connection]{},
			models.Errorf(models.CodeNotFound, "no connection %q", id).WithParam("connection")
	}
	entity := contract.Entity{Provider: provider, Connection: id}
	return connectionStart(entity, contract.ListConnection(resilience.Connection{}, time.Time{})),
		contract.Start[resilience.Connection]{Entity: entity}, nil
}

// ask is one request on its way.
type ask struct {
	update, id string
	argument   any
}

// newAsk names a request, so that one that arrives twice is carried out once, and dates it, so
// that one that arrives when its caller has given up is not carried out at all.
func newAsk(update string, argument func(contract.Asked) any) ask {
	about := contract.Asked{RequestID: rand.Text(), RequestedAt: time.Now().UTC()}
	return ask{update, about.RequestID, argument(about)}
}

// change sends a request that is answered once it is done and, as a rule, published.
func (d *Durable) change(ctx context.Context, options client.StartWorkflowOptions, workflow string, start any, a ask) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var answer contract.Answer
	if err := d.update(ctx, options, workflow, start, a, &answer); err != nil {
		return err
	}
	if !answer.Published {
		d.options.Log.WithField("workflow", options.ID).Warn("the request was carried out; it reaches the replicas when the database is back")
	}
	return nil
}

// update sends a request to an entity's workflow, which is started when none runs, and waits
// for the answer. What the server gave back untouched is sent again under the same id while
// there is time.
func (d *Durable) update(ctx context.Context, options client.StartWorkflowOptions, workflow string, start any, a ask, answer any) error {
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := d.tryUpdate(ctx, options, workflow, start, a, answer)
		if err != nil && !untouched(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(&backoff.ExponentialBackOff{
		InitialInterval: againFirst, MaxInterval: againLongest, Multiplier: 2, RandomizationFactor: 0.5,
	}), backoff.WithMaxElapsedTime(0))
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s of %s: %w", a.update, options.ID, err)
	var refused *temporal.ApplicationError
	if errors.As(err, &refused) && (refused.Type() == contract.ErrorInvalidRequest || refused.Type() == contract.ErrorTerminal) {
		return models.Errorf(models.CodeInvalidRequest, "%s", refused.Message()).WithCause(err)
	}
	return models.Errorf(models.CodeDurableUnavailable, "%s", unheard(refused)).WithCause(err)
}

func (d *Durable) tryUpdate(ctx context.Context, options client.StartWorkflowOptions, workflow string, start any, a ask, answer any) error {
	handle, err := d.options.Client.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		// Made anew each time: the SDK takes an operation once.
		StartWorkflowOperation: d.options.Client.NewWithStartWorkflowOperation(options, workflow, start),
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID:     a.id,
			UpdateName:   a.update,
			Args:         []any{a.argument},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err != nil {
		return err
	}
	return handle.Get(ctx, answer)
}

// untouched reports that a request has met a run at its very end. A signal that arrives while a
// run hands over makes the server fail that workflow task, and every update that came along with
// it is given back as "not ready"; one that meets a run which ends is given back as "not found".
// The SDK repeats neither. Nothing was recorded of the request, which the next task or run takes.
func untouched(err error) bool {
	var notReady *serviceerror.WorkflowNotReady
	var ended *serviceerror.NotFound
	return errors.As(err, &notReady) || errors.As(err, &ended)
}

// unheard words why a request was not carried out.
func unheard(refused *temporal.ApplicationError) string {
	if refused != nil && (refused.Type() == contract.ErrorTooLate || refused.Type() == contract.ErrorNoDatabase) {
		return refused.Message()
	}
	return "the request did not reach its workflow in time; try again"
}
