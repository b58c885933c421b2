package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// Connection keeps one connection's health across requests, replicas and restarts: its cooldown
// or terminal state, the models that are locked out on it, and what is counted towards a
// terminal state. It is started by the first adverse observation, fetches new credentials where
// expired ones can be renewed, and ends when nothing lies ahead.
func Connection(ctx workflow.Context, start contract.Start[resilience.Connection]) error {
	c := &connection{}
	c.entity = newEntity(contract.WorkflowConnection, start, c)
	return c.run(ctx)
}

// connection is the entity with what only a connection does: refreshing credentials.
type connection struct {
	*entity[resilience.Connection]
	refresh
}

func (*connection) load() contract.Activity[contract.Entity, contract.Row[resilience.Connection]] {
	return contract.LoadConnection
}

func (*connection) publish() contract.Activity[contract.Publish[resilience.Connection], contract.Stood[resilience.Connection]] {
	return contract.PublishConnection
}

func (*connection) join(a, b resilience.Connection) resilience.Connection {
	return resilience.JoinConnection(a, b)
}

func (*connection) equal(a, b resilience.Connection) bool { return a.Equal(b) }

func (*connection) era(s resilience.Connection) int64 { return s.Era() }

func (*connection) enter(s resilience.Connection, era int64, began time.Time) resilience.Connection {
	return s.Enter(era, began)
}

func (*connection) reset(s resilience.Connection, now time.Time) resilience.Connection {
	return s.Reset(now)
}

func (*connection) evidence(s resilience.Connection) time.Time { return s.Evidence() }

func (*connection) prune(s resilience.Connection, now time.Time) resilience.Connection {
	return s.Prune(now)
}

// A lockout is some 250 to 500 bytes of JSON, its name apart.
func (*connection) weight(s resilience.Connection) int {
	bytes := 600
	for i := range s.Lockouts {
		bytes += 400 + len(s.Lockouts[i].Name)
	}
	return bytes
}

func (*connection) rowPhase(s resilience.Connection, now time.Time) string {
	return string(s.Phase(now))
}

func (c *connection) stands(s resilience.Connection, now time.Time) standing {
	phase := s.Cooldown.Standing(now).Phase
	return standing{
		Listing:  contract.ListConnection(s, now),
		sentence: c.sentence(s, now),
		dormant:  s.Dormant(now),
		endless:  phase.Terminal(),
	}
}

func (c *connection) requests(ctx workflow.Context) error {
	if err := handle(ctx, contract.UpdateEnableModel, c.enableModel,
		`End lockouts: {"models": ["gpt-x"]} with models or families as the details name them.`, checkEnable); err != nil {
		return err
	}
	if err := handle(ctx, contract.UpdateClearCooldown, c.clearCooldown,
		"End the cooldown and forget strikes; lockouts stay. {} will do."); err != nil {
		return err
	}
	return handle(ctx, contract.UpdateRefreshCredentials, c.refreshCredentials,
		"Fetch a new access token with the refresh token. {} will do.", checkRefresh)
}
