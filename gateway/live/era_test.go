package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// withKey is a catalog of two connections, the first of which has this credential.
func withKey(key string) *catalog.Snapshot {
	s := newCatalog(2)
	s.Connections["openai-1"].APIKey = catalog.NewSecret(key)
	return s
}

// renewed is the row that comes with new credentials.
func renewed(era int64) catalog.ConnectionState {
	return published("openai-1", 0, resilience.Cooldown{}.Enter(era, time.Now()))
}

func TestAnAttemptWithTheOldKeyCannotKillTheNewOne(t *testing.T) {
	verdicts := map[string]failure.Verdict{
		"a rejected key": rejectedKey(), "a rate limit": rateLimited(time.Hour), "a missing model": notFound(),
	}
	for name, verdict := range verdicts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, "a", nil, withKey("old"))
				slow, slower := r.admit(t, 1, gpt), r.admit(t, 1, gpt)
				require.Equal(t, "old", slow.Connection().APIKey.Reveal())
				time.Sleep(time.Second)

				r.CatalogChanged(withKey("new"))
				slow.Failed(verdict, time.Now())
				require.Empty(t, r.out(1, gpt), "the catalog has the new key, and its era is not here yet")
				r.read(renewed(1))
				slower.Failed(verdict, time.Now())
				require.Empty(t, r.out(1, gpt))
				require.Empty(t, r.offered())

				r.fail(t, 1, gpt, verdict)
				require.NotEmpty(t, r.out(1, gpt), "what the new key meets counts")
			})
		})
	}
}

func TestASuccessOfTheOldKeyClearsNothingOfTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withKey("old"))
		r.fail(t, 1, gpt, rateLimited(time.Second))
		time.Sleep(2 * time.Second)
		slow := r.admit(t, 1, gpt)
		r.CatalogChanged(withKey("new"))
		row := renewed(1)
		row.State.Cooldown, _ = row.State.Cooldown.Fail(resilience.Failure{At: time.Now(), Reason: models.ReasonRateLimited, Hint: time.Minute},
			rules.CooldownPolicy(models.ClassAPIKey))
		row.Remaining = time.Minute
		r.read(row)
		time.Sleep(time.Second)
		slow.Succeeded(time.Now())
		require.Equal(t, 59*time.Second, r.left(1, gpt))
	})
}

func TestAResetEndsWhatWasUnderWayToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		slow := r.admit(t, 1, gpt)
		r.read(published("openai-1", 1, resilience.Cooldown{}.Enter(1, time.Now().Add(-time.Minute)))) // by a clock that is behind
		slow.Failed(rejectedKey(), time.Now())
		require.Empty(t, r.out(1, gpt))
	})
}

func TestAnAttemptOfAnOlderEraStillTellsOfItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withKey("old"))
		slow := r.admit(t, 1, gpt)
		r.CatalogChanged(withKey("new"))
		r.read(renewed(1))
		slow.Failed(unavailable(), time.Now())
		require.Equal(t, 1, r.Report(time.Now()).Providers[0].Failures)
		require.Empty(t, r.Report(time.Now()).Lockouts)
		require.Zero(t, r.connection(1).InFlight)
	})
}

func TestAFailoverIsSentWithTheCredentialsAndLimitsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, "a", nil, withKey("old"))
		planned := r.conn(1)
		next := withKey("new")
		next.Connections["openai-1"].MaxConcurrent = 1
		r.CatalogChanged(next)
		pass, out := r.Admit(t.Context(), planned, gpt, false, time.Now())
		require.Nil(t, out)
		require.Equal(t, "new", pass.Connection().APIKey.Reveal())
		_, out = r.Admit(t.Context(), planned, gpt, false, time.Now())
		require.Equal(t, models.ReasonConcurrency, out.Reason)
		pass.Abandoned(time.Now())

		next = withKey("new")
		next.Connections["openai-1"].Disabled = true
		r.CatalogChanged(next)
		_, out = r.Admit(t.Context(), planned, gpt, false, time.Now())
		require.Equal(t, models.ReasonDisabled, out.Reason)
	})
}

func TestAConnectionThatMovedIsNotCalledWithAModelOfItsOldProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		planned := r.conn(1)
		running := r.admit(t, 1, gpt)
		moved := newCatalog(1)
		azure := &catalog.ProviderView{ID: "azure"}
		moved.Providers["azure"] = azure
		moved.Connections["openai-1"].Provider = azure
		r.CatalogChanged(moved)

		pass, out := r.Admit(t.Context(), planned, gpt, false, time.Now())
		require.Nil(t, pass)
		require.Equal(t, models.ReasonUnavailable, out.Reason)
		running.Failed(rejectedKey(), time.Now())
		require.Empty(t, r.out(1, models.ModelRef{Provider: "azure", Model: "gpt-x"}))
		require.Empty(t, r.offered(), "nothing is said of the connection on the old provider's account")
	})
}
