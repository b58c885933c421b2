package worker

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"omniroute/activities"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

func TestEveryHandleOfTheContractIsRegisteredWithItsSignature(t *testing.T) {
	handles := []struct {
		name string
		in   reflect.Type
		out  reflect.Type
	}{
		signature(contract.LoadConnection),
		signature(contract.PublishConnection),
		signature(contract.LoadProvider),
		signature(contract.PublishProvider),
		signature(contract.RefreshCredentials),
	}
	have := map[string]reflect.Type{}
	for _, q := range queues(activities.States{}, activities.NewCredentials(nil)) {
		for _, r := range q.activities {
			require.NotContains(t, have, r.name, "registered twice")
			have[r.name] = reflect.TypeOf(r.fn)
		}
	}
	for _, h := range handles {
		fn, ok := have[h.name]
		require.True(t, ok, "activity %s is not registered", h.name)
		want := reflect.FuncOf([]reflect.Type{reflect.TypeFor[context.Context](), h.in}, []reflect.Type{h.out, reflect.TypeFor[error]()}, false)
		require.Equal(t, want, fn, "activity %s", h.name)
		delete(have, h.name)
	}
	require.Empty(t, have, "registered, but not in the contract")
}

func TestEveryWorkflowOfTheContractTakesTheStartItsCallersSend(t *testing.T) {
	want := map[string]reflect.Type{
		contract.WorkflowConnection: reflect.TypeFor[func(workflow.Context, contract.Start[resilience.Connection]) error](),
		contract.WorkflowProvider:   reflect.TypeFor[func(workflow.Context, contract.Start[resilience.Provider]) error](),
	}
	have := map[string]reflect.Type{}
	for _, q := range queues(activities.States{}, activities.NewCredentials(nil)) {
		for _, r := range q.workflows {
			have[r.name] = reflect.TypeOf(r.fn)
		}
	}
	require.Equal(t, want, have)
}

// The endpoint is given 15 s, and what it gives must be stored.
func TestAWorkerThatStopsLetsARefreshOfTokensComeToItsEnd(t *testing.T) {
	grace := map[string]time.Duration{}
	for _, q := range queues(activities.States{}, activities.NewCredentials(nil)) {
		grace[q.name] = (&Worker{}).sdkOptions(q, nil).WorkerStopTimeout
	}
	require.Equal(t, map[string]time.Duration{contract.TaskQueueState: 2 * time.Second, contract.TaskQueueIO: 30 * time.Second}, grace)
	require.Greater(t, StopLimit, 30*time.Second)
}

func TestAWorkerWithoutTheKeyRingLeavesCredentialsToOthers(t *testing.T) {
	var names []string
	for _, q := range queues(activities.States{}, nil) {
		names = append(names, q.name)
	}
	require.Equal(t, []string{contract.TaskQueueState}, names)
}

func signature[In, Out any](a contract.Activity[In, Out]) struct {
	name string
	in   reflect.Type
	out  reflect.Type
} {
	return struct {
		name string
		in   reflect.Type
		out  reflect.Type
	}{a.Name, reflect.TypeFor[In](), reflect.TypeFor[Out]()}
}
