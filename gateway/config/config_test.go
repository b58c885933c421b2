package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type grammar struct {
	Gateway struct {
		Process
		Database
		Keys
		Temporal
		Gateway
		Migration
	} `cmd:""`
	Worker struct {
		Process
		Worker
	} `cmd:""`
}

func parse(t *testing.T, environ []string, args ...string) (*grammar, *Parsed, error) {
	t.Helper()
	var g grammar
	var out bytes.Buffer
	parsed, err := Parse(&g, Invocation{Name: "omniroute", Args: args, Environ: environ, Stdout: &out, Stderr: &out})
	return &g, parsed, err
}

func settingsFileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "omniroute.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func origin(t *testing.T, parsed *Parsed, name string) string {
	t.Helper()
	for _, s := range parsed.Settings {
		if s.Name == name {
			return s.Value + " from " + s.Origin()
		}
	}
	require.Failf(t, "no such setting", "%s", name)
	return ""
}

func TestAFlagBeatsTheEnvironmentWhichBeatsTheFileWhichBeatsTheDefault(t *testing.T) {
	file := settingsFileWith(t, "listen: 127.0.0.1:1\nlog-level: warn\ndrain-timeout: 3s\nmigrate: true\n")
	environ := []string{"OMNIROUTE_CONFIG=" + file, "OMNIROUTE_LISTEN=127.0.0.1:2", "OMNIROUTE_LOG_LEVEL=debug", "HOME=/root"}

	g, parsed, err := parse(t, environ, "gateway", "--listen", "127.0.0.1:3")
	require.NoError(t, err)

	require.Equal(t, "127.0.0.1:3", g.Gateway.Listen)
	require.Equal(t, "debug", g.Gateway.LogLevel)
	require.Equal(t, 3*time.Second, g.Gateway.DrainTimeout)
	require.True(t, g.Gateway.Migrate)
	require.Equal(t, 720*time.Hour, g.Gateway.LedgerRetention)
	require.Equal(t, "127.0.0.1:3 from flag --listen", origin(t, parsed, "listen"))
	require.Equal(t, "debug from env OMNIROUTE_LOG_LEVEL", origin(t, parsed, "log-level"))
	require.Equal(t, "3s from file", origin(t, parsed, "drain-timeout"))
	require.Equal(t, "720h0m0s from default", origin(t, parsed, "ledger-retention"))
}

func TestAnEmptyVariableCountsAsUnset(t *testing.T) {
	g, parsed, err := parse(t, []string{"OMNIROUTE_LISTEN=", "OMNIROUTE_DRAIN_TIMEOUT="}, "gateway")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:20128", g.Gateway.Listen)
	require.Equal(t, "20s from default", origin(t, parsed, "drain-timeout"))
}

func TestAnEmptyVariableOfASettingThatMayBeEmptyCounts(t *testing.T) {
	var dev struct{ Dev }
	_, err := Parse(&dev, Invocation{Name: "omniroute-dev", Environ: []string{"OMNIROUTE_TEMPORAL_UI="}})
	require.NoError(t, err)
	require.Empty(t, dev.TemporalUI)
}

func TestEveryMistakeIsOneLineThatNamesItAndTheNearestValidName(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		args    []string
		file    string
		want    string
	}{
		"near flag":            {args: []string{"gateway", "--listne", ":1"}, want: `unknown flag --listne, did you mean "--listen"?`},
		"far flag":             {args: []string{"gateway", "--database-uri-of-catalog=x"}, want: "unknown flag --database-uri-of-catalog, the nearest is --database-url"},
		"variable":             {environ: []string{"OMNIROUTE_LISTN=:1"}, args: []string{"gateway"}, want: "unknown environment variable OMNIROUTE_LISTN, the nearest is OMNIROUTE_LISTEN"},
		"file key":             {file: "# ports\nlisten: :1\nadmin-tokn: x\n", args: []string{"gateway"}, want: "omniroute.yaml:3: unknown setting admin-tokn, the nearest is admin-token"},
		"file naming a file":   {file: "config: other.yaml\n", args: []string{"gateway"}, want: "omniroute.yaml:1: unknown setting config, the nearest is catalog"},
		"file key twice":       {file: "listen: :1\nlisten: :2\n", args: []string{"gateway"}, want: "omniroute.yaml:2: setting listen is given twice"},
		"file list":            {file: "listen: [a]\n", args: []string{"gateway"}, want: "omniroute.yaml:1: listen takes one value, not a list or a mapping"},
		"file of another kind": {file: "- listen\n", args: []string{"gateway"}, want: "omniroute.yaml: not a YAML mapping from setting to value"},
		"file value":           {file: "\ndrain-timeout: soon\n", args: []string{"gateway"}, want: "omniroute.yaml:2: drain-timeout: not a valid duration such as 90s or 720h"},
		"variable's value":     {environ: []string{"OMNIROUTE_MIGRATE=perhaps"}, args: []string{"gateway"}, want: "environment variable OMNIROUTE_MIGRATE: not a valid boolean: true or false"},
		"listen":               {args: []string{"gateway", "--listen", "20128"}, want: `listen "20128": HOST:PORT is needed, such as 127.0.0.1:20128`},
		"listen's port":        {args: []string{"gateway", "--listen", "localhost:99999"}, want: `listen "localhost:99999": the port is a number from 0 to 65535`},
		"database scheme":      {args: []string{"gateway", "--database-url", "mysql://u:geheim@h/d"}, want: `database-url: scheme "mysql" is not known, only postgres://... and sqlite:PATH are`},
		"database URL":         {args: []string{"gateway", "--database-url", "postgres://u:ge%heim@h/d"}, want: "database-url: not a URL; special characters of a password need percent-encoding"},
		"level":                {args: []string{"gateway", "--log-level", "loud"}, want: `log-level "loud": one of error, warn, info, debug`},
		"ui":                   {args: []string{"gateway", "--temporal-ui-url", "localhost:8233"}, want: "temporal-ui-url: an http:// or https:// URL is needed, such as http://127.0.0.1:8233"},
		"retention":            {args: []string{"gateway", "--ledger-retention=-1h"}, want: "ledger-retention: a negative duration makes no sense; 0 keeps records for good"},
	} {
		t.Run(name, func(t *testing.T) {
			environ := c.environ
			if c.file != "" {
				environ = append(environ, "OMNIROUTE_CONFIG="+settingsFileWith(t, c.file))
			}
			_, _, err := parse(t, environ, c.args...)
			require.ErrorAs(t, err, &UsageError{})
			require.True(t, strings.HasSuffix(err.Error(), c.want), "%s", err)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "heim")
		})
	}
}

