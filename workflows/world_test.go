package workflows_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows"
	"omniroute/workflows/contract"
)

const (
	openai  = models.ProviderID("openai")
	openai1 = models.ConnectionID("openai-1")
)

var (
	morning = time.Date(2026, 3, 2, 10, 30, 0, 0, time.UTC)
	policy  = resilience.ConnectionPolicy{
		Cooldown: resilience.CooldownPolicy{Base: 3 * time.Second, MaxSteps: 5, Max: 30 * time.Minute, UseHints: true},
		Expired:  resilience.ExpiredPolicy{Retries: 3, Base: 5 * time.Minute},
	}
	self = contract.Entity{Provider: openai, Connection: openai1}
)

// table is one row of the states table, with the rule of the real one: only a newer stamp
// replaces what stands, and the answer is what stands.
type table[S any] struct {
	mu        sync.Mutex
	row       contract.Row[S]
	found     bool
	away      bool
	loads     int
	published []contract.Row[S] // rows that came to stand, in order
}

var errAway = errors.New("the database is away")

func (t *table[S]) load(context.Context, contract.Entity) (contract.Row[S], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away {
		return contract.Row[S]{}, errAway
	}
	t.loads++
	return t.row, nil
}

func (t *table[S]) publish(_ context.Context, p contract.Publish[S]) (contract.Stood[S], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.away {
		return contract.Stood[S]{}, errAway
	}
	if !t.found || p.Row.After(t.row.Stamp) {
		t.row, t.found = p.Row, true
		t.published = append(t.published, p.Row)
	}
	stood := contract.Stood[S]{Stamp: t.row.Stamp, AppliedThrough: t.row.AppliedThrough}
	if !reflect.DeepEqual(p.Row, t.row) {
		other := t.row.State
		stood.State = &other
	}
	return stood, nil
}

func (t *table[S]) put(row contract.Row[S]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.row, t.found = row, true
}

func (t *table[S]) setAway(away bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away = away
}

func (t *table[S]) standing() contract.Row[S] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.row
}

func (t *table[S]) writes() []contract.Row[S] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]contract.Row[S](nil), t.published...)
}

// issuer stands for the io worker and the provider's token endpoint: it gives one answer after
// the other, the last one again and again.
type issuer struct {
	asked   []contract.Refresh
	answers []contract.Refreshed
	err     error
}

func (i *issuer) refresh(_ context.Context, r contract.Refresh) (contract.Refreshed, error) {
	i.asked = append(i.asked, r)
	if i.err != nil || len(i.answers) == 0 {
		return contract.Refreshed{}, i.err
	}
	answer := i.answers[0]
	if len(i.answers) > 1 {
		i.answers = i.answers[1:]
	}
	return answer, nil
}

// world is one workflow with its row and its clock. Steps are said by at, in any order.
type world[S any] struct {
	t      *testing.T
	env    *testsuite.TestWorkflowEnvironment
	table  *table[S]
	issuer *issuer
	shown  []map[string]any // search attributes as upserted, in order
}

func newWorld[S any](t *testing.T, load contract.Activity[contract.Entity, contract.Row[S]], publish contract.Activity[contract.Publish[S], contract.Stood[S]]) *world[S] {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	w := &world[S]{t: t, env: suite.NewTestWorkflowEnvironment(), table: &table[S]{}, issuer: &issuer{}}
	w.env.SetStartTime(morning)
	w.env.RegisterWorkflowWithOptions(workflows.Connection, workflow.RegisterOptions{Name: contract.WorkflowConnection})
	w.env.RegisterWorkflowWithOptions(workflows.Provider, workflow.RegisterOptions{Name: contract.WorkflowProvider})
	w.env.RegisterActivityWithOptions(w.table.load, activity.RegisterOptions{Name: load.Name})
	w.env.RegisterActivityWithOptions(w.table.publish, activity.RegisterOptions{Name: publish.Name})
	w.env.RegisterActivityWithOptions(w.issuer.refresh, activity.RegisterOptions{Name: contract.RefreshCredentials.Name})
	w.env.OnUpsertTypedSearchAttributes(mock.Anything).Return(nil).Run(func(args mock.Arguments) {
		set := map[string]any{}
		for key, value := range args.Get(0).(temporal.SearchAttributes).GetUntypedValues() {
			set[key.GetName()] = value
		}
		w.shown = append(w.shown, set)
	}).Maybe()
	return w
}

// issues says how the token endpoint answers, each time after a while by the workflow's clock.
func issues[S any](w *world[S], takes time.Duration, answers ...contract.Refreshed) {
	w.issuer.answers = answers
	w.env.OnActivity(contract.RefreshCredentials.Name, mock.Anything, mock.Anything).Return(w.issuer.refresh).After(takes)
}

func connectionWorld(t *testing.T) *world[resilience.Connection] {
	return newWorld(t, contract.LoadConnection, contract.PublishConnection)
}

