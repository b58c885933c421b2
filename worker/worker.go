package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"omniroute/activities"
	"omniroute/workflows/dial"
)

const (
	// prepareTimeout bounds one look at the namespace.
	prepareTimeout = 10 * time.Second
	retryFirst     = 250 * time.Millisecond
	retryMax       = 15 * time.Second
	// rowGrace is how long activities that write one row may finish when the worker stops, and
	// refreshGrace how long those that fetch tokens may: a refresh token that was used up and
	// whose successor was not stored is an account lost.
	rowGrace     = 2 * time.Second
	refreshGrace = 30 * time.Second
	// StopLimit is how long Stop may take.
	StopLimit = refreshGrace + 3*time.Second

	// stickyWorkflows is how many workflows stay in memory between their tasks, per process.
	stickyWorkflows = 512
	// rowsAtOnce bounds the database connections that activities use at one time.
	rowsAtOnce = 16
)

// Options are the dependencies of a Worker.
type Options struct {
	// Client may be lazy; the worker does not own it.
	Client    client.Client
	Namespace string
	States    activities.States
	// Credentials refresh OAuth tokens; nil in a process without the key ring, which leaves that
	// work to others.
	Credentials *activities.Credentials
	Log         logrus.FieldLogger
}

// Worker polls the task queues. It starts whether or not Temporal is there, and gets to work
// as soon as it is.
type Worker struct {
	options Options
	running atomic.Bool

	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	start  sync.Once
	stop   sync.Once
}

// The cache of sticky workflows is the process's, not a worker's.
var sizeStickyCache = sync.OnceFunc(func() { sdkworker.SetStickyWorkflowCacheSize(stickyWorkflows) })

// New makes a worker. It does not connect.
func New(options Options) *Worker {
	sizeStickyCache()
	if options.Namespace == "" {
		options.Namespace = dial.DefaultNamespace
	}
	if options.Log == nil {
		options.Log = logrus.StandardLogger()
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Worker{options: options, ctx: ctx, cancel: cancel, done: make(chan struct{})}
}

// Start begins to work in the background and waits for nothing.
func (w *Worker) Start() {
	w.start.Do(func() {
		go func() {
			defer close(w.done)
			w.supervise()
		}()
	})
}

// Running says whether the worker polls. It may still be polling a server that has gone away
// since; the SDK takes up again by itself.
func (w *Worker) Running() bool { return w.running.Load() }

// Stop ends polling, lets what is under way finish for 2 s, or 30 s where tokens are fetched,
// and returns after StopLimit at the latest, or when ctx ends. What is cut off is taken up by another worker.
func (w *Worker) Stop(ctx context.Context) {
	w.stop.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, StopLimit)
		defer cancel()
		w.start.Do(func() { close(w.done) })
		w.cancel()
		select {
		case <-w.done:
		case <-ctx.Done():
			w.options.Log.Warn("the worker did not stop in time; its tasks go to another")
		}
	})
}

// supervise brings the workers up, again and again until Stop: Temporal may be away for long,
// and a worker may end with a fatal error such as a namespace that is gone.
func (w *Worker) supervise() {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = retryFirst, retryMax
	told := false
	for w.ctx.Err() == nil {
		fatal, stopAll, err := w.bringUp()
		if err == nil {
			w.running.Store(true)
			w.options.Log.Info("worker polls Temporal")
			wait.Reset()
			told = false
			select {
			case err = <-fatal:
			case <-w.ctx.Done():
			}
			w.running.Store(false)
			stopAll()
		}
		if w.ctx.Err() != nil {
			return
		}
		if !told {
			w.options.Log.WithError(err).Warn("worker waits for Temporal")
			told = true
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-w.ctx.Done():
		}
	}
}

// bringUp prepares the namespace and starts one SDK worker per task queue, all or none. A
// started worker tells of its fatal error, if any, on the channel.
func (w *Worker) bringUp() (fatal <-chan error, stopAll func(), err error) {
	if err := w.prepare(); err != nil {
		return nil, nil, err
	}
	errs := make(chan error, 1)
	var started []sdkworker.Worker
	stopAll = func() {
		var stopping sync.WaitGroup
		for _, s := range started {
			stopping.Go(s.Stop)
		}
		stopping.Wait()
	}
	for _, q := range queues(w.options.States, w.options.Credentials) {
		s := sdkworker.New(w.options.Client, q.name, w.sdkOptions(q, errs))
		q.register(s)
		if err := s.Start(); err != nil {
			stopAll()
			return nil, nil, err
		}
		started = append(started, s)
	}
	return errs, stopAll, nil
}

// prepare makes sure of the namespace and its search attributes. A client that may not manage
// them goes on: somebody else has seen to them, or the workflows' errors will say so.
func (w *Worker) prepare() error {
	ctx, cancel := context.WithTimeout(w.ctx, prepareTimeout)
	defer cancel()
	err := dial.EnsureNamespace(ctx, w.options.Client, w.options.Namespace, dial.Retention)
	if err == nil {
		err = dial.EnsureSearchAttributes(ctx, w.options.Client, w.options.Namespace)
	}
	var denied *serviceerror.PermissionDenied
	var unknown *serviceerror.Unimplemented
	if errors.As(err, &denied) || errors.As(err, &unknown) {
		w.options.Log.WithError(err).Warn("cannot see to the namespace's search attributes")
		return nil
	}
	return err
}

// sdkOptions sizes one queue's worker. Pollers scale by themselves: a fixed pair can starve
// one queue behind long polls of the other.
func (w *Worker) sdkOptions(q queue, fatal chan<- error) sdkworker.Options {
	pollers := sdkworker.NewPollerBehaviorAutoscaling(sdkworker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: 2, MinimumNumberOfPollers: 1, MaximumNumberOfPollers: 16,
	})
	return sdkworker.Options{
		WorkflowTaskPollerBehavior:         pollers,
		ActivityTaskPollerBehavior:         pollers,
		DisableWorkflowWorker:              len(q.workflows) == 0,
		MaxConcurrentActivityExecutionSize: rowsAtOnce,
		WorkerStopTimeout:                  q.grace,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default:
			}
		},
	}
}
