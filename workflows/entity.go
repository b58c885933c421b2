// Package workflows holds the durable state machines: what must outlive a request or a
// process. The rules are those of models/resilience; a workflow adds the clock that goes on,
// the order of messages, and the row that every replica reads.
package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

// kind is what the entity loop needs to know of one kind of entity: its state machine, how it
// is shown, and what it does besides being kept and published.
type kind[S any] interface {
	load() contract.Activity[contract.Entity, contract.Row[S]]
	publish() contract.Activity[contract.Publish[S], contract.Stood[S]]

	join(a, b S) S
	equal(a, b S) bool
	era(s S) int64
	enter(s S, era int64, began time.Time) S
	reset(s S, now time.Time) S
	evidence(s S) time.Time
	prune(s S, now time.Time) S
	weight(s S) int // about how many bytes of a history it takes

	rowPhase(s S, now time.Time) string // what the row says of it; it is published again when this changes
	stands(s S, now time.Time) standing

	requests(ctx workflow.Context) error // registers what only this kind is asked
	settle(ctx workflow.Context)         // takes in what its own work has brought
	begin(ctx workflow.Context)          // starts what work is due
	ready() bool                         // its work has brought something
	busy() bool                          // its work is under way and must not be left behind
}

// standing is what an entity's state means at one moment.
type standing struct {
	contract.Listing
	sentence string // for people
	dormant  bool   // nothing lies ahead: the workflow may end
	endless  bool   // it does not end by itself: the row is looked at now and then
}

// entity is the workflow of one connection or provider.
type entity[S any] struct {
	kind     kind[S]
	id       contract.Entity
	workflow string

	// What goes from run to run; see contract.Carried.
	state    S
	row      contract.Row[S]
	rowSays  string // the phase in the row
	seenAt   time.Time
	answered []contract.Answered
	tokens   contract.Tokens

	signals    signals
	publishing workflow.Future // nil when no publication is under way
	reading    workflow.Future // nil when the row is not being read
	sent       contract.Row[S] // what the publication under way says
	sentPhase  string
	touched    bool // a request changed the state since the loop last looked
	worked     bool // something was read or published in this run
	leaving    bool // the history is long: nothing waits that need not
	ending     timer
	looking    timer
	shown      shown
}

func newEntity[S any](workflowType string, start contract.Start[S], k kind[S]) *entity[S] {
	e := &entity[S]{kind: k, id: start.Entity, workflow: workflowType}
	if start.Carried != nil {
		e.resume(*start.Carried)
	}
	return e
}

// run is the whole life of an entity workflow: it takes the row over, then messages, the timer
// and finished work move it until nothing lies ahead.
func (e *entity[S]) run(ctx workflow.Context) error {
	if err := e.setup(ctx); err != nil {
		return err
	}
	for {
		e.settlePublication(ctx)
		e.settleReading(ctx)
		e.leaving = e.grown(ctx)
		if e.loaded() || e.leaving {
			e.takeSignals(ctx)
		}
		e.kind.settle(ctx)
		e.state = e.kind.prune(e.state, workflow.Now(ctx))
		if e.leaving && e.free(ctx) {
			return e.handOver(ctx)
		}
		if e.loaded() {
			now := e.standing(ctx)
			if err := e.shown.show(ctx, e.id, now); err != nil {
				return err
			}
			e.startPublication(ctx, now)
			e.kind.begin(ctx)
			e.ending.arm(ctx, now.Until, "next deadline of "+e.name())
			if now.dormant && e.publishing == nil && e.free(ctx) {
				return nil
			}
		}
		e.startReading(ctx)
		if err := e.await(ctx); err != nil {
			return err
		}
	}
}

// setup registers the query and the requests and opens the signal channels.
func (e *entity[S]) setup(ctx workflow.Context) error {
	e.signals = openSignals(ctx)
	e.shown = alreadyShown(ctx)
	err := workflow.SetQueryHandlerWithOptions(ctx, contract.QueryState, func() (contract.EntityState[S], error) {
		now := e.standing(ctx)
		return contract.EntityState[S]{Phase: now.Phase, Sentence: now.sentence, State: e.state, Row: e.row}, nil
	}, workflow.QueryHandlerOptions{Description: "Where the entity stands, in a sentence and in full."})
	if err != nil {
		return err
	}
	if err := handle(ctx, contract.UpdateReset, e.reset, "Begin a new, healthy era. {} will do."); err != nil {
		return err
	}
	return e.kind.requests(ctx)
}

func (e *entity[S]) standing(ctx workflow.Context) standing {
	return e.kind.stands(e.state, workflow.Now(ctx))
}

// free reports that no answer is owed and no work is under way that the next run could not
// simply begin again: the workflow may end or hand over.
func (e *entity[S]) free(ctx workflow.Context) bool {
	return workflow.AllHandlersFinished(ctx) && !e.kind.busy()
}

// await sleeps until there is something to do.
func (e *entity[S]) await(ctx workflow.Context) error {
	owed := !workflow.AllHandlersFinished(ctx)
	err := workflow.Await(ctx, func() bool {
		return e.touched || e.ending.fired() || e.looking.fired() || e.kind.ready() ||
			e.publishing != nil && e.publishing.IsReady() ||
			e.reading != nil && e.reading.IsReady() ||
			e.signals.pending() && (e.loaded() || e.grown(ctx)) || // until then they wait for the row
			owed && workflow.AllHandlersFinished(ctx)
	})
	e.touched = false
	return err
}

func (e *entity[S]) name() string {
	if e.id.Connection != "" {
		return string(e.id.Connection)
	}
	return string(e.id.Provider)
}