func providerWorld(t *testing.T) *world[resilience.Provider] {
	return newWorld(t, contract.LoadProvider, contract.PublishProvider)
}

// at does something at a moment after the start.
func (w *world[S]) at(after time.Duration, do func()) { w.env.RegisterDelayedCallback(do, after) }

// observe signals a connection's state, as a gateway that holds it would.
func observe(w *world[resilience.Connection], after time.Duration, state resilience.Connection) {
	w.at(after, func() { signalConnection(w, state) })
}

func signalConnection(w *world[resilience.Connection], state resilience.Connection) {
	name := contract.SignalFailureObserved
	if state.Dormant(w.env.Now()) {
		name = contract.SignalRecoveryObserved
	}
	w.env.SignalWorkflow(name, contract.Observed[resilience.Connection]{Entity: self, State: state})
}

// state asks the workflow where it stands.
func (w *world[S]) state() contract.EntityState[S] {
	value, err := w.env.QueryWorkflow(contract.QueryState)
	require.NoError(w.t, err)
	var s contract.EntityState[S]
	require.NoError(w.t, value.Get(&s))
	return s
}

// ask sends a request and hands the answer on when it comes.
func ask[A, S any](w *world[S], after time.Duration, update string, request any, answer func(A, error)) {
	w.at(after, func() {
		w.env.UpdateWorkflow(update, "", &testsuite.TestUpdateCallback{
			OnAccept: func() {},
			OnReject: func(err error) {
				var none A
				answer(none, err)
			},
			OnComplete: func(result any, err error) {
				answered, _ := result.(A)
				answer(answered, err)
			},
		}, request)
	})
}

// reset asks for a reset.
func (w *world[S]) reset(after time.Duration, requestID string, answer func(contract.Answer, error)) {
	ask(w, after, contract.UpdateReset, contract.ResetRequest{Asked: contract.Asked{RequestID: requestID}}, answer)
}

func runConnection(w *world[resilience.Connection], carried *contract.Carried[resilience.Connection]) {
	w.env.ExecuteWorkflow(contract.WorkflowConnection, contract.Start[resilience.Connection]{Entity: self, Carried: carried})
	require.True(w.t, w.env.IsWorkflowCompleted())
}

// ranFor is how long the workflow lived by its own clock.
func (w *world[S]) ranFor() time.Duration { return w.env.Now().Sub(morning) }

// carriedOver is what a run that continued as new handed to the next one.
func carriedOver[S any](t *testing.T, err error) *contract.Carried[S] {
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, err, &next)
	var start contract.Start[S]
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &start))
	require.NotNil(t, start.Carried)
	return start.Carried
}

// failed is the state of a healthy connection after one failure.
func failed(after time.Duration, hint time.Duration) resilience.Connection {
	return failAgain(resilience.Connection{}, after, hint)
}

func failAgain(c resilience.Connection, after time.Duration, hint time.Duration) resilience.Connection {
	next, changed := c.Fail(resilience.Failure{
		At: morning.Add(after), Dispatched: morning.Add(after - time.Millisecond),
		Reason: models.ReasonRateLimited, Status: 429, Hint: hint,
	}, policy)
	if !changed {
		panic("the failure changes nothing: the test's world is wrong")
	}
	return next
}

// expired is the state after the provider has refused a connection's access token.
func expired(c resilience.Connection, after time.Duration) resilience.Connection {
	next, changed := c.Fail(resilience.Failure{At: morning.Add(after), Dispatched: morning.Add(after), Reason: models.ReasonExpired, Status: 401}, policy)
	if !changed {
		panic("the failure changes nothing: the test's world is wrong")
	}
	return next
}

// locked is the state after a failure that one model or family explains.
func locked(c resilience.Connection, scope models.LockScope, name string, after, lasts time.Duration) resilience.Connection {
	next, changed := c.FailModel(resilience.LockKey{Scope: scope, Name: name}, resilience.Failure{
		At: morning.Add(after), Dispatched: morning.Add(after), Reason: models.ReasonRateLimited, Status: 429, Hint: lasts,
	}, policy.Cooldown)
	if !changed {
		panic("the failure changes nothing: the test's world is wrong")
	}
	return next
}

func succeeded(c resilience.Connection, dispatchedAfter time.Duration) resilience.Connection {
	next, changed := c.Succeed("gpt-x", "", morning.Add(dispatchedAfter))
	if !changed {
		panic("the success changes nothing: the test's world is wrong")
	}
	return next
}

func terminated(c resilience.Connection, after time.Duration, phase models.Phase) resilience.Connection {
	next, _ := c.Fail(resilience.Failure{At: morning.Add(after), Dispatched: morning.Add(after), Reason: models.ReasonAuth, Status: 401, Terminal: phase}, policy)
	return next
}

// inEra is a healthy connection of an era that began nobody knows when.
func inEra(era int64) resilience.Connection {
	return resilience.Connection{Cooldown: resilience.Cooldown{Era: era}}
}
