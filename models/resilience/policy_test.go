package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

func ptr[T any](v T) *T { return &v }

func TestAbsentSettingsTakeTheGuidesValues(t *testing.T) {
	var s Settings
	for _, c := range []struct {
		class    models.Class
		breaker  BreakerPolicy
		cooldown CooldownPolicy
	}{
		{
			models.ClassOAuth,
			BreakerPolicy{8, 5, 60 * time.Second, 120 * time.Second, 60 * time.Second, 8, 2},
			CooldownPolicy{Base: 5 * time.Second, MaxSteps: 8, Max: 30 * time.Minute, UseHints: true},
		},
		{
			models.ClassAPIKey,
			BreakerPolicy{12, 7, 30 * time.Second, 120 * time.Second, 30 * time.Second, 4, 3},
			CooldownPolicy{Base: 3 * time.Second, MaxSteps: 5, Max: 30 * time.Minute, UseHints: true},
		},
		{ // degradation is derived: 60 % of 2 is 2, and it stays below the threshold
			models.ClassLocal,
			BreakerPolicy{2, 1, 15 * time.Second, 120 * time.Second, 15 * time.Second, 16, 3},
			CooldownPolicy{Base: 2 * time.Second, MaxSteps: 3, Max: 30 * time.Minute, UseHints: true},
		},
	} {
		t.Run(string(c.class), func(t *testing.T) {
			require.Equal(t, c.breaker, s.BreakerPolicy(c.class))
			require.Equal(t, c.cooldown, s.CooldownPolicy(c.class))
		})
	}
	require.Equal(t, s.BreakerPolicy(models.ClassAPIKey), s.BreakerPolicy("of its own kind"), "an unknown class is api_key")
}

func TestEverySettingReachesThePolicy(t *testing.T) {
	s := Settings{
		ProviderBreaker: ByClass[BreakerSettings]{Local: BreakerSettings{
			FailureThreshold: ptr(20), DegradationThreshold: ptr(9), ResetTimeoutMs: ptr(int64(7000)), WindowMs: ptr(int64(8000)),
			ProbeTimeoutMs: ptr(int64(9000)), MaxBackoffMultiplier: ptr(3), BackoffEscalationCount: ptr(0),
		}},
		ConnectionCooldown: ByClass[CooldownSettings]{Local: CooldownSettings{
			BaseCooldownMs: ptr(int64(1500)), MaxBackoffSteps: ptr(4), MaxCooldownMs: ptr(int64(6000)), UseUpstreamRetryHints: ptr(false),
		}},
	}
	require.Empty(t, s.Validate())
	require.Equal(t, BreakerPolicy{20, 9, 7 * time.Second, 8 * time.Second, 9 * time.Second, 3, 0}, s.BreakerPolicy(models.ClassLocal))
	require.Equal(t, CooldownPolicy{Base: 1500 * time.Millisecond, MaxSteps: 4, Max: 6 * time.Second, UseHints: false}, s.CooldownPolicy(models.ClassLocal))

	s.ProviderBreaker.Local.DegradationThreshold = nil
	require.Equal(t, 12, s.BreakerPolicy(models.ClassLocal).DegradationThreshold, "derived: 60 % of 20")
}

func TestABaseOfZeroIsOneSecond(t *testing.T) {
	s := Settings{ConnectionCooldown: ByClass[CooldownSettings]{APIKey: CooldownSettings{BaseCooldownMs: ptr(int64(0))}}}
	require.Empty(t, s.Validate())
	require.Equal(t, time.Second, s.CooldownPolicy(models.ClassAPIKey).Base)
}

