package config

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models/resilience"
)

func TestTheGuidesVariablesReplaceDefaultsAndPrintSaysSo(t *testing.T) {
	environ := []string{
		"PROVIDER_COOLDOWN_ENABLED=1", "OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD=20",
		"OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET_MS=soon", "OMNIROUTE_EGRESS_IP_LOCK_PROVIDERS=Opencode-Go, mine,,",
	}
	_, parsed, err := parse(t, environ, "gateway")
	require.NoError(t, err, "a default keeps no process from starting")

	d := ReadDefaults(environ)
	require.True(t, *d.Resilience.ProviderCooldown.Enabled)
	require.Equal(t, 20, *d.Resilience.ProviderBreaker.APIKey.FailureThreshold)
	require.Equal(t, []string{"opencode-go", "mine"}, d.EgressShared)
	require.Equal(t, []resilience.EnvWarning{{Env: "OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET_MS", Problem: "not a whole number"}}, d.Warnings)

	var out bytes.Buffer
	require.NoError(t, Print(&out, parsed.Settings, d))
	require.Regexp(t, `(?m)^settings\.resilience\.providerCooldown\.enabled +true +env PROVIDER_COOLDOWN_ENABLED$`, out.String())
	require.Regexp(t, `(?m)^settings\.resilience\.providerBreaker\.apikey\.failureThreshold +20 +env OMNIROUTE_CIRCUIT_BREAKER_API_KEY_THRESHOLD$`, out.String())
	require.Regexp(t, `(?m)^settings\.resilience\.providerBreaker\.oauth\.resetTimeoutMs +60000 +default, OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET_MS is left out: not a whole number$`, out.String())
	require.Regexp(t, `(?m)^settings\.resilience\.providerCooldown\.local\.cooldownMs +60000 +default$`, out.String())
	require.Regexp(t, `(?m)^providers\[\]\.egressShared +for opencode-go, mine +env OMNIROUTE_EGRESS_IP_LOCK_PROVIDERS$`, out.String())
}

func TestAMisspeltVariableOfADefaultIsStillAnError(t *testing.T) {
	_, _, err := parse(t, []string{"OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET=1"}, "gateway")
	require.EqualError(t, err, "unknown environment variable OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET, the nearest is OMNIROUTE_CIRCUIT_BREAKER_OAUTH_RESET_MS")
}

func TestTheListOfEgressProvidersMayBeEmptiedAndIsBuiltInWhenBlank(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "  ": nil, "none": {}, "OFF": {}, "false": {}, "0": {}, " , ": {}, "a": {"a"}, "B , c": {"b", "c"},
	} {
		require.Equal(t, want, ReadDefaults([]string{egressVariable + "=" + text}).EgressShared, "%q", text)
	}
	require.Nil(t, ReadDefaults(nil).EgressShared)
}

func TestHelpNamesEveryVariable(t *testing.T) {
	help := DefaultsHelp()
	for _, name := range defaultVariables() {
		require.Contains(t, help, "    "+name+"  ")
	}
}
