package relay

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// endRenewed is the exit of an attempt whose credentials had expired and have been renewed: the
// same target is tried again, and nobody is blamed.
const endRenewed = endShutdown + 1

// try makes an attempt, and another one where the first ended with new credentials. It is the
// last: credentials are renewed once per request and connection.
func (r *run) try(parent context.Context, c *routing.Candidate) ending {
	end := r.attempt(parent, c)
	if end == endRenewed {
		end = r.attempt(parent, c)
	}
	return end
}

// send sends the attempt. An access token that ends soon is renewed meanwhile; without any, a
// refusal is certain and is not waited for.
func (a *attempt) send() (*http.Response, *failure.Signal) {
	if a.renewals != nil && a.conn.Renewable && a.conn.Expiring(time.Now()) {
		if a.conn.APIKey.Empty() {
			return nil, &failure.Signal{Kind: failure.KindHTTP, Status: http.StatusUnauthorized}
		}
		a.renewals.ahead(a.conn)
	}
	return a.upstream.Do(a.ctx, a.conn, a.Chat.For(a.Body, a.candidate.Target.Model.Model), a.Chat.Stream)
}

// renew answers expired credentials with new ones, if there can be any, and reports whether
// there are. Then the attempt ends without blame. It may take as long as renewing does, within
// the client's patience (design decision 4). Without new ones the verdict is excused where it is
// no evidence: the refused token has been replaced, or there was none to send and nobody could
// fetch one.
func (a *attempt) renew(verdict *failure.Verdict) (renewed, excused bool) {
	if a.renewals == nil || a.committed || !a.conn.Renewable || verdict.Reason != models.ReasonExpired || verdict.Terminal != "" {
		return false, false
	}
	if slices.Contains(a.renewed, a.conn.ID) || len(a.trials)+1 >= a.limits.MaxAttempts {
		return false, a.conn.APIKey.Empty()
	}
	a.renewed = append(a.renewed, a.conn.ID)
	a.dog.enter(failure.KindHeaderTimeout, renewTimeout+arriveTimeout)
	if err := a.renewals.await(a.ctx, a.conn); err != nil {
		return false, errors.Is(err, errLate) || a.conn.APIKey.Empty() && untried(err)
	}
	a.settled.abandoned(time.Now())
	a.trials = append(a.trials, trial{target: a.candidate.Target, verdict: *verdict, renewed: true})
	return true, false
}

// untried reports that a renewal which failed says nothing of the credentials: they were not
// refused, and not found to lack what renewing takes.
func untried(err error) bool {
	var answer *models.Error
	return !errors.As(err, &answer) || answer.Code != models.CodeUpstreamRejected && answer.Code != models.CodeInvalidRequest
}