func TestSettingsOfSiblingProcessesMayBePresentAndHaveNoEffect(t *testing.T) {
	environ := []string{"OMNIROUTE_TEMPORAL_UI=127.0.0.1:1", "OMNIROUTE_LISTEN=127.0.0.1:2", "OMNIROUTE_URL=http://x", "OMNIROUTE_API_KEY=k", "OMNIROUTE_REQUIRE=postgres"}
	g, parsed, err := parse(t, environ, "worker")
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:20129", g.Worker.WorkerListen)
	require.Len(t, parsed.Settings, 5)
}

func TestPrintMasksSecretsWhereverTheyComeFrom(t *testing.T) {
	file := settingsFileWith(t, "admin-token: token-from-file\n")
	environ := []string{"OMNIROUTE_CONFIG=" + file, "OMNIROUTE_ENCRYPTION_KEYS=k1:ring-from-env", "OMNIROUTE_TEMPORAL_API_KEY=temporal-from-env"}
	_, parsed, err := parse(t, environ, "gateway", "--database-url", "postgres://omni:password-from-flag@db/omni?password=other-password&sslpassword=third-password")
	require.NoError(t, err)

	var out bytes.Buffer
	require.NoError(t, Print(&out, parsed.Settings, Defaults{}))

	for _, secret := range []string{"token-from-file", "ring-from-env", "temporal-from-env", "password-from-flag", "other-password", "third-password"} {
		require.NotContains(t, out.String(), secret)
	}
	require.Regexp(t, `(?m)^admin-token +\[redacted\] +file$`, out.String())
	require.Regexp(t, `(?m)^database-url +postgres://omni:xxxxx@db/omni\?password=xxxxx&sslpassword=xxxxx +flag --database-url$`, out.String())
	require.Regexp(t, `(?m)^catalog +\(unset\) +default$`, out.String())
}

func TestEveryVariableIsThePrefixAndTheFlagsName(t *testing.T) {
	names, envs := settingTags("name"), settingTags("env")
	require.Len(t, envs, len(names))
	for i, name := range names {
		require.Equal(t, envPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_")), envs[i])
	}
}

func TestTheKeyRingComesFromTheSettingElseFromTheDataDirectory(t *testing.T) {
	dir := t.TempDir()
	process := Process{DataDir: dir}
	const ring = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

	_, err := Keys{}.Ring(process)
	require.ErrorContains(t, err, "set OMNIROUTE_ENCRYPTION_KEYS")

	require.NoError(t, os.WriteFile(process.KeyRingFile(), []byte(ring+"\n"), 0o600))
	fromFile, err := Keys{}.Ring(process)
	require.NoError(t, err)
	fromSetting, err := Keys{EncryptionKeys: ring}.Ring(process)
	require.NoError(t, err)
	require.Equal(t, fromSetting.HashKey("x"), fromFile.HashKey("x"))

	_, err = Keys{EncryptionKeys: "k1:c2VjcmV0LW1hdGVyaWFs"}.Ring(process)
	require.ErrorContains(t, err, "encryption-keys: ")
	require.NotContains(t, err.Error(), "c2VjcmV0LW1hdGVyaWFs")
}

func TestTemporalsOwnVariablesWorkUnderneathTheSettings(t *testing.T) {
	environ := []string{"TEMPORAL_NAMESPACE=theirs", "OMNIROUTE_TEMPORAL_ADDRESS=from-environment:1", "OMNIROUTE_TEMPORAL_PROFILE="}
	env := Temporal{TemporalAddress: "from-flag:1", TemporalTLS: true}.Env(environ)

	for name, want := range map[string]string{
		"OMNIROUTE_TEMPORAL_ADDRESS": "from-flag:1",
		"OMNIROUTE_TEMPORAL_TLS":     "true",
		"TEMPORAL_NAMESPACE":         "theirs",
	} {
		value, ok := env.LookupEnv(name)
		require.True(t, ok)
		require.Equal(t, want, value)
		require.Contains(t, env.Environ(), name+"="+want)
	}
	_, ok := env.LookupEnv("OMNIROUTE_TEMPORAL_PROFILE")
	require.False(t, ok, "an empty variable would overrule the profile that is set elsewhere")
}

func TestTheRestOfTemporalsVariablesMayCarryOurPrefix(t *testing.T) {
	_, _, err := parse(t, []string{"OMNIROUTE_TEMPORAL_TLS_CLIENT_KEY_DATA=x", "OMNIROUTE_TEMPORAL_GRPC_META_TENANT=y"}, "gateway")
	require.NoError(t, err)
}
