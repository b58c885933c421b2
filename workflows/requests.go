package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

const (
	// rowPatience is how long an answer waits for the row.
	rowPatience = 3 * time.Second
	// loadPatience is how long a request waits for the row to be read in the first place. What
	// begins an era must know which era that is.
	loadPatience = 10 * time.Second
	// latestRequest is how old a request may be when it is carried out. Who sent it has been told
	// long ago that it did not arrive, and may have thought better of it since.
	latestRequest = time.Minute

	rememberedRequests = 16
	longestRequestID   = 128
)

// handle registers the handler of one kind of request. What is refused leaves no trace in the
// history.
func handle[R contract.Request, A any](ctx workflow.Context, name string, handler func(workflow.Context, R) (A, error), description string, also ...func(R) error) error {
	return workflow.SetUpdateHandlerWithOptions(ctx, name, handler, workflow.UpdateHandlerOptions{
		Description: description,
		Validator: func(ctx workflow.Context, request R) error {
			about := request.About()
			if len(about.RequestID) > longestRequestID {
				return refusal(contract.ErrorInvalidRequest, "requestId has more than 128 characters")
			}
			for _, check := range also {
				if err := check(request); err != nil {
					return err
				}
			}
			return inTime(ctx, about)
		},
	})
}

func refusal(kind, words string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(words, args...), kind, nil)
}

// inTime refuses a request that nobody waits for any more.
func inTime(ctx workflow.Context, about contract.Asked) error {
	if about.RequestedAt.IsZero() {
		return nil
	}
	if age := workflow.Now(ctx).Sub(about.RequestedAt); age > latestRequest {
		return refusal(contract.ErrorTooLate,
			"the request is %s old and was not carried out; if it is not, the clock of its sender is behind", age.Round(time.Second))
	}
	return nil
}

// reset begins a new era.
func (e *entity[S]) reset(ctx workflow.Context, request contract.ResetRequest) (contract.Answer, error) {
	return e.change(ctx, contract.UpdateReset, request.Asked, func(now time.Time) error {
		e.state = e.kind.reset(e.state, now)
		return nil
	})
}

// change is the course of a request that changes the state: it is carried out once, and
// answered when the row says so or the database takes too long. A repeated request gets the
// answer of the first one, also from a later run.
func (e *entity[S]) change(ctx workflow.Context, update string, about contract.Asked, apply func(now time.Time) error) (contract.Answer, error) {
	id, before, err := e.admit(ctx, update, about)
	if err != nil {
		return contract.Answer{}, err
	}
	if before == nil {
		if err := apply(workflow.Now(ctx)); err != nil {
			return contract.Answer{}, err
		}
		before = e.remember(contract.Answered{Update: update, RequestID: id, Era: e.kind.era(e.state)})
	}
	return e.answer(ctx, before.Era)
}

// admit waits until the row is known and finds the answer that the request has had already, if
// any. What arrived before the request is taken in first: the request is about that, too.
func (e *entity[S]) admit(ctx workflow.Context, update string, about contract.Asked) (id string, before *contract.Answered, err error) {
	id = about.RequestID
	if id == "" {
		id = workflow.GetCurrentUpdateInfo(ctx).ID
	}
	loaded, err := awaitFor(ctx, loadPatience, update+" waits for the row to be read", e.loaded)
	if err != nil {
		return id, nil, err
	}
	if !loaded {
		return id, nil, refusal(contract.ErrorNoDatabase, "the row cannot be read now, so nothing was done; try again")
	}
	for i := range e.answered {
		if e.answered[i].RequestID == id && e.answered[i].Update == update {
			return id, &e.answered[i], nil
		}
	}
	e.takeSignals(ctx)
	return id, nil, inTime(ctx, about)
}

// remember keeps an answer for as long as a repetition is likely.
func (e *entity[S]) remember(a contract.Answered) *contract.Answered {
	if len(e.answered) == rememberedRequests {
		e.answered = e.answered[1:]
	}
	e.answered = append(e.answered, a)
	return &a
}

// answer waits for the row to say what the state says now, within bounds.
func (e *entity[S]) answer(ctx workflow.Context, era int64) (contract.Answer, error) {
	e.touched = true
	now := e.state
	_, err := awaitFor(ctx, rowPatience, "an answer waits for the row", func() bool { return e.leaving || e.saysAll(now) })
	return contract.Answer{Era: era, Published: e.saysAll(now)}, err
}
