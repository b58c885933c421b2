package live_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// message is an offer on its way, with the whole of what its sender knew when it was made.
type message struct{ delta, whole resilience.Connection }

// system is two replicas, the workflow that their offers reach in any order, several times or
// never, and one that is told the whole state each time instead of what its row does not say.
type system struct {
	now      time.Time
	replicas [2]*live.Live
	snapshot *catalog.Snapshot
	sent     []message
	running  []attempt
	workflow resilience.Connection
	whole    resilience.Connection
	version  int64
}

type attempt struct {
	pass live.Pass
	on   int
}

const account = models.ConnectionID("openai-1")

func newSystem() *system {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := &system{now: began}
	s.snapshot = withFamily(withLockouts(1), "family", gpt, mini)
	s.snapshot.Connections[account].Policy.Expired = resilience.ExpiredPolicy{Retries: 3, Base: time.Minute}
	log := logrus.New()
	log.SetOutput(io.Discard)
	for i := range s.replicas {
		s.replicas[i] = live.New(live.Options{
			Replica: fmt.Sprint(i), Log: log, Rand: func() uint64 { return 1 << 63 },
			Now: func() time.Time { return s.now }, Uptime: func() time.Duration { return s.now.Sub(began) },
			Offer: func(c contract.Change) {
				s.sent = append(s.sent, message{c.Health, s.replicas[i].Shared(account)})
			},
		})
		s.replicas[i].CatalogChanged(s.snapshot)
	}
	return s
}

// deliver lets a message reach both workflows; what it is may come again.
func (s *system) deliver(t *rapid.T, m message) {
	s.workflow = resilience.JoinConnection(s.workflow, m.delta)
	s.whole = resilience.JoinConnection(s.whole, m.whole)
	require.True(t, s.workflow.Equal(s.whole), "the deltas say\n%+v\nand the whole states\n%+v", s.workflow, s.whole)
}

// publish lets one replica read the row as it is now.
func (s *system) publish(to int, complete bool) {
	s.version++
	row := catalog.ConnectionState{
		Connection: account, Provider: openai, Stamp: models.Stamp{Era: s.workflow.Era(), Version: s.version},
		State: s.workflow, AppliedThrough: s.workflow.Evidence(), Remaining: s.workflow.Cooldown.Until.Sub(s.now),
	}
	s.replicas[to].StatesChanged(&catalog.States{Connections: []catalog.ConnectionState{row}, Complete: complete})
}

// decide is what an operator or new credentials do in the workflow.
func (s *system) decide(change func(resilience.Connection) resilience.Connection) {
	s.workflow, s.whole = change(s.workflow), change(s.whole)
}

// agreed is what all must agree on: what keeps the connection out now, and which models.
func (s *system) agreed(i int) (live.ConnectionReport, []resilience.Lockout) {
	return s.replicas[i].Report(s.now).Connections[0], s.replicas[i].Shared(account).Out(s.now)
}

// Whatever is lost, repeated or reordered: told only what its row does not say, a workflow
// comes to know exactly what it would have been told with whole states, and once everything has
// arrived the replicas agree with it and with each other.
func TestOffersOfWhatTheRowDoesNotSayGiveWhatWholeStatesWould(t *testing.T) {
	verdicts := map[string]failure.Verdict{
		"server error": unavailable(), "missing": verdict(models.LockModel, models.ReasonNotFound, 404),
		"quota": locked(models.LockFamily, 10*time.Minute), "unlisted": verdict(models.LockExact, models.ReasonServerError, 500),
		"rate": rateLimited(30 * time.Second), "guess": rateLimited(0),
		"refused": {Reason: models.ReasonRequestRejected, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 403},
		"expired": {Reason: models.ReasonExpired, Scope: models.ScopeConnection, Failover: true, UpstreamStatus: 401},
	}
	names := []string{"server error", "missing", "quota", "unlisted", "rate", "guess", "refused", "expired"}
	refs := []models.ModelRef{gpt, mini, {Provider: openai, Model: "other"}}
	rapid.Check(t, func(t *rapid.T) {
		s := newSystem()
		which := rapid.IntRange(0, 1)
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) {},
			"time passes": func(t *rapid.T) {
				s.now = s.now.Add(time.Duration(rapid.IntRange(1, 90_000).Draw(t, "ms")) * time.Millisecond)
			},
			"a request is sent": func(t *rapid.T) {
				i := which.Draw(t, "replica")
				pass, _ := s.replicas[i].Admit(t.Context(), s.snapshot.Connections[account], rapid.SampledFrom(refs).Draw(t, "model"), false, s.now)
				if pass != nil {
					s.running = append(s.running, attempt{pass, i})
				}
			},
			"a request ends": func(t *rapid.T) {
				if len(s.running) == 0 {
					return
				}
				n := rapid.IntRange(0, len(s.running)-1).Draw(t, "attempt")
				pass := s.running[n].pass
				s.running = append(s.running[:n], s.running[n+1:]...)
				if rapid.IntRange(0, 3).Draw(t, "well") == 0 {
					pass.Succeeded(s.now)
				} else {
					pass.Failed(verdicts[rapid.SampledFrom(names).Draw(t, "verdict")], s.now)
				}
			},
			"a message arrives, perhaps again": func(t *rapid.T) {
				if len(s.sent) == 0 {
					return
				}
				s.deliver(t, rapid.SampledFrom(s.sent).Draw(t, "message"))
			},
			"a row is read":     func(t *rapid.T) { s.publish(which.Draw(t, "replica"), false) },
			"all rows are read": func(t *rapid.T) { s.publish(which.Draw(t, "replica"), true) },
			"a model is enabled": func(t *rapid.T) {
				key := resilience.KeysOf(rapid.SampledFrom(refs).Draw(t, "model").Model, "family")
				s.decide(func(c resilience.Connection) resilience.Connection { c, _ = c.Enable(key, s.now); return c })
			},
			"a cooldown is cleared": func(*rapid.T) {
				s.decide(func(c resilience.Connection) resilience.Connection { c, _ = c.ClearCooldown(s.now); return c })
			},
			"a new era begins": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "seldom") > 0 {
					return
				}
				s.decide(func(c resilience.Connection) resilience.Connection { return c.Reset(s.now) })
			},
		})

		// In the end complete reads make good what was lost.
		s.sent = nil
		for range 3 {
			for i := range s.replicas {
				s.replicas[i].Patient()
				s.publish(i, true)
			}
			for _, m := range s.sent {
				s.deliver(t, m)
			}
			s.sent = nil
		}
		standing := s.workflow.Cooldown.Standing(s.now)
		for i := range s.replicas {
			connection, locks := s.agreed(i)
			require.Equal(t, s.workflow.Era(), connection.Era)
			require.Equal(t, standing.Phase, connection.Phase)
			if standing.Phase == models.PhaseCooling {
				require.True(t, standing.Until.Equal(connection.Until))
				require.Equal(t, standing.Reason, connection.Reason)
			}
			require.Equal(t, s.workflow.Rejections.Count, connection.Rejections)
			require.Equal(t, s.workflow.Expiries.Count, connection.Expiries)
			require.Equal(t, s.workflow.Out(s.now), locks)
		}
	})
}
