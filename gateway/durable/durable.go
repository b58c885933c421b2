// Package durable is the gateway's one hold on Temporal: it turns state changes into signals,
// and what an operator or an expired credential asks for into updates. The only thing a
// client's request may wait for here, within its own bounds, is a new credential.
package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// Options are the dependencies of Durable.
type Options struct {
	// Client may be lazy; Durable does not own it.
	Client client.Client
	// ProviderOf finds a connection's provider in the current catalog.
	ProviderOf func(models.ConnectionID) (models.ProviderID, bool)
	Log        logrus.FieldLogger
}

// Durable speaks to the entity workflows.
type Durable struct {
	options Options
}

// New makes a Durable. It does not connect.
func New(options Options) *Durable {
	if options.Log == nil {
		options.Log = logrus.StandardLogger()
	}
	return &Durable{options: options}
}

// Send tells an entity's workflow what is now true of it, and starts the workflow if none
// runs. It may be repeated without harm.
func (d *Durable) Send(ctx context.Context, c contract.Change) error {
	switch c.Kind {
	case contract.KindProvider:
		return d.sendProvider(ctx, c)
	case contract.KindConnection:
		return d.sendConnection(ctx, c)
	default:
		return fmt.Errorf("a change of unknown kind %q", c.Kind)
	}
}

func (d *Durable) sendConnection(ctx context.Context, c contract.Change) error {
	entity := contract.Entity{Provider: c.Provider, Connection: c.Connection}
	if c.Health.Pristine() {
		return d.announceEra(ctx, contract.ConnectionWorkflowID(c.Connection), entity, c.Health.Era(), c.Health.Cooldown.ClearedAt)
	}
	listing := contract.ListConnection(c.Health, c.At)
	return d.signalWithStart(ctx, connectionStart(entity, listing), signalName(listing.Phase != string(models.PhaseReady)),
		contract.Observed[resilience.Connection]{Entity: entity, State: c.Health},
		contract.WorkflowConnection, contract.Start[resilience.Connection]{Entity: entity})
}

func (d *Durable) sendProvider(ctx context.Context, c contract.Change) error {
	entity := contract.Entity{Provider: c.Provider}
	return d.signalWithStart(ctx, providerStart(entity, contract.ListProvider(c.Breaker, c.At)), signalName(!c.Breaker.Dormant(c.At)),
		contract.Observed[resilience.Provider]{Entity: entity, State: c.Breaker},
		contract.WorkflowProvider, contract.Start[resilience.Provider]{Entity: entity})
}

// signalName only words what the state in the signal says; the workflow goes by the state.
func signalName(adverse bool) string {
	if adverse {
		return contract.SignalFailureObserved
	}
	return contract.SignalRecoveryObserved
}

// announceEra tells a running workflow that its entity has entered a new era. When none runs
// there is nobody who holds on to the old one.
func (d *Durable) announceEra(ctx context.Context, workflowID string, entity contract.Entity, era int64, began time.Time) error {
	err := d.options.Client.SignalWorkflow(ctx, workflowID, "", contract.SignalCredentialsChanged,
		contract.CredentialsChanged{Entity: entity, Era: era, ChangedAt: began})
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}

func (d *Durable) signalWithStart(ctx context.Context, start client.StartWorkflowOptions, signal string, payload any, workflow string, argument any) error {
	_, err := d.options.Client.SignalWithStartWorkflow(ctx, start.ID, signal, payload, start, workflow, argument)
	return err
}

// connectionStart says how a Connection workflow appears in the Web UI from its first moment.
func connectionStart(e contract.Entity, l contract.Listing) client.StartWorkflowOptions {
	return start(contract.ConnectionWorkflowID(e.Connection), fmt.Sprintf("Health of connection %s at %s", e.Connection, e.Provider),
		append(listed(e, l), temporal.NewSearchAttributeKeyKeyword(contract.AttributeConnection).ValueSet(string(e.Connection))))
}

// providerStart is connectionStart for a Provider workflow.
func providerStart(e contract.Entity, l contract.Listing) client.StartWorkflowOptions {
	return start(contract.ProviderWorkflowID(e.Provider), fmt.Sprintf("Health of provider %s", e.Provider), listed(e, l))
}

func listed(e contract.Entity, l contract.Listing) []temporal.SearchAttributeUpdate {
	attributes := []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyKeyword(contract.AttributeProvider).ValueSet(string(e.Provider)),
		temporal.NewSearchAttributeKeyKeyword(contract.AttributePhase).ValueSet(l.Phase),
	}
	if l.Reason != "" {
		attributes = append(attributes, temporal.NewSearchAttributeKeyKeyword(contract.AttributeReason).ValueSet(l.Reason))
	}
	if !l.Until.IsZero() {
		attributes = append(attributes, temporal.NewSearchAttributeKeyTime(contract.AttributeUntil).ValueSet(l.Until))
	}
	if len(l.Models) > 0 {
		attributes = append(attributes, temporal.NewSearchAttributeKeyKeywordList(contract.AttributeModel).ValueSet(l.Models))
	}
	return attributes
}

// longestSummary leaves room in the 400 bytes that the server takes of a summary as JSON.
const longestSummary = 340

func start(id, summary string, attributes []temporal.SearchAttributeUpdate) client.StartWorkflowOptions {
	if len(summary) > longestSummary {
		summary = strings.ToValidUTF8(summary[:longestSummary], "")
	}
	return client.StartWorkflowOptions{
		ID:                       id,
		TaskQueue:                contract.TaskQueueState,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		TypedSearchAttributes:    temporal.NewSearchAttributes(attributes...),
		StaticSummary:            summary,
	}
}
