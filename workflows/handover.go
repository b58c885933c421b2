package workflows

import (
	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

// A run stays under 2,000 events and 200 KB, however long the entity lives: a worker that picks
// it up reads all of it, and so does whoever opens it in the Web UI. It hands over early
// enough for what may still be added by the turn under way.
const (
	mostEvents = 1500
	mostBytes  = 150 << 10
)

// grown reports that the history is long enough to hand over to a new run. A state that is
// itself long is carried in its beginning and written with every publication, so that a run may
// have room for one only; each gets that one done.
func (e *entity[S]) grown(ctx workflow.Context) bool {
	info := workflow.GetInfo(ctx)
	state, bytes := e.kind.weight(e.state), info.GetCurrentHistorySize()
	return info.GetContinueAsNewSuggested() || info.GetCurrentHistoryLength() > mostEvents ||
		bytes > max(mostBytes, 3*state) || e.worked && bytes > mostBytes-2*state
}

// handOver continues as new. A publication or a look at the row under way is left behind: the
// next run publishes what is true then, and of two rows the newer stands.
func (e *entity[S]) handOver(ctx workflow.Context) error {
	return workflow.NewContinueAsNewError(ctx, e.workflow, contract.Start[S]{Entity: e.id, Carried: e.carried()})
}

func (e *entity[S]) carried() *contract.Carried[S] {
	return &contract.Carried[S]{
		State: e.state, Published: e.row.Stamp, PublishedPhase: e.rowSays,
		PublishedAll: e.kind.equal(e.state, e.row.State), SeenAt: e.seenAt,
		Answered: e.answered, Tokens: e.tokens,
	}
}

func (e *entity[S]) resume(c contract.Carried[S]) {
	e.state, e.row.Stamp = c.State, c.Published
	if c.PublishedAll {
		e.row.State, e.row.AppliedThrough = c.State, e.kind.evidence(c.State)
	}
	e.rowSays, e.seenAt = c.PublishedPhase, c.SeenAt
	e.answered, e.tokens = c.Answered, c.Tokens
}
