package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	}
}

func TestAVariableReplacesADefaultAndAStoredValueWins(t *testing.T) {
	defaults, warnings := FromEnv(environment(map[string]string{
		"OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD":     "20",
		"OMNIROUTE_CIRCUIT_BREAKER_LOCAL_RESET_MS":        " 9000 ",
		"OMNIROUTE_PROVIDER_BREAKER_OAUTH_COOLDOWN_MS":    "4000",
		"PROVIDER_COOLDOWN_ENABLED":                       "On",
		"PROVIDER_COOLDOWN_MIN_MS":                        "0",
		"OMNIROUTE_PROVIDER_BREAKER_OAUTH_FAILURE_THRESH": "3",
	}))
	require.Empty(t, warnings)

	stored := Settings{ProviderBreaker: ByClass[BreakerSettings]{Local: BreakerSettings{ResetTimeoutMs: ptr(int64(8000))}}}
	s := stored.Over(defaults)
	require.Equal(t, 20, s.BreakerPolicy(models.ClassAPIKey).FailureThreshold, "the variable")
	require.Equal(t, 8, s.BreakerPolicy(models.ClassOAuth).FailureThreshold, "the built-in default")
	require.Equal(t, 8*time.Second, s.BreakerPolicy(models.ClassLocal).ResetTimeout, "the stored value")
	gate := s.GatePolicy(models.ClassOAuth)
	require.True(t, gate.Enabled)
	require.Zero(t, gate.Least, "zero is legal here")
	require.Equal(t, 4*time.Second, gate.Cooldown)
	require.Nil(t, stored.ProviderCooldown.Enabled, "the stored settings are not changed")
}

func TestAVariableThatMakesNoSenseIsNamedAndTheDefaultStays(t *testing.T) {
	for name, c := range map[string]struct{ variable, value, want string }{
		"words":             {"PROVIDER_COOLDOWN_MAX_MS", "5m", "PROVIDER_COOLDOWN_MAX_MS: not a whole number; the default stays"},
		"a fraction":        {"PROVIDER_COOLDOWN_MAX_MS", "1.5", "PROVIDER_COOLDOWN_MAX_MS: not a whole number; the default stays"},
		"negative":          {"PROVIDER_COOLDOWN_MAX_MS", "-1", "PROVIDER_COOLDOWN_MAX_MS: -1 is not between 5000 and 86400000; the default stays"},
		"zero, not legal":   {"OMNIROUTE_CIRCUIT_BREAKER_OAUTH_THRESHOLD", "0", "OMNIROUTE_CIRCUIT_BREAKER_OAUTH_THRESHOLD: 0 is not between 1 and 1000; the default stays"},
		"too large":         {"PROVIDER_COOLDOWN_MIN_MS", "99999999999999999999", "PROVIDER_COOLDOWN_MIN_MS: not a whole number; the default stays"},
		"above another one": {"OMNIROUTE_PROVIDER_BREAKER_OAUTH_DEGRADATION_THRESHOLD", "8", "OMNIROUTE_PROVIDER_BREAKER_OAUTH_DEGRADATION_THRESHOLD: 8 is not between 1 and 7; the default stays"},
		"no switch":         {"PROVIDER_COOLDOWN_ENABLED", "yes", "PROVIDER_COOLDOWN_ENABLED: neither true, 1, on nor false, 0, off; the default stays"},
	} {
		t.Run(name, func(t *testing.T) {
			defaults, warnings := FromEnv(environment(map[string]string{c.variable: c.value, "PROVIDER_COOLDOWN_MIN_MS": orElse(c.variable, c.value), "OMNIROUTE_CIRCUIT_BREAKER_LOCAL_THRESHOLD": "4"}))
			require.Len(t, warnings, 1)
			require.Equal(t, c.want, warnings[0].String())
			require.Equal(t, Settings{ProviderBreaker: ByClass[BreakerSettings]{Local: BreakerSettings{FailureThreshold: ptr(4)}}}, defaults, "the others count")
		})
	}
}

// orElse keeps the variable's value where it is the one under test.
func orElse(variable, value string) string {
	if variable == "PROVIDER_COOLDOWN_MIN_MS" {
		return value
	}
	return ""
}

func TestAnEmptyVariableCountsAsUnset(t *testing.T) {
	variables := map[string]string{}
	for _, s := range Schema() {
		variables[s.Env] = " "
	}
	defaults, warnings := FromEnv(environment(variables))
	require.Empty(t, warnings)
	require.Equal(t, Settings{}, defaults)
}
