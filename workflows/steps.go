package workflows

import (
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

// State activities write one row. The database may be away for hours: they are tried until it
// is back, and the workflow goes on listening meanwhile.
const (
	activityTimeout   = 5 * time.Second
	activityFirstWait = 200 * time.Millisecond
	activityLongest   = 10 * time.Second
)

// What reaches outside is tried once: how often a failure is tried again, and when, is the
// state machine's to say. Where no worker takes it the loop goes on without. What it brings may
// have to wait for a database that is away for minutes, so it tells that it goes on.
const (
	outsideTimeout  = 6 * time.Minute
	outsideSilence  = 30 * time.Second
	outsidePatience = 10 * time.Second
)

// start schedules an activity on a row through its typed handle.
func start[In, Out any](ctx workflow.Context, a contract.Activity[In, Out], in In, summary string) workflow.Future {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           contract.TaskQueueState,
		StartToCloseTimeout: activityTimeout,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval:    activityFirstWait,
			BackoffCoefficient: 2,
			MaximumInterval:    activityLongest,
		},
		Summary: brief(summary),
	})
	return workflow.ExecuteActivity(ctx, a.Name, in)
}

// startOutside schedules an activity that speaks to the world.
func startOutside[In, Out any](ctx workflow.Context, a contract.Activity[In, Out], in In, summary string) workflow.Future {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              contract.TaskQueueIO,
		ScheduleToStartTimeout: outsidePatience,
		StartToCloseTimeout:    outsideTimeout,
		HeartbeatTimeout:       outsideSilence,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                brief(summary),
	})
	return workflow.ExecuteActivity(ctx, a.Name, in)
}

// awaitFor waits until the condition holds, for so long, and reports whether it does. Unlike the
// SDK's own it starts no timer where there is nothing to wait for, and leaves none behind.
func awaitFor(ctx workflow.Context, most time.Duration, summary string, condition func() bool) (bool, error) {
	if condition() {
		return true, nil
	}
	timerCtx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	late := workflow.NewTimerWithOptions(timerCtx, most, workflow.TimerOptions{Summary: brief(summary)})
	err := workflow.Await(ctx, func() bool { return condition() || late.IsReady() })
	return condition(), err
}

// brief fits a summary into the 400 bytes that the server takes. They hold its JSON, in which
// one byte may be six; a summary that is too long would stop the workflow.
func brief(summary string) string {
	const most = 340
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune("<>&\"\\\u2028\u2029", r) {
			return ' '
		}
		return r
	}, summary)
	return clip(plain, most)
}

// timer is the one timer of an entity. What it means is worked out anew when it fires, so one
// for a deadline that has moved does no harm; it is cancelled all the same.
type timer struct {
	at     time.Time
	future workflow.Future
	cancel workflow.CancelFunc
}

// arm makes the timer fire at the given time; zero is never.
func (t *timer) arm(ctx workflow.Context, at time.Time, summary string) {
	if at.Equal(t.at) && !t.fired() {
		return
	}
	if t.cancel != nil {
		t.cancel()
		*t = timer{}
	}
	if at.IsZero() {
		return
	}
	timerCtx, cancel := workflow.WithCancel(ctx)
	t.at, t.cancel = at, cancel
	t.future = workflow.NewTimerWithOptions(timerCtx, at.Sub(workflow.Now(ctx)), workflow.TimerOptions{Summary: brief(summary)})
}

func (t *timer) fired() bool { return t.future != nil && t.future.IsReady() }
