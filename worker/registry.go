// Package worker runs the durable side: it registers every workflow and activity with its
// task queue and keeps polling, whatever Temporal does.
package worker

import (
	"time"

	"go.temporal.io/sdk/activity"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"omniroute/activities"
	"omniroute/workflows"
	"omniroute/workflows/contract"
)

// registered is a function under the name its callers use.
type registered struct {
	name string
	fn   any
}

// queue is what one task queue serves.
type queue struct {
	name string
	// grace is how long activities under way may finish when the worker stops.
	grace      time.Duration
	workflows  []registered
	activities []registered
}

// queues is the one list of everything that runs durably. Without credentials, for which a
// process needs the key ring, the io queue is left to workers that have them.
func queues(states activities.States, credentials *activities.Credentials) []queue {
	all := []queue{
		{
			name:  contract.TaskQueueState,
			grace: rowGrace,
			workflows: []registered{
				{contract.WorkflowConnection, workflows.Connection},
				{contract.WorkflowProvider, workflows.Provider},
			},
			activities: []registered{
				{contract.LoadConnection.Name, states.LoadConnection},
				{contract.PublishConnection.Name, states.PublishConnection},
				{contract.LoadProvider.Name, states.LoadProvider},
				{contract.PublishProvider.Name, states.PublishProvider},
			},
		},
	}
	if credentials != nil {
		all = append(all, queue{name: contract.TaskQueueIO, grace: refreshGrace, activities: []registered{
			{contract.RefreshCredentials.Name, credentials.RefreshCredentials},
		}})
	}
	return all
}

// register gives one queue's list to an SDK worker (or to a replayer, for the workflows).
func (q queue) register(w sdkworker.Registry) {
	for _, r := range q.workflows {
		w.RegisterWorkflowWithOptions(r.fn, workflow.RegisterOptions{Name: r.name})
	}
	for _, r := range q.activities {
		w.RegisterActivityWithOptions(r.fn, activity.RegisterOptions{Name: r.name})
	}
}
