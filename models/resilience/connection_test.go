package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

var accountPolicy = ConnectionPolicy{Cooldown: oauth, Lockout: lockoutDefaults, Expired: ExpiredPolicy{Retries: 3, Base: 5 * time.Minute}}

func rejected(at time.Time) Failure {
	return Failure{At: at, Dispatched: at, Reason: models.ReasonRequestRejected, Status: 403}
}

func unauthorized(at time.Time) Failure {
	return Failure{At: at, Dispatched: at, Reason: models.ReasonExpired, Status: 401}
}

func failConnection(t *testing.T, c Connection, f Failure, p ConnectionPolicy) Connection {
	t.Helper()
	next, changed := c.Fail(f, p)
	require.True(t, changed)
	require.True(t, JoinConnection(c, next).Equal(next))
	return next
}

func unchanged(t *testing.T, c Connection, f Failure, p ConnectionPolicy) {
	t.Helper()
	next, changed := c.Fail(f, p)
	require.False(t, changed)
	require.True(t, next.Equal(c))
}

// Guide section 2: a single refusal cools the connection, three in a row within a day ban it.
func TestTheThirdEpisodeOfRejectedRequestsBans(t *testing.T) {
	c := failConnection(t, Connection{}, rejected(noon), accountPolicy)
	require.Equal(t, Standing{
		Phase: models.PhaseCooling, Reason: models.ReasonRequestRejected, Status: 403, Level: 1, Until: after(5 * time.Minute),
	}, c.Cooldown.Standing(noon))

	t.Run("the crowd of an episode counts once", func(t *testing.T) {
		for _, sent := range []time.Duration{-time.Minute, 0, time.Second, 5*time.Minute - time.Millisecond} {
			f := rejected(after(4 * time.Minute))
			f.Dispatched = after(sent)
			unchanged(t, c, f, accountPolicy)
			f.At = after(10 * time.Minute) // also when it answers late
			unchanged(t, c, f, accountPolicy)
		}
	})
	t.Run("also when another failure of the crowd keeps it out for longer", func(t *testing.T) {
		limited := rateLimited(after(time.Second))
		limited.Dispatched, limited.Hint = after(-time.Second), time.Hour
		c := failConnection(t, c, limited, accountPolicy)
		late := rejected(after(2 * time.Second))
		late.Dispatched = after(-time.Second)
		unchanged(t, c, late, accountPolicy)
		require.Equal(t, 1, c.Rejections.Count)
	})
	t.Run("and a hint of the refusal is no reason to come back sooner", func(t *testing.T) {
		f := rejected(noon)
		f.Hint, f.Fixed = time.Second, time.Second
		require.Equal(t, after(5*time.Minute), failConnection(t, Connection{}, f, accountPolicy).Cooldown.Until)
	})

	second := failConnection(t, c, rejected(after(5*time.Minute)), accountPolicy)
	require.Equal(t, after(20*time.Minute), second.Cooldown.Until, "fifteen minutes more")
	third := failConnection(t, second, rejected(after(20*time.Minute)), accountPolicy)
	require.Equal(t, models.PhaseBanned, third.Cooldown.Standing(after(1000*time.Hour)).Phase)
	unchanged(t, third, rejected(after(30*time.Minute)), accountPolicy)

	t.Run("a success in between clears the count", func(t *testing.T) {
		c, changed := second.Succeed("m1", "", after(20*time.Minute))
		require.True(t, changed)
		require.True(t, c.Settled())
		c = failConnection(t, c, rejected(after(21*time.Minute)), accountPolicy)
		require.Equal(t, after(26*time.Minute), c.Cooldown.Until)
	})
	t.Run("but not one that was sent before", func(t *testing.T) {
		_, changed := second.Succeed("m1", "", after(5*time.Minute))
		require.False(t, changed)
	})
	t.Run("a reset clears it, and what was sent before is not counted after it", func(t *testing.T) {
		c := second.Reset(after(20 * time.Minute))
		require.True(t, c.Pristine())
		unchanged(t, c, rejected(after(20*time.Minute-time.Millisecond)), accountPolicy)
		c = failConnection(t, c, rejected(after(21*time.Minute)), accountPolicy)
		require.Equal(t, 1, c.Rejections.Count)
	})
	t.Run("an operator's clear, too", func(t *testing.T) {
		c, _ := second.ClearCooldown(after(6 * time.Minute))
		require.Zero(t, c.Rejections.Count)
		require.True(t, JoinConnection(second, c).Equal(c))
	})
	t.Run("three in more than a day do not ban", func(t *testing.T) {
		c := failConnection(t, second, rejected(after(24*time.Hour+time.Minute)), accountPolicy)
		require.Equal(t, models.PhaseCooling, c.Cooldown.Standing(after(24*time.Hour+time.Minute)).Phase)
	})
}

