package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// An entity that lives for ever is thousands of messages. Whoever opens it in the Web UI, and
// every worker that picks it up, reads one run.
func TestAnEntityStaysSmallHoweverLongItLives(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s, err := newStage(ctx, t.TempDir(), quiet(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()

	for _, life := range []struct{ messages, models, runs int }{
		{2000, 5, 15},
		{300, 200, 20}, // more models than a connection keeps lockouts of
	} {
		id := s.connection()
		whole := s.live(ctx, t, id, life.messages, life.models)
		require.GreaterOrEqual(t, len(whole.Lockouts), min(life.models, resilience.MaxLockouts))
		require.NoError(t, s.connectionRow(ctx, id, func(row catalog.ConnectionState) bool {
			return resilience.SeenConnection(row.State, whole, time.Now())
		}), "what all messages say together is what the row says")

		runs := s.runs(ctx, t, contract.ConnectionWorkflowID(id))
		var events, bytes int64
		for _, info := range runs {
			events, bytes = max(events, info.GetHistoryLength()), max(bytes, info.GetHistorySizeBytes())
		}
		t.Logf("%d messages about %d models: %d runs, at most %d events and %d KB", life.messages, life.models, len(runs), events, bytes>>10)
		require.Greater(t, len(runs), life.runs)
		require.Less(t, events, int64(2000))
		require.Less(t, bytes, int64(200<<10))
		for _, info := range runs[:4] { // by what its own history measured, a run hands over at the same place again
			history, err := s.history(ctx, run{info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()})
			require.NoError(t, err)
			require.NoError(t, replay(t, history))
		}
	}
}

// Signals that arrive while a run hands over make the server fail that task, and give back the
// requests that came with it.
func TestRequestsReachAWorkflowThatHandsOverUnderAHailOfSignals(t *testing.T) {
	ctx, s := newTestStage(t)
	id := s.connection()
	first := failing(id, resilience.Connection{}, resilience.Failure{Hint: time.Hour})
	hail, stop := context.WithCancel(ctx)
	defer stop()
	var senders errgroup.Group
	for sender := range 3 {
		senders.Go(func() error {
			for i := 0; hail.Err() == nil; i++ {
				hint := time.Hour + time.Duration(3*i+sender)*time.Second
				if err := s.durable.Send(ctx, failing(id, first.Health, resilience.Failure{Hint: hint})); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 100 {
		require.NoError(t, s.durable.EnableModels(ctx, id, resilience.KeysOf("gpt-x", "")))
	}
	stop()
	require.NoError(t, senders.Wait())
	require.Greater(t, len(s.runs(ctx, t, contract.ConnectionWorkflowID(id))), 10)
}

// live sends failures of a connection and of models on it, one after the other, with a request
// after every hundred, and returns what they say together.
func (s *stage) live(ctx context.Context, t *testing.T, id models.ConnectionID, messages, locks int) (whole resilience.Connection) {
	name := func(i int) string { return fmt.Sprintf("vendor/some-model-of-a-usual-name-%03d", i%locks) }
	for i := range messages {
		hint := time.Hour + time.Duration(i)*time.Second
		change := failing(id, whole, resilience.Failure{Hint: hint})
		if i%5 != 0 {
			change = locking(id, whole, models.LockModel, name(i), hint)
		}
		told := whole
		whole = change.Health
		change.Health = whole.News(told)
		require.NoError(t, s.durable.Send(ctx, change))
		if i%100 == 50 {
			require.NoError(t, s.durable.EnableModels(ctx, id, resilience.KeysOf(name(i), "")))
			row, _, err := s.store.LoadConnectionState(ctx, id)
			require.NoError(t, err)
			whole = resilience.JoinConnection(whole, row.State)
		}
	}
	return whole
}

// runs describes every run of a workflow, once all are listed.
func (s *stage) runs(ctx context.Context, t *testing.T, workflow string) []*workflowpb.WorkflowExecutionInfo {
	var all []*workflowpb.WorkflowExecutionInfo
	latest, err := s.latest(ctx, workflow)
	require.NoError(t, err)
	require.NoError(t, s.await(ctx, func(ctx context.Context) (bool, error) {
		listed, err := s.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
			Query: fmt.Sprintf("WorkflowId = %q", workflow), PageSize: 1000,
		})
		if err != nil {
			return false, err
		}
		all = all[:0]
		found := false
		for _, e := range listed.GetExecutions() {
			d, err := s.client.DescribeWorkflowExecution(ctx, workflow, e.GetExecution().GetRunId())
			if err != nil {
				return false, err
			}
			all = append(all, d.GetWorkflowExecutionInfo())
			found = found || e.GetExecution().GetRunId() == latest.id
		}
		return found, nil
	}))
	return all
}
