package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

// lookAgain is how often a workflow whose state does not end by itself reads its row. The row
// alone knows of new credentials, and of a connection that is gone, when no replica ran to tell.
const lookAgain = time.Hour

// loaded reports that the row has been seen: what an earlier workflow or an operator has
// decided is part of the state. Nothing is decided or published before.
func (e *entity[S]) loaded() bool { return !e.seenAt.IsZero() }

// saysAll reports whether the row holds all that a state knows.
func (e *entity[S]) saysAll(s S) bool {
	return e.loaded() && e.kind.equal(e.kind.join(e.row.State, s), e.row.State)
}

// learn joins a row as it stands in the database.
func (e *entity[S]) learn(ctx workflow.Context, row contract.Row[S]) {
	e.row, e.seenAt, e.worked = row, workflow.Now(ctx), true
	e.state = e.kind.join(e.state, row.State)
}

// startPublication publishes what the row does not say yet, unless a publication is under
// way: what changes meanwhile goes into the next one. That something is of no use any more is
// no reason to write.
func (e *entity[S]) startPublication(ctx workflow.Context, now standing) {
	at := workflow.Now(ctx)
	phase := e.kind.rowPhase(e.state, at)
	same := phase == e.rowSays && e.kind.equal(e.state, e.kind.prune(e.row.State, at))
	if same || e.publishing != nil {
		return
	}
	// A join keeps the latest evidence of each side, so the state has considered all that came.
	e.sent = contract.Row[S]{State: e.state, AppliedThrough: e.kind.evidence(e.state)}
	e.sent.Era, e.sent.Version = e.kind.era(e.state), e.row.Version+1
	e.sentPhase = phase
	e.publishing = start(ctx, e.kind.publish(), contract.Publish[S]{Entity: e.id, Row: e.sent}, now.sentence)
}

// settlePublication takes in the row as it stands after a publication. Where another row won,
// its news are joined, and the next turn publishes what is still missing from it.
func (e *entity[S]) settlePublication(ctx workflow.Context) {
	if e.publishing == nil || !e.publishing.IsReady() {
		return
	}
	var stood contract.Stood[S]
	err := e.publishing.Get(ctx, &stood)
	e.publishing = nil
	if err != nil { // retried without end, so only a cancelled workflow comes here
		workflow.GetLogger(ctx).Warn("a publication was given up", "error", err)
		return
	}
	e.rowSays = e.sentPhase
	if stood.State != nil {
		e.rowSays = e.kind.rowPhase(*stood.State, workflow.Now(ctx))
	}
	e.learn(ctx, stood.Row(e.sent.State))
}

// startReading reads the row when it has not been seen yet, and again when it was last seen
// long ago and nothing else will change the state. The time of the last look goes with the
// state from run to run.
func (e *entity[S]) startReading(ctx workflow.Context) {
	var next time.Time
	switch {
	case e.reading != nil, e.publishing != nil: // a publication shows the row, too
	case !e.loaded():
		e.reading = start(ctx, e.kind.load(), e.id, "read the published row")
	case e.standing(ctx).endless:
		next = e.seenAt.Add(lookAgain)
		if !workflow.Now(ctx).Before(next) {
			e.reading, next = start(ctx, e.kind.load(), e.id, "look at the published row again"), time.Time{}
		}
	}
	e.looking.arm(ctx, next, "the row of "+e.name())
}

// settleReading takes in the row that was read, unless a publication that was answered
// meanwhile has seen a newer one.
func (e *entity[S]) settleReading(ctx workflow.Context) {
	if e.reading == nil || !e.reading.IsReady() {
		return
	}
	var row contract.Row[S]
	err := e.reading.Get(ctx, &row)
	e.reading = nil
	if err != nil { // retried without end, so only a cancelled workflow comes here
		workflow.GetLogger(ctx).Warn("a look at the row was given up", "error", err)
		return
	}
	if e.row.After(row.Stamp) {
		row = e.row
	}
	first := !e.loaded()
	e.learn(ctx, row)
	if first || e.kind.equal(e.state, row.State) {
		e.rowSays = e.kind.rowPhase(row.State, workflow.Now(ctx))
	}
}