// Guide section 2: EXPIRED_RETRY_MAX retries with growing waits, then for good.
func TestExpiredCredentialsAreRetriedThreeTimesAndThenOutForGood(t *testing.T) {
	var c Connection
	now := noon
	for i, wait := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		c = failConnection(t, c, unauthorized(now), accountPolicy)
		require.Equal(t, i+1, c.Expiries.Count)
		s := c.Cooldown.Standing(now)
		require.Equal(t, models.PhaseCooling, s.Phase)
		require.Equal(t, models.ReasonExpired, s.Reason)
		require.Equal(t, wait, s.Until.Sub(now))
		unchanged(t, c, unauthorized(now.Add(wait-time.Millisecond)), accountPolicy)
		now = s.Until
	}
	c = failConnection(t, c, unauthorized(now), accountPolicy)
	require.Equal(t, Standing{Phase: models.PhaseExpired, Reason: models.ReasonExpired}, c.Cooldown.Standing(now))

	t.Run("also where nobody says when the attempt was sent", func(t *testing.T) {
		c := failConnection(t, Connection{}, Failure{At: noon, Reason: models.ReasonExpired}, accountPolicy)
		unchanged(t, c, Failure{At: after(time.Minute), Reason: models.ReasonExpired}, accountPolicy)
		require.Equal(t, 2, failConnection(t, c, Failure{At: after(5 * time.Minute), Reason: models.ReasonExpired}, accountPolicy).Expiries.Count)
	})
	t.Run("waits as long as a day each do not start again", func(t *testing.T) {
		p := accountPolicy
		p.Expired.Base = 24 * time.Hour
		var c Connection
		now := noon
		for range 4 {
			c = failConnection(t, c, unauthorized(now), p)
			now = now.Add(25 * time.Hour)
		}
		require.Equal(t, models.PhaseExpired, c.Cooldown.Terminal)
	})
	t.Run("without retries the first is for good", func(t *testing.T) {
		p := accountPolicy
		p.Expired.Retries = 0
		require.Equal(t, models.PhaseExpired, failConnection(t, Connection{}, unauthorized(noon), p).Cooldown.Terminal)
	})
	t.Run("a wait never exceeds a day", func(t *testing.T) {
		p := accountPolicy
		p.Expired = ExpiredPolicy{Retries: 10, Base: 20 * time.Hour}
		c := failConnection(t, Connection{}, unauthorized(noon), p)
		c = failConnection(t, c, unauthorized(after(20*time.Hour)), p)
		require.Equal(t, after(44*time.Hour), c.Cooldown.Until)
	})
	t.Run("a success forgets them", func(t *testing.T) {
		c := failConnection(t, Connection{}, unauthorized(noon), accountPolicy)
		c, _ = c.Succeed("m1", "", after(5*time.Minute))
		require.True(t, c.Settled())
		c = failConnection(t, c, unauthorized(after(6*time.Minute)), accountPolicy)
		require.Equal(t, after(11*time.Minute), c.Cooldown.Until)
	})
}

