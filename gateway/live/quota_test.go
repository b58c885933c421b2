package live_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// hears makes an attempt whose answer has these headers.
func (r *replica) hears(t *testing.T, i int, model models.ModelRef, pairs ...string) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	pass := r.admit(t, i, model)
	pass.Heard(h, r.now())
	pass.Succeeded(r.now())
}

func TestWhatAnAnswerSaysOfQuotasIsAFactUntilTheirReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 2)
		r.hears(t, 1, gpt,
			"x-codex-primary-used-percent", "40", "x-codex-primary-window-minutes", "300", "x-codex-primary-reset-after-seconds", "3600",
			"x-codex-secondary-used-percent", "100", "x-codex-secondary-window-minutes", "10080", "x-codex-secondary-reset-after-seconds", "600",
		)
		begin := r.now()
		weekly := routing.QuotaWindow{Name: "weekly", Length: 7 * 24 * time.Hour, Reset: begin.Add(10 * time.Minute)}
		session := routing.QuotaWindow{Name: "session", Length: 5 * time.Hour, Remaining: 0.6, Reset: begin.Add(time.Hour)}
		f := r.facts(1, mini)
		require.Equal(t, []routing.QuotaWindow{weekly, session}, f.Quota, "they are the account's, whatever the model")
		require.True(t, f.Exhausted)
		require.Empty(t, r.facts(2, gpt).Quota)

		time.Sleep(10 * time.Minute)
		f = r.facts(1, gpt)
		require.Equal(t, []routing.QuotaWindow{session}, f.Quota)
		require.False(t, f.Exhausted)

		time.Sleep(time.Hour)
		require.Empty(t, r.facts(1, gpt).Quota)
	})
}

func TestTheLatestWordOnAQuotaCountsAndTheOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.hears(t, 1, gpt, "x-ratelimit-limit-requests", "100", "x-ratelimit-remaining-requests", "50", "x-ratelimit-reset-requests", "60s",
			"x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "250", "x-ratelimit-reset-tokens", "2m")
		r.hears(t, 1, gpt, "x-ratelimit-limit-requests", "100", "x-ratelimit-remaining-requests", "49", "x-ratelimit-reset-requests", "60s")

		f := r.facts(1, gpt)
		require.Len(t, f.Quota, 2)
		require.Equal(t, []string{"requests", "tokens"}, []string{f.Quota[0].Name, f.Quota[1].Name})
		require.Equal(t, [2]float64{0.49, 0.25}, [2]float64{f.Quota[0].Remaining, f.Quota[1].Remaining})
	})
}

func TestALimitWithoutAnEndIsBelievedForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.hears(t, 1, gpt, "x-ratelimit-remaining-requests", "0")
		require.True(t, r.facts(1, gpt).Exhausted)
		time.Sleep(time.Minute)
		require.False(t, r.facts(1, gpt).Exhausted)
	})
}

func TestWhereAProviderLimitsByModelAQuotaIsTheModels(t *testing.T) {
	r := alone(t, 1)
	r.conn(1).PerModelQuota = true
	r.hears(t, 1, gpt, "x-ratelimit-remaining", "0")
	require.True(t, r.facts(1, gpt).Exhausted)
	require.Empty(t, r.facts(1, mini).Quota)
}

func TestTheQuotasOfOneAccountSayNothingOfTheNext(t *testing.T) {
	r := alone(t, 1)
	late := r.admit(t, 1, gpt)
	r.hears(t, 1, gpt, "x-ratelimit-remaining", "0")
	r.read(publishedWhole("openai-1", 1, resilience.Connection{}.Enter(1, r.now()))) // a new era
	require.Empty(t, r.facts(1, gpt).Quota)
	late.Heard(http.Header{"X-Ratelimit-Remaining": {"0"}}, r.now())
	require.Empty(t, r.facts(1, gpt).Quota, "an attempt of the era before speaks of the account before")
	r.hears(t, 1, gpt, "x-ratelimit-remaining", "0")
	require.True(t, r.facts(1, gpt).Exhausted)
}

func TestAnEnteredPlanIsCountedHereWhereTheProviderSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		r.conn(1).Plan = &catalog.QuotaPlan{Windows: []catalog.QuotaPlanWindow{
			{Name: "session", Length: 5 * time.Hour, Unit: catalog.UnitRequests, Limit: 4},
			{Name: "weekly", Length: 7 * 24 * time.Hour, Unit: catalog.UnitTokens, Limit: 1000},
		}}
		require.Equal(t, []routing.QuotaWindow{
			{Name: "session", Length: 5 * time.Hour, Remaining: 1}, {Name: "weekly", Length: 7 * 24 * time.Hour, Remaining: 1},
		}, r.facts(1, gpt).Quota)

		for range 4 {
			pass := r.admit(t, 1, gpt)
			pass.Succeeded(r.now())
			pass.Used(100, r.now())
		}
		r.fail(t, 1, gpt, badRequest())
		time.Sleep(time.Second) // strategies go by what is a second old at most
		f := r.facts(1, mini)
		require.True(t, f.Exhausted)
		require.InDelta(t, 0.6, f.Quota[1].Remaining, 1e-6)

		time.Sleep(10 * time.Hour)
		f = r.facts(1, gpt)
		require.False(t, f.Exhausted)
		require.Equal(t, 1.0, f.Quota[0].Remaining)

		r.hears(t, 1, gpt, "x-codex-primary-used-percent", "90", "x-codex-primary-window-minutes", "300")
		f = r.facts(1, gpt)
		require.Equal(t, "session", f.Quota[0].Name)
		require.InDelta(t, 0.1, f.Quota[0].Remaining, 1e-9, "what the provider declares goes before what is counted")
		require.Len(t, f.Quota, 2)
	})
}

func TestALimitThatIsCorrectedLosesNoCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, 1)
		plan := func(limit int64) *catalog.QuotaPlan {
			return &catalog.QuotaPlan{Windows: []catalog.QuotaPlanWindow{{Name: "daily", Length: 24 * time.Hour, Unit: catalog.UnitRequests, Limit: limit}}}
		}
		r.conn(1).Plan = plan(1)
		r.succeed(t, 1, gpt)
		require.True(t, r.facts(1, gpt).Exhausted)
		next := newCatalog(1)
		next.Connections["openai-1"].Plan = plan(10)
		r.CatalogChanged(next)
		time.Sleep(time.Second)
		require.InDelta(t, 0.9, r.facts(1, gpt).Quota[0].Remaining, 0.001)
	})
}

func TestNoMoreQuotasAreRememberedThanTheBound(t *testing.T) {
	r := alone(t, 1)
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		r.hears(t, 1, gpt, "x-ratelimit-remaining-"+string(c), "1", "x-ratelimit-limit-"+string(c), "2")
	}
	require.Len(t, r.facts(1, gpt).Quota, 16)
}
