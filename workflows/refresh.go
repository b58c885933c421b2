package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// refreshPause is for how long a refresh that failed speaks for those who have seen the same
// credentials: a crowd of requests asks the provider once.
const refreshPause = 10 * time.Second

// longestFailure bounds the provider's words about a refresh.
const longestFailure = 120

// refresh is the connection's one refresh at a time. It runs beside publications, and a run
// waits for it before it ends or hands over: a refresh token is often good for one use, so two
// refreshes at once could lose the account.
type refresh struct {
	running workflow.Future // nil when none is
	began   int64           // the era in which the latest one began
	seen    int64           // the generation that the latest one is to replace
	accused bool            // somebody has seen it fail
	ended   int             // how many have ended in this run
	latest  contract.Refreshed
	endedAt time.Time
}

func checkRefresh(request contract.RefreshRequest) error {
	if request.Seen != nil && *request.Seen < 0 {
		return refusal(contract.ErrorInvalidRequest, "seen is %d, but generations begin at 0", *request.Seen)
	}
	return nil
}

// refreshCredentials answers with credentials newer than those that the asker has seen fail:
// at once when they are known, else when the refresh under way, or a new one, has ended.
func (c *connection) refreshCredentials(ctx workflow.Context, request contract.RefreshRequest) (contract.RefreshAnswer, error) {
	id, before, err := c.admit(ctx, contract.UpdateRefreshCredentials, request.Asked)
	if err != nil {
		return contract.RefreshAnswer{}, err
	}
	if before == nil {
		c.countAnew()
		refreshed, err := c.newer(ctx, request.Seen)
		if err != nil {
			return contract.RefreshAnswer{}, err
		}
		before = c.remember(contract.Answered{
			Update: contract.UpdateRefreshCredentials, RequestID: id, Era: c.state.Era(), Refreshed: &refreshed,
		})
	}
	answer, err := c.answer(ctx, before.Era)
	return contract.RefreshAnswer{Answer: answer, Refreshed: *before.Refreshed}, err
}

func (c *connection) newer(ctx workflow.Context, seen *int64) (contract.Refreshed, error) {
	if seen != nil && c.running == nil {
		if c.tokens.Generation > *seen {
			return contract.Refreshed{Outcome: contract.RefreshRenewed, Generation: c.tokens.Generation, ExpiresAt: c.tokens.ExpiresAt}, nil
		}
		if c.latest.Outcome == contract.RefreshFailed && c.seen == *seen && workflow.Now(ctx).Sub(c.endedAt) < refreshPause {
			return c.latest, nil
		}
		c.tokens.Generation = *seen // whoever has seen it knows that it exists
	}
	if c.running == nil {
		c.startRefresh(ctx)
	}
	c.accused = c.accused || seen != nil && *seen == c.seen
	ended := c.ended + 1
	err := workflow.Await(ctx, func() bool { return c.ended >= ended })
	return c.latest, err
}

// begin starts the refresh that is due: once for each episode of expired credentials, when its
// cooldown has ended.
func (c *connection) begin(ctx workflow.Context) {
	at := c.state.Cooldown.Standing(workflow.Now(ctx))
	if c.running == nil && at.Trial && c.expired() && !c.tokens.Tried.Equal(at.Until) {
		c.tokens.Tried = at.Until
		c.startRefresh(ctx)
	}
}

// expired reports that the credentials are known to have expired.
func (c *connection) expired() bool {
	return c.state.Expiries.Count > 0 && c.state.Cooldown.Reason == models.ReasonExpired && !c.state.Cooldown.Settled()
}

func (c *connection) startRefresh(ctx workflow.Context) {
	c.began, c.seen, c.accused = c.state.Era(), c.tokens.Generation, false
	c.running = startOutside(ctx, contract.RefreshCredentials, contract.Refresh{Entity: c.id, Seen: c.seen}, "refresh the credentials")
}

func (c *connection) ready() bool { return c.running != nil && c.running.IsReady() }

func (c *connection) busy() bool { return c.running != nil }

// settle takes in what a refresh came to.
func (c *connection) settle(ctx workflow.Context) {
	c.countAnew()
	if c.state.Outdated() {
		c.state, _ = c.state.Renew(workflow.Now(ctx), c.state.Renewed)
	}
	if !c.ready() {
		return
	}
	var r contract.Refreshed
	if err := c.running.Get(ctx, &r); err != nil {
		workflow.GetLogger(ctx).Warn("a refresh was not tried", "error", err)
		r = contract.Refreshed{Outcome: contract.RefreshUntried, Generation: c.tokens.Generation, Reason: untried(err)}
	}
	if c.began != c.state.Era() && r.Outcome != contract.RefreshRenewed { // it speaks of the old ones
		r = contract.Refreshed{Outcome: contract.RefreshUntried, Generation: c.tokens.Generation, Reason: "the credentials were replaced or reset meanwhile"}
	}
	r.Reason = clip(r.Reason, longestFailure)
	c.running, c.latest, c.endedAt = nil, r, workflow.Now(ctx)
	c.ended++
	c.apply(r, workflow.Now(ctx))
}

// countAnew forgets what was known of other credentials: a new era has begun.
func (c *connection) countAnew() {
	if era := c.state.Era(); c.tokens.Era != era {
		c.tokens = contract.Tokens{Era: era}
	}
}

// apply draws the consequences. A failure counts where the credentials are known to fail; where
// an operator tried a refresh in good health, nothing is worse than before. What was impossible
// or untried says nothing: the connection is on trial, and a request will tell.
func (c *connection) apply(r contract.Refreshed, now time.Time) {
	retry := r.Retry.Policy()
	if r.Outcome != contract.RefreshUntried {
		c.tokens.Retries = retry.Retries
	}
	switch r.Outcome {
	case contract.RefreshRenewed:
		c.tokens.Generation, c.tokens.ExpiresAt, c.tokens.Failure = r.Generation, r.ExpiresAt, ""
		c.state, _ = c.state.Renew(now, r.Generation)
		c.tokens.Era = c.state.Era() // of a terminal connection it begins a new one
	case contract.RefreshUntried:
		c.tokens.Failure = r.Reason
	case contract.RefreshFailed:
		c.tokens.Failure = r.Reason
		if c.expired() || c.accused {
			c.state, _ = c.state.Fail(resilience.Failure{
				At: now, Dispatched: now, Reason: models.ReasonExpired, Status: 401, Token: max(r.Generation, c.state.Renewed),
			}, resilience.ConnectionPolicy{Expired: retry})
		}
	}
}

// untried words why nothing was learned; the error itself may quote anything.
func untried(err error) string {
	var late *temporal.TimeoutError
	if errors.As(err, &late) {
		return "no worker took it or finished it in time"
	}
	return "the worker could not try it"
}