// A gateway that meets the same refusal again and again, while nobody can renew anything, does
// not end the account. Only a renewal that is refused does.
func TestCredentialsThatCanBeRenewedAreRetriedAtTheLastWaitUntilARenewalIsRefused(t *testing.T) {
	gateway := accountPolicy
	gateway.Renewable = true
	for _, retries := range []int{3, 0} {
		gateway.Expired.Retries = retries
		var c Connection
		now := noon
		for i := range 20 {
			c = failConnection(t, c, unauthorized(now), gateway)
			require.Equal(t, min(i+1, max(retries, 1)), c.Expiries.Count)
			s := c.Cooldown.Standing(now)
			require.Equal(t, models.PhaseCooling, s.Phase)
			require.Equal(t, 5*time.Minute<<(c.Expiries.Count-1), s.Until.Sub(now))
			unchanged(t, c, unauthorized(s.Until.Add(-time.Millisecond)), gateway)
			now = s.Until
		}
		refused := gateway
		refused.Renewable = false
		c = failConnection(t, c, unauthorized(now), refused)
		require.Equal(t, models.PhaseExpired, c.Cooldown.Terminal)
	}
}

func TestFreshCredentialsEndWhatExpiredOnesHaveCausedAndNothingElse(t *testing.T) {
	lockout := failModel(t, Connection{}, m1, rateLimited(noon), lockoutDefaults.Cooldown())
	expired := failConnection(t, lockout, unauthorized(noon), accountPolicy)

	c, changed := expired.Renew(after(-time.Minute), 0) // also by a clock that is behind
	require.True(t, changed)
	require.Equal(t, models.PhaseReady, c.Cooldown.Standing(noon).Phase)
	require.Zero(t, c.Expiries.Count)
	require.Len(t, c.Out(noon), 1, "the account's lockouts stay")
	require.Equal(t, expired.Era(), c.Era())
	require.True(t, JoinConnection(expired, c).Equal(c))
	_, changed = c.Renew(after(time.Minute), 0)
	require.False(t, changed)

	t.Run("a cooldown of the account stays", func(t *testing.T) {
		c := failConnection(t, Connection{}, rateLimited(noon), accountPolicy)
		same, changed := c.Renew(after(time.Second), 0)
		require.False(t, changed)
		require.True(t, same.Equal(c))
	})
	t.Run("an expiry for good ends with its era, and the lockouts go over", func(t *testing.T) {
		f := unauthorized(after(time.Minute))
		f.Terminal = models.PhaseExpired
		c, changed := failConnection(t, expired, f, accountPolicy).Renew(after(2*time.Minute), 0)
		require.True(t, changed)
		require.Equal(t, expired.Era()+1, c.Era())
		require.Equal(t, models.PhaseReady, c.Cooldown.Standing(after(2*time.Minute)).Phase)
		require.Zero(t, c.Expiries.Count)
		require.Equal(t, expired.Lockouts, c.Lockouts)
	})
	t.Run("a ban stays", func(t *testing.T) {
		f := rejected(noon)
		f.Terminal = models.PhaseBanned
		c, _ := failConnection(t, Connection{}, f, accountPolicy).Renew(after(time.Minute), 0)
		require.Equal(t, models.PhaseBanned, c.Cooldown.Terminal)
	})
}

