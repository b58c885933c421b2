package main

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"omniroute/integration/fakeprovider"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

const openai = models.ProviderID("openai")

var (
	rules  = resilience.Settings{}
	policy = resilience.ConnectionPolicy{
		Cooldown: rules.CooldownPolicy(models.ClassAPIKey),
		Expired:  resilience.ExpiredPolicy{Retries: 2, Base: time.Second},
	}
)

// scene is one life of one workflow, with the run whose history is kept.
type scene struct {
	name string
	play func(context.Context, *stage) (run, error)
}

var scenes = []scene{
	{"connection-cools-and-ends", coolsAndEnds},
	{"connection-extended-then-recovered", extendedThenRecovered},
	{"connection-recovered-after-its-end", recoveredAfterItsEnd},
	{"connection-banned-then-reset", bannedThenReset},
	{"connection-expired-then-new-credentials", expiredThenNewCredentials},
	{"connection-reset-without-a-workflow", resetWithoutAWorkflow},
	{"connection-cooldown-cleared", cooldownCleared},
	{"connection-models-locked-then-enabled", lockedThenEnabled},
	{"connection-expired-then-renewed", expiredThenRenewed},
	{"connection-expired-for-good-then-renewed", expiredForGoodThenRenewed},
	{"connection-renewed-for-a-crowd", renewedForACrowd},
	{"connection-database-away", databaseAway},
	{"connection-hands-over", handsOver},
	{"connection-handed-over", handedOver},
	{"provider-opens-and-ends", opensAndEnds},
	{"provider-closed-by-a-probe", closedByAProbe},
	{"provider-reset", providerReset},
	{"provider-held-and-gated", heldAndGated},
}

// failing is a connection's change after one more failure now.
func failing(id models.ConnectionID, from resilience.Connection, f resilience.Failure) contract.Change {
	f.At = time.Now()
	f.Reason, f.Status = models.ReasonRateLimited, 429
	if f.Terminal != "" {
		f.Reason, f.Status = models.ReasonAuth, 401
	}
	state, _ := from.Fail(f, policy)
	return changed(id, state, f.At)
}

// locking is a connection's change after a failure now that one model or family explains.
func locking(id models.ConnectionID, from resilience.Connection, scope models.LockScope, name string, lasts time.Duration) contract.Change {
	now := time.Now()
	state, _ := from.FailModel(resilience.LockKey{Scope: scope, Name: name},
		resilience.Failure{At: now, Reason: models.ReasonRateLimited, Status: 429, Hint: lasts}, policy.Cooldown)
	return changed(id, state, now)
}

func changed(id models.ConnectionID, state resilience.Connection, at time.Time) contract.Change {
	return contract.Change{Kind: contract.KindConnection, Connection: id, Provider: openai, Health: state, At: at}
}

// succeeding is the change after a success of an attempt sent just after the failure.
func succeeding(c contract.Change) contract.Change {
	c.At = c.Health.Cooldown.FailedAt.Add(time.Millisecond)
	c.Health, _ = c.Health.Succeed("gpt-x", "", c.At)
	return c
}

// begin sends a connection's first change and waits until its row says so.
func begin(ctx context.Context, s *stage, f resilience.Failure) (contract.Change, run, error) {
	return beginWith(ctx, s, failing(s.connection(), resilience.Connection{}, f))
}

func beginWith(ctx context.Context, s *stage, change contract.Change) (contract.Change, run, error) {
	if err := s.durable.Send(ctx, change); err != nil {
		return change, run{}, err
	}
	r, err := s.latest(ctx, contract.ConnectionWorkflowID(change.Connection))
	if err != nil {
		return change, r, err
	}
	return change, r, s.connectionRow(ctx, change.Connection, func(row catalog.ConnectionState) bool { return row.State.Equal(change.Health) })
}

// finish waits until the run has ended.
func finish(ctx context.Context, s *stage, r run) (run, error) {
	_, err := s.ended(ctx, r)
	return r, err
}