func TestValuesOutOfRangeAreNamedAndClamped(t *testing.T) {
	s := Settings{
		ProviderBreaker: ByClass[BreakerSettings]{APIKey: BreakerSettings{
			FailureThreshold: ptr(0), DegradationThreshold: ptr(5), ResetTimeoutMs: ptr(int64(999)), WindowMs: ptr(int64(86_400_001)),
			ProbeTimeoutMs: ptr(int64(-1)), MaxBackoffMultiplier: ptr(0), BackoffEscalationCount: ptr(-1),
		}},
		ConnectionCooldown: ByClass[CooldownSettings]{OAuth: CooldownSettings{
			BaseCooldownMs: ptr(int64(-1)), MaxBackoffSteps: ptr(33), MaxCooldownMs: ptr(int64(0)),
		}},
	}
	var paths []string
	for _, p := range s.Validate() {
		paths = append(paths, p.Path)
		require.Contains(t, p.Message, "is not between")
	}
	require.Equal(t, []string{
		"connectionCooldown.oauth.baseCooldownMs",
		"connectionCooldown.oauth.maxBackoffSteps",
		"connectionCooldown.oauth.maxCooldownMs",
		"providerBreaker.apikey.failureThreshold",
		"providerBreaker.apikey.degradationThreshold",
		"providerBreaker.apikey.resetTimeoutMs",
		"providerBreaker.apikey.windowMs",
		"providerBreaker.apikey.probeTimeoutMs",
		"providerBreaker.apikey.maxBackoffMultiplier",
		"providerBreaker.apikey.backoffEscalationCount",
	}, paths)
	require.Equal(t,
		BreakerPolicy{1, 1, time.Second, 24 * time.Hour, time.Second, 1, 0}, s.BreakerPolicy(models.ClassAPIKey))
	require.Equal(t, CooldownPolicy{Base: time.Second, MaxSteps: 32, Max: time.Second, UseHints: true}, s.CooldownPolicy(models.ClassOAuth))
}

func TestAMaximumBelowTheBaseIsRefused(t *testing.T) {
	s := Settings{ConnectionCooldown: ByClass[CooldownSettings]{APIKey: CooldownSettings{MaxCooldownMs: ptr(int64(2999))}}}
	problems := s.Validate()
	require.Len(t, problems, 1)
	require.Equal(t, "2999 is not between 3000 and 86400000", problems[0].Message)
}

// Whatever a settings document holds, the machines run with sane values, and values that
// Validate accepts are taken as they are.
func TestPoliciesAreSaneForAnySettings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := BreakerSettings{
			FailureThreshold: drawPtr(t, rapid.Int(), "threshold"), DegradationThreshold: drawPtr(t, rapid.Int(), "degradation"),
			ResetTimeoutMs: drawPtr(t, rapid.Int64(), "reset"), WindowMs: drawPtr(t, rapid.Int64(), "window"),
			ProbeTimeoutMs: drawPtr(t, rapid.Int64(), "probe"), MaxBackoffMultiplier: drawPtr(t, rapid.Int(), "multiplier"),
			BackoffEscalationCount: drawPtr(t, rapid.Int(), "escalation"),
		}
		c := CooldownSettings{
			BaseCooldownMs: drawPtr(t, rapid.Int64(), "base"), MaxBackoffSteps: drawPtr(t, rapid.Int(), "steps"),
			MaxCooldownMs: drawPtr(t, rapid.Int64(), "max"),
		}
		s := Settings{ProviderBreaker: ByClass[BreakerSettings]{OAuth: b}, ConnectionCooldown: ByClass[CooldownSettings]{OAuth: c}}

		p := s.BreakerPolicy(models.ClassOAuth)
		require.True(t, p.FailureThreshold >= 1 && p.FailureThreshold <= 1000)
		require.True(t, p.DegradationThreshold >= 1 && (p.DegradationThreshold < p.FailureThreshold || p.FailureThreshold == 1))
		for _, d := range []time.Duration{p.ResetTimeout, p.Window, p.ProbeTimeout} {
			require.True(t, d >= time.Second && d <= 24*time.Hour)
		}
		for cycle := range 200 {
			open := p.openTime(cycle)
			require.True(t, open >= p.ResetTimeout && open <= p.ResetTimeout*time.Duration(p.MaxBackoffMultiplier))
		}
		q := s.CooldownPolicy(models.ClassOAuth)
		require.True(t, q.Base > 0 && q.Base <= q.Max && q.Max <= 24*time.Hour)
		require.True(t, q.MaxSteps >= 0 && q.MaxSteps <= 32)

		if len(s.Validate()) == 0 && b.FailureThreshold != nil {
			require.Equal(t, *b.FailureThreshold, p.FailureThreshold)
		}
	})
}

func drawPtr[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	if rapid.Bool().Draw(t, label+" given") {
		return ptr(g.Draw(t, label))
	}
	return nil
}
