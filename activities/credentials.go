package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.temporal.io/sdk/activity"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/workflows/contract"
)

// TokenStore is the part of models/store that refreshing needs.
type TokenStore interface {
	LoadRefresh(ctx context.Context, id models.ConnectionID) (catalog.Refresh, bool, error)
	SaveTokens(ctx context.Context, id models.ConnectionID, seen int64, tokens catalog.Tokens) (generation int64, saved bool, err error)
}

// Bounds of one refresh. The token endpoint has been asked by the time the tokens are stored,
// so storing them gets time of its own: a refresh token is often good for one use, and a
// database that fails over is away for a minute or two.
const (
	refreshTimeout = 15 * time.Second
	storeTimeout   = 5 * time.Minute
	storeTry       = 5 * time.Second
	storePause     = 2 * time.Second // the longest between tries
	// beatEvery is how often Temporal hears that a refresh is under way.
	beatEvery = 5 * time.Second
)

// Credentials fetches new tokens. Its method is an activity. It is safe for concurrent use.
type Credentials struct {
	store  TokenStore
	styles styles
}

// NewCredentials makes the activities on a store.
func NewCredentials(store TokenStore) *Credentials { return &Credentials{store: store} }

// RefreshCredentials answers with tokens newer than those that the asker has seen. They may be
// there already; else the provider's token endpoint is asked, and what it gives is stored for
// every replica. Seen 0 is that of somebody who has seen none: it asks in any case.
//
// It may run twice, also at the same time. Tokens are stored only in the place of those they
// were fetched with, and whoever comes late, or used up the same refresh token, answers with
// what the other stored.
//
// An error, or the outcome untried, says nothing of the credentials: the database or the
// endpoint is away, or the endpoint refuses the provider's client. No answer and no error holds a token or a word of the endpoint's beside
// the error codes of RFC 6749.
func (c *Credentials) RefreshCredentials(ctx context.Context, asked contract.Refresh) (contract.Refreshed, error) {
	defer beating(ctx)()
	now, found, err := c.store.LoadRefresh(ctx, asked.Connection)
	if err != nil {
		return contract.Refreshed{}, err
	}
	answer := contract.Refreshed{Generation: now.Generation, ExpiresAt: now.ExpiresAt, Retry: contract.NewExpiredRetry(now.Expired)}
	impossible := func(reason string) (contract.Refreshed, error) {
		answer.Outcome, answer.Reason = contract.RefreshImpossible, reason
		return answer, nil
	}
	switch {
	case !found:
		return impossible("the connection is not in the catalog")
	case now.RefreshToken.Empty():
		return impossible("the connection has no refresh token")
	case now.Client == nil:
		return impossible("the provider has no token endpoint")
	case asked.Seen != 0 && asked.Seen != now.Generation:
		answer.Outcome = contract.RefreshRenewed
		return answer, nil
	}

	tokens, err := c.fetch(ctx, now)
	if err != nil {
		return c.failed(ctx, asked, answer, err)
	}
	return c.keep(ctx, asked, answer, tokens)
}

// beating tells Temporal that the refresh is under way, until it is stopped.
func beating(ctx context.Context) (stop func()) {
	if !activity.IsActivity(ctx) {
		return func() {}
	}
	done := make(chan struct{})
	var beats sync.WaitGroup
	beats.Go(func() {
		next := time.NewTicker(beatEvery)
		defer next.Stop()
		for {
			select {
			case <-next.C:
				activity.RecordHeartbeat(ctx)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		beats.Wait()
	}
}

// fetch asks the token endpoint, the way the connection's requests leave. A caller who leaves
// does not stop it: the refresh token may have been used up by then, and the answer be lost.
func (c *Credentials) fetch(ctx context.Context, now catalog.Refresh) (catalog.Tokens, error) {
	latest := time.Now().Add(refreshTimeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(latest) {
		latest = deadline
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), latest)
	defer cancel()
	client, err := tokenClient(now)
	if err != nil {
		return catalog.Tokens{}, err
	}
	defer client.CloseIdleConnections()
	return c.styles.fetch(ctx, client, now)
}

// failed words a refresh that brought nothing. One that a refresh at the same time has got
// ahead of has not failed.
func (c *Credentials) failed(ctx context.Context, asked contract.Refresh, answer contract.Refreshed, err error) (contract.Refreshed, error) {
	if now, found, loadErr := c.store.LoadRefresh(ctx, asked.Connection); loadErr == nil && found && now.Generation != answer.Generation {
		answer.Outcome, answer.Generation, answer.ExpiresAt = contract.RefreshRenewed, now.Generation, now.ExpiresAt
		return answer, nil
	}
	var refused *refusal
	var misconfigured *clientRefusal
	answer.Outcome = contract.RefreshUntried
	switch {
	case errors.As(err, &refused):
		answer.Outcome = contract.RefreshFailed
	case errors.As(err, &misconfigured) && activity.IsActivity(ctx):
		activity.GetLogger(ctx).Error("no account of the provider can be refreshed; its clientId and clientSecret are wrong",
			"provider", asked.Provider, "connection", asked.Connection, "code", misconfigured.code)
	}
	answer.Reason = err.Error()
	return answer, nil
}

// keep stores what was fetched. A caller who leaves does not stop it, and a database that is
// away for minutes is tried until it is back: losing the tokens would lose the account.
func (c *Credentials) keep(ctx context.Context, asked contract.Refresh, answer contract.Refreshed, tokens catalog.Tokens) (contract.Refreshed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	pauses := backoff.NewExponentialBackOff()
	pauses.MaxInterval = storePause
	generation, err := backoff.Retry(ctx, func() (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, storeTry)
		defer cancel()
		generation, _, err := c.store.SaveTokens(ctx, asked.Connection, answer.Generation, tokens)
		return generation, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(storeTimeout))
	if err != nil {
		return contract.Refreshed{}, fmt.Errorf("the new tokens of %q were not stored and are lost: %w", asked.Connection, err)
	}
	if generation <= answer.Generation { // nothing, when the connection is gone
		answer.Outcome, answer.Reason = contract.RefreshUntried, "the credential was replaced or removed meanwhile"
		return answer, nil
	}
	answer.Outcome, answer.Generation, answer.ExpiresAt = contract.RefreshRenewed, generation, tokens.ExpiresAt
	return answer, nil
}