func coolsAndEnds(ctx context.Context, s *stage) (run, error) {
	_, r, err := begin(ctx, s, resilience.Failure{Hint: 500 * time.Millisecond})
	if err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func extendedThenRecovered(ctx context.Context, s *stage) (run, error) {
	first, r, err := begin(ctx, s, resilience.Failure{Hint: 20 * time.Second})
	if err != nil {
		return r, err
	}
	longer := failing(first.Connection, first.Health, resilience.Failure{Hint: time.Minute})
	for _, change := range []contract.Change{longer, first, succeeding(longer)} { // the second is an echo
		if err := s.durable.Send(ctx, change); err != nil {
			return r, err
		}
	}
	return finish(ctx, s, r)
}

func recoveredAfterItsEnd(ctx context.Context, s *stage) (run, error) {
	first, r, err := begin(ctx, s, resilience.Failure{Hint: 200 * time.Millisecond})
	if err != nil {
		return r, err
	}
	if _, err := s.ended(ctx, r); err != nil {
		return r, err
	}
	if err := s.durable.Send(ctx, succeeding(first)); err != nil {
		return r, err
	}
	if r, err = s.latest(ctx, r.workflow); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func bannedThenReset(ctx context.Context, s *stage) (run, error) {
	banned, r, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseBanned})
	if err != nil {
		return r, err
	}
	if err := s.durable.Reset(ctx, banned.Connection); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func expiredThenNewCredentials(ctx context.Context, s *stage) (run, error) {
	expired, r, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseExpired})
	if err != nil {
		return r, err
	}
	expired.At = time.Now()
	expired.Health = expired.Health.Enter(expired.Health.Era()+1, expired.At)
	if err := s.durable.Send(ctx, expired); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func resetWithoutAWorkflow(ctx context.Context, s *stage) (run, error) {
	id := s.connection()
	if err := s.durable.Reset(ctx, id); err != nil {
		return run{}, err
	}
	r, err := s.latest(ctx, contract.ConnectionWorkflowID(id))
	if err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func cooldownCleared(ctx context.Context, s *stage) (run, error) {
	cooling, r, err := begin(ctx, s, resilience.Failure{Hint: time.Minute})
	if err != nil {
		return r, err
	}
	if err := s.durable.ClearCooldown(ctx, cooling.Connection); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func lockedThenEnabled(ctx context.Context, s *stage) (run, error) {
	short, r, err := beginWith(ctx, s, locking(s.connection(), resilience.Connection{}, models.LockModel, "gpt-x", 500*time.Millisecond))
	if err != nil {
		return r, err
	}
	long := locking(short.Connection, short.Health, models.LockFamily, "spark", time.Minute)
	if err := s.durable.Send(ctx, long); err != nil {
		return r, err
	}
	if err := s.phase(ctx, r, "ready; 1 model locked: family spark"); err != nil {
		return r, err
	}
	if err := s.durable.EnableModels(ctx, short.Connection, []resilience.LockKey{{Scope: models.LockFamily, Name: "spark"}}); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

// beginExpired sends that an account's access token was refused.
func beginExpired(ctx context.Context, s *stage) (contract.Change, run, error) {
	id, err := s.account(ctx)
	if err != nil {
		return contract.Change{}, run{}, err
	}
	now := time.Now()
	state, _ := resilience.Connection{}.Fail(resilience.Failure{At: now, Reason: models.ReasonExpired, Status: 401}, policy)
	return beginWith(ctx, s, changed(id, state, now))
}

func expiredThenRenewed(ctx context.Context, s *stage) (run, error) {
	_, r, err := beginExpired(ctx, s)
	if err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func expiredForGoodThenRenewed(ctx context.Context, s *stage) (run, error) {
	s.provider.OnToken(fakeprovider.TokenStep{Error: "invalid_grant"})
	defer s.provider.OnToken()
	expired, r, err := beginExpired(ctx, s)
	if err != nil {
		return r, err
	}
	if err := s.phase(ctx, r, "expired at openai"); err != nil {
		return r, err
	}
	s.provider.OnToken()
	if _, err := s.byHand(ctx, contract.ConnectionWorkflowID(expired.Connection), contract.UpdateRefreshCredentials, "{}"); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

// renewedForACrowd lets three ask at once, and one more who has seen the same token fail.
func renewedForACrowd(ctx context.Context, s *stage) (run, error) {
	id, err := s.account(ctx)
	if err != nil {
		return run{}, err
	}
	cooling, r, err := beginWith(ctx, s, failing(id, resilience.Connection{}, resilience.Failure{Hint: 20 * time.Second}))
	if err != nil {
		return r, err
	}
	var crowd errgroup.Group
	for range 3 {
		crowd.Go(func() error {
			_, err := s.durable.Renew(ctx, cooling.Connection, 0)
			return err
		})
	}
	if err := crowd.Wait(); err != nil {
		return r, err
	}
	if _, err := s.durable.Renew(ctx, cooling.Connection, 0); err != nil {
		return r, err
	}
	if err := s.durable.Send(ctx, succeeding(cooling)); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func databaseAway(ctx context.Context, s *stage) (run, error) {
	first, r, err := begin(ctx, s, resilience.Failure{Hint: 3 * time.Second})
	if err != nil {
		return r, err
	}
	s.gate.away.Store(true)
	defer s.gate.away.Store(false)
	next := first
	for range 3 { // each with its own workflow task, while one publication is being tried
		next = failing(next.Connection, next.Health, resilience.Failure{Hint: 4 * time.Second})
		if err := s.durable.Send(ctx, next); err != nil {
			return r, err
		}
		if err := s.knows(ctx, r, next.Health); err != nil {
			return r, err
		}
	}
	s.gate.away.Store(false)
	return finish(ctx, s, r)
}

func handsOver(ctx context.Context, s *stage) (run, error) {
	_, first, _, err := handOver(ctx, s)
	return first, err
}

func handedOver(ctx context.Context, s *stage) (run, error) {
	change, _, second, err := handOver(ctx, s)
	if err != nil {
		return second, err
	}
	if err := s.durable.Send(ctx, succeeding(change)); err != nil {
		return second, err
	}
	return finish(ctx, s, second)
}

// handOver lets the workflow of a connection that cools and has a model locked grow until it
// continues as new.
func handOver(ctx context.Context, s *stage) (last contract.Change, first, second run, err error) {
	last, first, err = beginWith(ctx, s, locking(s.connection(), resilience.Connection{}, models.LockModel, "gpt-x", time.Minute))
	second = first
	for err == nil && second == first {
		last = failing(last.Connection, last.Health, resilience.Failure{Hint: time.Minute})
		if err = s.durable.Send(ctx, last); err != nil {
			return last, first, second, err
		}
		if err = s.knows(ctx, run{workflow: first.workflow}, last.Health); err != nil {
			return last, first, second, err
		}
		second, err = s.latest(ctx, first.workflow)
	}
	return last, first, second, err
}

// phase waits until a connection's workflow stands so that its sentence begins with the words.
func (s *stage) phase(ctx context.Context, r run, words string) error {
	return s.await(ctx, func(ctx context.Context) (bool, error) {
		have, err := s.state(ctx, r)
		return strings.HasPrefix(have.Sentence, words), err
	})
}

// knows waits until a connection's workflow has taken a state in.
func (s *stage) knows(ctx context.Context, r run, want resilience.Connection) error {
	return s.await(ctx, func(ctx context.Context) (bool, error) {
		have, err := s.state(ctx, r)
		return resilience.JoinConnection(have.State, want).Equal(have.State), err
	})
}

// state asks a connection's workflow where it stands.
func (s *stage) state(ctx context.Context, r run) (have contract.EntityState[resilience.Connection], err error) {
	answer, err := s.client.QueryWorkflow(ctx, r.workflow, r.id, contract.QueryState)
	if err == nil {
		err = answer.Get(&have)
	}
	return have, err
}

// opening is a provider's change after its breaker opened now.
func opening(id models.ProviderID, reset time.Duration) (contract.Change, resilience.Breaker, resilience.BreakerPolicy) {
	policy := rules.BreakerPolicy(models.ClassAPIKey)
	policy.ResetTimeout, policy.FailureThreshold = reset, 1
	now := time.Now()
	var closed resilience.Breaker
	admitted, ticket, _, _ := closed.Admit(policy, now)
	opened, _ := admitted.Report(ticket, resilience.Result{
		Outcome: resilience.Failed, UsableConnections: 1, Reason: models.ReasonServerError, Status: 503,
	}, policy, now)
	return contract.Change{Kind: contract.KindProvider, Provider: id, Breaker: resilience.Provider{Opening: opened.Opening()}, At: now}, opened, policy
}

func beginOpening(ctx context.Context, s *stage, reset time.Duration) (contract.Change, resilience.Breaker, resilience.BreakerPolicy, run, error) {
	change, breaker, policy := opening(s.anotherProvider(), reset)
	if err := s.durable.Send(ctx, change); err != nil {
		return change, breaker, policy, run{}, err
	}
	r, err := s.latest(ctx, contract.ProviderWorkflowID(change.Provider))
	if err != nil {
		return change, breaker, policy, r, err
	}
	return change, breaker, policy, r, s.await(ctx, func(ctx context.Context) (bool, error) {
		row, found, err := s.store.LoadProviderState(ctx, change.Provider)
		return found && row.State.Equal(change.Breaker), err
	})
}

func opensAndEnds(ctx context.Context, s *stage) (run, error) {
	_, _, _, r, err := beginOpening(ctx, s, 500*time.Millisecond)
	if err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func closedByAProbe(ctx context.Context, s *stage) (run, error) {
	change, breaker, policy, r, err := beginOpening(ctx, s, 20*time.Second)
	if err != nil {
		return r, err
	}
	then := change.Breaker.Opening.Until // another replica's clock is ahead: its probe is through already
	probing, ticket, _, _ := breaker.Admit(policy, then)
	closed, _ := probing.Report(ticket, resilience.Result{Outcome: resilience.Succeeded}, policy, then)
	change.Breaker.Opening, change.At = closed.Opening(), then
	if err := s.durable.Send(ctx, change); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func providerReset(ctx context.Context, s *stage) (run, error) {
	change, _, _, r, err := beginOpening(ctx, s, 20*time.Second)
	if err != nil {
		return r, err
	}
	if err := s.durable.ResetProvider(ctx, change.Provider); err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}

func heldAndGated(ctx context.Context, s *stage) (run, error) {
	now := time.Now()
	failure := resilience.Failure{At: now, Reason: models.ReasonQuotaExhausted, Status: 429}
	gated, _ := resilience.Provider{}.Trip(failure, resilience.WindowPolicy{Enabled: true, Failures: 1, Cooldown: time.Second})
	failure.Hint = 500 * time.Millisecond
	both, _ := gated.Fail(failure, policy.Cooldown)
	change := contract.Change{Kind: contract.KindProvider, Provider: s.anotherProvider(), Breaker: both, At: now}
	if err := s.durable.Send(ctx, change); err != nil {
		return run{}, err
	}
	r, err := s.latest(ctx, contract.ProviderWorkflowID(change.Provider))
	if err != nil {
		return r, err
	}
	return finish(ctx, s, r)
}