// A replica that has not heard of a renewal goes on sending the old token, and is refused.
func TestAnOldTokenThatFailsAfterItsRenewalPutsNobodyOut(t *testing.T) {
	old := func(at time.Time, generation int64) Failure {
		f := unauthorized(at)
		f.Token = generation
		return f
	}
	knows, changed := Connection{}.Renew(noon, 4)
	require.True(t, changed)
	require.True(t, knows.Settled() && knows.Pristine(), "nothing is to be done")
	unchanged(t, knows, old(after(time.Second), 3), accountPolicy)

	lags := failConnection(t, Connection{}, old(after(2*time.Second), 3), accountPolicy)
	joined := JoinConnection(knows, lags)
	require.True(t, joined.Outdated())
	joined, changed = joined.Renew(after(3*time.Second), joined.Renewed)
	require.True(t, changed)
	require.True(t, joined.Settled())
	require.True(t, JoinConnection(lags, joined).Equal(joined), "the replica hears that it is over")

	t.Run("the new token's failure counts, whatever the old one's adds to it", func(t *testing.T) {
		c := failConnection(t, knows, old(after(time.Second), 4), accountPolicy)
		require.False(t, c.Outdated())
		require.False(t, JoinConnection(c, lags).Outdated())
	})
	t.Run("and so does its failure for good", func(t *testing.T) {
		f := old(after(time.Second), 4)
		f.Terminal = models.PhaseExpired
		c := failConnection(t, knows, f, accountPolicy)
		require.False(t, JoinConnection(c, lags).Outdated())
	})
}

// disableCooling must never keep a connection away for longer than cooling would have.
func TestWithoutCoolingOnlyWhatNoRequestCanHelpKeepsTheConnectionAway(t *testing.T) {
	p := accountPolicy
	p.NoCooldown = true
	limited := rateLimited(noon)
	limited.Hint = time.Hour
	unchanged(t, Connection{}, limited, p)
	quota := limited
	quota.Reason, quota.Fixed = models.ReasonQuotaExhausted, time.Hour
	unchanged(t, Connection{}, quota, p)

	t.Run("rejected requests are counted, and ban at the third episode", func(t *testing.T) {
		var c Connection
		for i, at := range []time.Duration{0, 5 * time.Minute, 20 * time.Minute} {
			require.Equal(t, models.PhaseReady, c.Cooldown.Standing(after(at)).Phase)
			c = failConnection(t, c, rejected(after(at)), p)
			require.Equal(t, i+1, c.Rejections.Count)
			unchanged(t, c, rejected(after(at+time.Minute)), p)
		}
		require.Equal(t, models.PhaseBanned, c.Cooldown.Terminal)

		once := failConnection(t, Connection{}, rejected(noon), p)
		once, _ = once.Succeed("m1", "", after(time.Second))
		require.Zero(t, once.Rejections.Count)
		unchanged(t, once.Reset(after(time.Minute)), rejected(after(2*time.Second)), p)
	})
	t.Run("expired credentials keep it away", func(t *testing.T) {
		c := failConnection(t, Connection{}, unauthorized(noon), p)
		require.Equal(t, after(5*time.Minute), c.Next(noon))
	})
	t.Run("and so do terminal verdicts", func(t *testing.T) {
		f := rateLimited(noon)
		f.Terminal = models.PhaseCreditsExhausted
		require.Equal(t, models.PhaseCreditsExhausted, failConnection(t, Connection{}, f, p).Cooldown.Terminal)
	})
	t.Run("and a lockout its model", func(t *testing.T) {
		require.Len(t, failModel(t, Connection{}, m1, rateLimited(noon), p.Cooldown).Out(noon), 1)
	})
}

