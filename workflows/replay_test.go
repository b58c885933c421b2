package workflows_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"omniroute/models/resilience"
	"omniroute/workflows"
	"omniroute/workflows/contract"
)

// recorded is how many histories each shape has. An empty or half-copied folder must not pass.
var recorded = map[string]int{"1": 18}

func TestEveryRecordedHistoryReplays(t *testing.T) {
	folders, err := os.ReadDir("testdata")
	require.NoError(t, err)
	found := map[string]int{}
	for _, folder := range folders {
		if !folder.IsDir() {
			continue
		}
		for _, path := range histories(t, folder.Name()) {
			found[folder.Name()]++
			require.NoError(t, replayer(workflows.Connection).ReplayWorkflowHistory(nil, history(t, path)), path)
		}
	}
	require.Equal(t, recorded, found)
	require.Contains(t, recorded, workflows.Shape, "the current shape has histories")
}

func TestAChangedWorkflowDoesNotReplay(t *testing.T) {
	changed := func(ctx workflow.Context, start contract.Start[resilience.Connection]) error {
		if err := workflow.Sleep(ctx, time.Second); err != nil {
			return err
		}
		return workflows.Connection(ctx, start)
	}
	tried := 0
	for _, path := range histories(t, workflows.Shape) {
		h := history(t, path)
		if started(h) != contract.WorkflowConnection {
			continue
		}
		tried++
		require.ErrorContains(t, replayer(changed).ReplayWorkflowHistory(nil, h), "TMPRL1100", path)
	}
	require.Positive(t, tried)
}

func TestTheDatabaseIsTriedWithoutEndAndTheWorldOnce(t *testing.T) {
	checked := map[string]int{}
	for _, path := range histories(t, workflows.Shape) {
		for _, event := range history(t, path).GetEvents() {
			if event.GetEventType() != enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED {
				continue
			}
			activity := event.GetActivityTaskScheduledEventAttributes()
			queue := activity.GetTaskQueue().GetName()
			checked[queue]++
			if queue == contract.TaskQueueIO {
				require.Equal(t, int32(1), activity.GetRetryPolicy().GetMaximumAttempts(), path)
				require.Equal(t, 6*time.Minute, activity.GetStartToCloseTimeout().AsDuration(), path)
				require.Equal(t, 30*time.Second, activity.GetHeartbeatTimeout().AsDuration(), path)
				require.Equal(t, 10*time.Second, activity.GetScheduleToStartTimeout().AsDuration(), path)
				continue
			}
			require.Equal(t, contract.TaskQueueState, queue, path)
			require.Zero(t, activity.GetRetryPolicy().GetMaximumAttempts(), path)
			require.Zero(t, activity.GetScheduleToCloseTimeout().AsDuration(), path)
			require.Equal(t, 10*time.Second, activity.GetRetryPolicy().GetMaximumInterval().AsDuration(), path)
			require.Equal(t, 5*time.Second, activity.GetStartToCloseTimeout().AsDuration(), path)
		}
	}
	require.Len(t, checked, 2)
}

func TestTheRecordedLivesCoverEveryKindOfEvent(t *testing.T) {
	seen := map[enumspb.EventType]bool{}
	for _, path := range histories(t, workflows.Shape) {
		for _, event := range history(t, path).GetEvents() {
			seen[event.GetEventType()] = true
		}
	}
	for _, kind := range []enumspb.EventType{
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
		enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
		enumspb.EVENT_TYPE_TIMER_STARTED,
		enumspb.EVENT_TYPE_TIMER_FIRED,
		enumspb.EVENT_TYPE_TIMER_CANCELED,
		enumspb.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
		enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
	} {
		require.True(t, seen[kind], kind)
	}
}

// replayer knows the Connection workflow as given and the Provider workflow as it is.
func replayer(connection any) worker.WorkflowReplayer {
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(connection, workflow.RegisterOptions{Name: contract.WorkflowConnection})
	r.RegisterWorkflowWithOptions(workflows.Provider, workflow.RegisterOptions{Name: contract.WorkflowProvider})
	return r
}

func histories(t *testing.T, shape string) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", shape, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "no histories of shape %s", shape)
	return paths
}

func history(t *testing.T, path string) *historypb.History {
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	h, err := client.HistoryFromJSON(file, client.HistoryJSONOptions{})
	require.NoError(t, err, path)
	return h
}

func started(h *historypb.History) string {
	return h.GetEvents()[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()
}
