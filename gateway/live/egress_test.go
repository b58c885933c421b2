package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// shared is a catalog whose provider limits by address: openai-1, -2 and -3 leave through the
// machine's own, openai-4 through another one.
func shared() *catalog.Snapshot {
	s := newCatalog(4)
	s.Providers[openai].EgressShared = true
	s.Connections["openai-4"].Egress = "proxy out.example:3128"
	return s
}

// atAddress is a verdict about the address that the attempt came from.
func atAddress(v failure.Verdict) failure.Verdict {
	v.Address = true
	return v
}

func TestALimitOnAnAddressKeepsEveryConnectionBehindItAway(t *testing.T) {
	for name, v := range map[string]failure.Verdict{
		"a rate limit":      rateLimited(time.Minute),
		"a quota":           {Reason: models.ReasonQuotaExhausted, Scope: models.ScopeConnection, Failover: true, Fixed: time.Minute, UpstreamStatus: 429},
		"of a single model": {Reason: models.ReasonRateLimited, Scope: models.ScopeModel, Lock: models.LockFamily, Failover: true, Fixed: time.Minute, UpstreamStatus: 429},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, "a", nil, shared())
				r.fail(t, 1, gpt, atAddress(v))
				for i := 1; i <= 3; i++ {
					require.Equal(t, models.ReasonConnCooldown, r.out(i, mini))
					require.Equal(t, time.Minute, r.left(i, mini), "as long as the one that was limited")
					require.Equal(t, v.Reason, r.connection(i).Reason)
				}
				require.Empty(t, r.out(4, mini), "it leaves by another address")
				offered := map[models.ConnectionID]bool{}
				for _, change := range r.offered() {
					offered[change.Connection] = true
				}
				require.Len(t, r.offered(), 3)
				require.Len(t, offered, 3, "each to its own workflow")
				require.Empty(t, r.Report(time.Now()).Lockouts)

				time.Sleep(time.Minute)
				require.Empty(t, r.out(2, gpt))
			})
		})
	}
}

func TestWhatIsNoLimitOnAnAddressConcernsNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		verdict failure.Verdict
		change  func(s *catalog.Snapshot)
	}{
		"a provider that limits by account": {atAddress(rateLimited(time.Minute)), func(s *catalog.Snapshot) { s.Providers[openai].EgressShared = false }},
		"a limit on the account alone":      {rateLimited(time.Minute), nil},
		"a rejected key":                    {rejectedKey(), nil},
		"a server error":                    {unavailable(), nil},
		"a connection that never cools":     {atAddress(rateLimited(time.Minute)), func(s *catalog.Snapshot) { s.Connections["openai-1"].Policy.NoCooldown = true }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := shared()
				if c.change != nil {
					c.change(s)
				}
				r := newReplica(t, "a", nil, s)
				r.fail(t, 1, gpt, c.verdict)
				require.Empty(t, r.out(2, gpt))
				require.Empty(t, r.out(3, gpt))
			})
		})
	}
}

// Guide section 7: never for good, never shorter, and not where the operator has switched
// cooling off.
func TestASiblingIsOnlyEverCooledLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		s.Connections["openai-3"].Policy.NoCooldown = true
		r := newReplica(t, "a", nil, s)
		running := r.admit(t, 1, gpt)
		r.CatalogChanged(cloneUnshared(s))
		r.fail(t, 2, gpt, rateLimited(time.Hour))
		r.CatalogChanged(s)
		running.Failed(atAddress(rateLimited(time.Minute)), time.Now())
		require.Equal(t, time.Minute, r.left(1, gpt))
		require.Equal(t, time.Hour, r.left(2, gpt))
		require.Empty(t, r.out(3, gpt))
	})
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, shared())
		r.fail(t, 2, gpt, rejectedKey())
		r.fail(t, 1, gpt, atAddress(rateLimited(time.Minute)))
		require.Equal(t, models.PhaseExpired, r.connection(2).Phase)
		require.Equal(t, models.PhaseCooling, r.connection(3).Phase)
	})
}

func cloneUnshared(s *catalog.Snapshot) *catalog.Snapshot {
	c := newCatalog(len(s.Connections))
	for id, view := range s.Connections {
		c.Connections[id].Egress, c.Connections[id].Policy = view.Egress, view.Policy
	}
	return c
}

func TestACrowdBehindOneAddressIsOneEpisodeForEveryConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, shared())
		var passes []live.Pass
		for i := range 60 {
			passes = append(passes, r.admit(t, i%3+1, gpt))
		}
		time.Sleep(time.Second)
		for _, p := range passes {
			p.Failed(atAddress(rateLimited(0)), time.Now())
			time.Sleep(time.Millisecond)
		}
		for i := 1; i <= 3; i++ {
			require.Equal(t, map[bool]int{true: 1}[i == 1], r.connection(i).Level, "counted for the one that met it first")
			require.Equal(t, r.connection(1).Until, r.connection(i).Until)
		}
		require.Len(t, r.offered(), 3)
	})
}

// Else the fourth account behind an address waits eight times as long for its own first limit.
func TestWhatASiblingMetDoesNotRaiseAConnectionsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, shared())
		for level := 1; level <= 4; level++ {
			r.fail(t, 1, gpt, atAddress(rateLimited(0)))
			require.Equal(t, level, r.connection(1).Level)
			require.Zero(t, r.connection(2).Level)
			require.Equal(t, r.connection(1).Until, r.connection(2).Until, "it is out for as long")
			time.Sleep(r.left(1, gpt))
		}
		last := r.offered()[len(r.offered())-1]
		require.NotEqual(t, models.ConnectionID("openai-1"), last.Connection)
		require.Zero(t, last.Health.Cooldown.Level, "nor does its workflow hear of one")

		r.CatalogChanged(cloneUnshared(shared()))
		r.fail(t, 2, gpt, rateLimited(0))
		require.Equal(t, 1, r.connection(2).Level, "its own first failure is its first")
		require.Equal(t, 3*time.Second, r.left(2, gpt))
		time.Sleep(3 * time.Second)
		r.fail(t, 2, gpt, rateLimited(0))
		time.Sleep(6 * time.Second)
		r.CatalogChanged(shared())
		r.fail(t, 1, gpt, atAddress(rateLimited(0)))
		require.Equal(t, 2, r.connection(2).Level, "what it has counted itself stays")
	})
}

func TestTheAddressIsSharedAcrossProvidersThatLimitByIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared()
		add := func(id models.ProviderID, limits bool) {
			p := &catalog.ProviderView{ID: id, EgressShared: limits, Cooldown: rules.CooldownPolicy(models.ClassAPIKey)}
			c := &catalog.ConnectionView{ID: models.ConnectionID(id), Provider: p, Policy: resilience.ConnectionPolicy{Cooldown: p.Cooldown}}
			p.Connections = []*catalog.ConnectionView{c}
			s.Providers[id], s.Connections[c.ID] = p, c
		}
		add("go", true)
		add("elsewhere", false)
		r := newReplica(t, "a", nil, s)
		r.fail(t, 1, gpt, atAddress(rateLimited(time.Minute)))
		out, _ := r.Check(s.Connections["go"], models.ModelRef{Provider: "go", Model: "m"}, false, time.Now())
		require.Equal(t, models.ReasonConnCooldown, out.Reason)
		out, _ = r.Check(s.Connections["elsewhere"], models.ModelRef{Provider: "elsewhere", Model: "m"}, false, time.Now())
		require.Nil(t, out)
	})
}