func TestAnOperatorsClearEndsTheCooldownAndIsSafeAgainstWhatIsUnderWay(t *testing.T) {
	c := failModel(t, Connection{}, m1, rateLimited(noon), lockoutDefaults.Cooldown())
	long := rateLimited(noon)
	long.Hint = 10 * time.Hour
	cooling := failConnection(t, c, long, accountPolicy)
	cooling = failConnection(t, cooling, unauthorized(after(11*time.Hour)), accountPolicy)

	cleared, changed := cooling.ClearCooldown(after(11*time.Hour + time.Minute))
	require.True(t, changed)
	now := after(11*time.Hour + time.Minute)
	require.Equal(t, Standing{Phase: models.PhaseReady}, cleared.Cooldown.Standing(now))
	require.Zero(t, cleared.Expiries.Count)
	require.Equal(t, cooling.Lockouts, cleared.Lockouts, "lockouts are cleared by themselves")
	require.Equal(t, cooling.Era(), cleared.Era(), "the era goes on")

	t.Run("states from before that come late", func(t *testing.T) {
		require.True(t, JoinConnection(cooling, cleared).Equal(cleared))
		unheard, _ := Connection{}.ClearCooldown(now)
		require.Equal(t, models.PhaseReady, JoinConnection(unheard, cooling).Cooldown.Standing(now).Phase)
		require.Zero(t, JoinConnection(unheard, cooling).Expiries.Count)
	})
	t.Run("answers to attempts from before", func(t *testing.T) {
		for _, f := range []Failure{rateLimited(now.Add(time.Second)), unauthorized(now.Add(time.Second)), rejected(now.Add(time.Second))} {
			f.Dispatched = now.Add(-time.Second)
			unchanged(t, cleared, f, accountPolicy)
		}
	})
	t.Run("what is seen after it counts, on this replica and on any", func(t *testing.T) {
		next := failConnection(t, cleared, rateLimited(now.Add(time.Second)), accountPolicy)
		require.Equal(t, now.Add(6*time.Second), next.Next(now.Add(time.Second)), "from the base")
		elsewhere := failConnection(t, Connection{}, rateLimited(now.Add(time.Second)), accountPolicy)
		require.Equal(t, now.Add(6*time.Second), JoinConnection(cleared, elsewhere).Cooldown.Until)
	})
	t.Run("by a clock that is behind", func(t *testing.T) {
		cleared, _ := cooling.ClearCooldown(noon)
		require.True(t, cleared.Cooldown.Settled())
		require.Zero(t, cleared.Expiries.Count)
	})
	t.Run("a terminal state stays", func(t *testing.T) {
		f := rateLimited(now)
		f.Terminal = models.PhaseBanned
		banned := failConnection(t, cooling, f, accountPolicy)
		same, changed := banned.ClearCooldown(now.Add(time.Minute))
		require.False(t, changed)
		require.True(t, same.Equal(banned))
	})
	t.Run("a terminal verdict under way stays, too", func(t *testing.T) {
		f := rateLimited(now.Add(time.Second))
		f.Dispatched, f.Terminal = now.Add(-time.Second), models.PhaseBanned
		require.Equal(t, models.PhaseBanned, failConnection(t, cleared, f, accountPolicy).Cooldown.Terminal)
	})
}

func TestATerminalConnectionTakesNothingInUntilANewEra(t *testing.T) {
	f := rateLimited(noon)
	f.Terminal = models.PhaseBanned
	c := failConnection(t, failModel(t, Connection{}, m1, rateLimited(noon), apiKey), f, accountPolicy)
	for _, f := range []Failure{rateLimited(after(time.Hour)), unauthorized(after(time.Hour)), rejected(after(time.Hour))} {
		unchanged(t, c, f, accountPolicy)
	}
	_, changed := c.FailModel(m1, rateLimited(after(time.Hour)), apiKey)
	require.False(t, changed)
	_, changed = c.Succeed("m1", "", after(time.Hour))
	require.False(t, changed)
	require.False(t, c.Settled())
	require.False(t, c.Pristine())

	fresh := c.Enter(3, after(time.Hour))
	require.EqualValues(t, 3, fresh.Era())
	require.True(t, fresh.Pristine() && fresh.Settled())
	require.True(t, fresh.Enter(3, after(2*time.Hour)).Equal(fresh))
	require.True(t, JoinConnection(c, fresh).Equal(fresh))
	_, changed = fresh.FailModel(m1, Failure{At: after(time.Hour), Dispatched: after(time.Minute), Hint: time.Hour}, apiKey)
	require.False(t, changed, "what was sent before the era is not counted in it")
}

