package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// A provider that left the catalog and came back between two reads has another row, or none.
func TestACompleteReadForgetsWhatAVanishedRowSaidOfAProvider(t *testing.T) {
	reset := resilience.Provider{}.Reset(time.Now())
	held, _ := reset.Fail(resilience.Failure{At: time.Now().Add(time.Second), Fixed: time.Hour, Reason: models.ReasonQuotaExhausted}, resilience.CooldownPolicy{})
	held.Opening = resilience.Opening{Era: 1, OpenedAt: time.Now().Add(time.Second), Until: time.Now().Add(time.Hour), Cycle: 1}
	old := catalog.ProviderState{Provider: openai, Stamp: models.Stamp{Era: 1, Version: 5}, State: held, Remaining: time.Hour}
	for name, now := range map[string]*catalog.States{
		"no row":                {Complete: true},
		"a row of an older era": {Complete: true, Providers: []catalog.ProviderState{{Provider: openai, Stamp: models.Stamp{Version: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t, 2)
			late := r.admit(t, 1, gpt)
			r.StatesChanged(&catalog.States{Complete: true, Providers: []catalog.ProviderState{old}})
			require.NotEmpty(t, r.out(1, gpt))
			r.StatesChanged(&catalog.States{Providers: now.Providers})
			require.NotEmpty(t, r.out(1, gpt), "a read of what changed lately may be late itself")

			r.StatesChanged(now)
			require.Empty(t, r.out(1, gpt))
			require.Equal(t, resilience.BreakerClosed, r.breaker())
			require.Empty(t, r.offered())
			late.Failed(unavailable(), time.Now())
			require.Zero(t, r.Report(time.Now()).Providers[0].Failures, "what was sent before says nothing of it")

			r.fail(t, 1, mini, wholeProvider(time.Minute))
			require.Zero(t, r.offered()[0].Breaker.Era())
			fresh := publishedProvider(r, 2)
			r.StatesChanged(&catalog.States{Complete: true, Providers: []catalog.ProviderState{fresh}})
			require.Equal(t, models.ReasonProviderCooldown, r.out(1, gpt))
			require.Zero(t, r.Report(time.Now()).Unpublished.Entities, "the new row is the one that counts")
		})
	}
}

func TestACompleteReadForgetsWhatAVanishedRowSaidOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		banned := resilience.Cooldown{}.Enter(1, time.Now())
		banned.Terminal, banned.TerminalAt = models.PhaseBanned, time.Now()
		r.resync(published("openai-1", 7, banned))
		require.Equal(t, models.ReasonBanned, r.out(1, gpt))
		r.resync(published("openai-1", 1, seenElsewhere(time.Minute)))
		require.Equal(t, models.ReasonConnCooldown, r.out(1, gpt))
		require.Zero(t, r.connection(1).Era)
	})
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.resync(published("openai-1", 7, resilience.Cooldown{}.Enter(1, time.Now())))
		time.Sleep(time.Second)
		r.fail(t, 1, gpt, rateLimited(time.Hour)) // of which no row has heard
		r.resync()
		r.resync(published("openai-1", 1, seenElsewhere(time.Minute)))
		require.Equal(t, time.Minute, r.left(1, gpt))
		require.True(t, r.connection(1).Durable)
	})
}
