package live_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/routing"
	"omniroute/workflows/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const openai = models.ProviderID("openai")

var (
	gpt   = models.ModelRef{Provider: openai, Model: "gpt-x"}
	mini  = models.ModelRef{Provider: openai, Model: "gpt-mini"}
	rules = resilience.Settings{}
)

// replica is one gateway's Live with what it has offered.
type replica struct {
	*live.Live
	registry *prometheus.Registry
	ahead    time.Duration // of its clock
	models   int           // that were made to fail
	mu       sync.Mutex
	offers   []contract.Change
}

func newReplica(t testing.TB, name string, probes live.ProbeClaimer, snapshot *catalog.Snapshot) *replica {
	return skewedReplica(t, name, 0, probes, snapshot)
}

// skewedReplica is one whose clock is ahead of everybody else's.
func skewedReplica(t testing.TB, name string, ahead time.Duration, probes live.ProbeClaimer, snapshot *catalog.Snapshot) *replica {
	log := logrus.New()
	log.SetOutput(io.Discard)
	r := &replica{registry: prometheus.NewRegistry(), ahead: ahead}
	r.Live = live.New(live.Options{
		Replica: name, Log: log, Registerer: r.registry, Probes: probes,
		Rand: func() uint64 { return 1 << 63 }, // no jitter
		Now:  r.now,
		Offer: func(c contract.Change) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.offers = append(r.offers, c)
		},
	})
	t.Cleanup(r.Stop)
	r.CatalogChanged(snapshot)
	return r
}

func alone(t *testing.T, connections int) *replica {
	return newReplica(t, "a", nil, newCatalog(connections))
}

// now is the replica's own clock.
func (r *replica) now() time.Time { return time.Now().Add(r.ahead) }

func (r *replica) offered() []contract.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]contract.Change(nil), r.offers...)
}

// newCatalog has one API-key provider, openai, with connections openai-1, openai-2 ...
func newCatalog(connections int) *catalog.Snapshot {
	p := &catalog.ProviderView{
		ID: openai, Class: models.ClassAPIKey,
		Breaker: rules.BreakerPolicy(models.ClassAPIKey), Cooldown: rules.CooldownPolicy(models.ClassAPIKey),
	}
	s := &catalog.Snapshot{
		Providers:   map[models.ProviderID]*catalog.ProviderView{openai: p},
		Connections: map[models.ConnectionID]*catalog.ConnectionView{},
	}
	for i := range connections {
		c := &catalog.ConnectionView{
			ID: models.ConnectionID(fmt.Sprintf("openai-%d", i+1)), Provider: p,
			Policy: resilience.ConnectionPolicy{Cooldown: p.Cooldown},
		}
		p.Connections = append(p.Connections, c)
		s.Connections[c.ID] = c
	}
	return s
}

func (r *replica) conn(i int) *catalog.ConnectionView {
	return r.Snapshot().Connections[models.ConnectionID(fmt.Sprintf("openai-%d", i))]
}

// admit gives a pass or fails the test.
func (r *replica) admit(t *testing.T, i int, model models.ModelRef) live.Pass {
	t.Helper()
	pass, out := r.Admit(t.Context(), r.conn(i), model, false, r.now())
	require.Nil(t, out, "refused: %+v", out)
	return pass
}

func (r *replica) fail(t *testing.T, i int, model models.ModelRef, v failure.Verdict) {
	t.Helper()
	r.admit(t, i, model).Failed(v, r.now())
}

func (r *replica) succeed(t *testing.T, i int, model models.ModelRef) {
	t.Helper()
	r.admit(t, i, model).Succeeded(r.now())
}

// out is why a target may not be called now; empty when it may.
func (r *replica) out(i int, model models.ModelRef) models.Reason {
	out, _ := r.Check(r.conn(i), model, false, r.now())
	if out == nil {
		return ""
	}
	return out.Reason
}

func (r *replica) left(i int, model models.ModelRef) time.Duration {
	out, _ := r.Check(r.conn(i), model, false, r.now())
	if out == nil {
		return 0
	}
	return out.Until.Sub(r.now())
}

func (r *replica) rank(i int, model models.ModelRef) routing.Rank {
	_, rank := r.Check(r.conn(i), model, false, r.now())
	return rank
}

func (r *replica) breaker() resilience.BreakerState {
	return r.Report(r.now()).Providers[0].Breaker
}

func (r *replica) connection(i int) live.ConnectionReport {
	return r.Report(r.now()).Connections[i-1]
}

// Verdicts as the classifier gives them.

func rateLimited(hint time.Duration) failure.Verdict {
	return failure.Verdict{Reason: models.ReasonRateLimited, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Failover: true, Hint: hint, UpstreamStatus: 429}
}

func unavailable() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonServerError, Blame: models.BlameUpstream, Scope: models.ScopeModel, Trips: true, Failover: true, UpstreamStatus: 503}
}

func notFound() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonNotFound, Blame: models.BlameUpstream, Scope: models.ScopeModel, Failover: true, Fixed: 2 * time.Minute, UpstreamStatus: 404}
}

// locked is a verdict that puts out a model, or its family, for a time of its own.
func locked(scope models.LockScope, wait time.Duration) failure.Verdict {
	v := notFound()
	v.Lock, v.Fixed = scope, wait
	return v
}

func rejectedKey() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonAuth, Blame: models.BlameUpstream, Scope: models.ScopeConnection, Failover: true, Terminal: models.PhaseExpired, UpstreamStatus: 401}
}

func badRequest() failure.Verdict {
	return failure.Verdict{Reason: models.ReasonInvalidRequest, Blame: models.BlameClient, Scope: models.ScopeNone, UpstreamStatus: 400}
}

// row is the provider's row as replicas share it: one holder of the probe until its lease
// has passed.
type row struct {
	mu     sync.Mutex
	owner  string
	until  time.Time
	asked  []resilience.Opening
	err    error
	frozen bool
}

func (r *row) ClaimProbe(ctx context.Context, _ models.ProviderID, owner string, o resilience.Opening, lease time.Duration) (bool, time.Duration, error) {
	r.mu.Lock()
	r.asked = append(r.asked, o)
	frozen := r.frozen
	r.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return false, 0, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return false, 0, r.err
	}
	if now := time.Now(); r.owner != "" && now.Before(r.until) {
		return false, r.until.Sub(now), nil
	}
	r.owner, r.until = owner, time.Now().Add(lease)
	return true, 0, nil
}

func (r *row) ReleaseProbe(_ context.Context, _ models.ProviderID, owner string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owner == owner {
		r.owner = ""
	}
	return nil
}

func (r *row) holder() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owner
}