func TestTheOldEraIsRememberedAlsoAfterAnEpisodeOfTheNewOne(t *testing.T) {
	c := Connection{}.Reset(noon)
	c = failConnection(t, c, rateLimited(after(time.Second)), accountPolicy)
	c, _ = c.Succeed("m1", "", after(10*time.Second))
	old := rateLimited(after(11 * time.Second))
	old.Dispatched, old.Hint = after(-time.Second), time.Hour
	unchanged(t, c, old, accountPolicy)
	old.Terminal = models.PhaseExpired
	unchanged(t, c, old, accountPolicy)
}

func TestAConnectionIsSettledWhenEachOfItsPartsIs(t *testing.T) {
	p := accountPolicy
	p.NoCooldown = true
	for name, c := range map[string]Connection{
		"cooldown":   failConnection(t, Connection{}, rateLimited(noon), accountPolicy),
		"rejections": failConnection(t, Connection{}, rejected(noon), p),
		"expiries":   {Expiries: Strikes{}.Strike(noon, 0)},
		"a lockout":  failModel(t, Connection{}, m1, rateLimited(noon), apiKey),
	} {
		require.False(t, c.Settled(), name)
		require.False(t, c.Pristine(), name)
		require.True(t, c.Enter(c.Era(), after(time.Hour)).Equal(c), "its own era is not newer")
	}
	cleared, _ := failModel(t, Connection{}, m1, rateLimited(noon), apiKey).Succeed("m1", "", after(time.Second))
	require.True(t, cleared.Settled())
	require.False(t, cleared.Pristine(), "it knows of the clear")
}

func TestARenewalIsTakenOverIntoTheNewEraAndEndsACooldownWhoseStrikesAreGone(t *testing.T) {
	f := unauthorized(noon)
	f.Terminal = models.PhaseExpired
	c, _ := failConnection(t, Connection{Renewed: 4}, f, accountPolicy).Renew(after(time.Minute), 5)
	require.EqualValues(t, 5, c.Renewed)

	c = failConnection(t, Connection{}, unauthorized(noon), accountPolicy)
	c.Expiries = c.Expiries.Clear(noon)
	c, changed := c.Renew(after(time.Second), 0)
	require.True(t, changed)
	require.True(t, c.Settled())
}

func TestWhichPolicyAModelsFailureHasAndWhetherOthersAreTold(t *testing.T) {
	off := accountPolicy
	off.Lockout.Enabled = false
	exact := LockKey{models.LockExact, "m1"}
	for _, c := range []struct {
		name    string
		policy  ConnectionPolicy
		key     LockKey
		status  int
		want    CooldownPolicy
		durable bool
	}{
		{"a status of the list", accountPolicy, exact, 503, lockoutDefaults.Cooldown(), true},
		{"another status", accountPolicy, exact, 500, oauth, false},
		{"another status that blames the model", accountPolicy, m1, 410, oauth, true},
		{"switched off, a server error", off, exact, 503, oauth, false},
		{"switched off, a model that is not there", off, m1, 404, oauth, true},
		{"switched off, a family", off, LockKey{models.LockFamily, "f"}, 429, oauth, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy, durable := c.policy.Model(c.key, c.status)
			require.Equal(t, c.want, policy)
			require.Equal(t, c.durable, durable)
		})
	}
}

func TestTheNewsOfAConnectionAreWhatTheRowDoesNotKnow(t *testing.T) {
	row := failModel(t, Connection{}, m1, rateLimited(noon), apiKey)
	row = failModel(t, row, key(2), rateLimited(noon), apiKey)
	view := failModel(t, row, key(3), rateLimited(after(time.Second)), apiKey)
	view = failModel(t, view, m1, rateLimited(after(3*time.Second)), apiKey)

	news := view.News(row)
	require.Len(t, news.Lockouts, 2)
	require.True(t, JoinConnection(row, news).Equal(view))
	require.Empty(t, view.News(view).Lockouts)
	require.Equal(t, view, view.News(row.Reset(noon)), "another era's row says nothing about these")
}
