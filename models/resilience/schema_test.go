package resilience

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// leafPaths walks the settings as their JSON is written.
func leafPaths(t reflect.Type, at string) []string {
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		return []string{at}
	}
	var paths []string
	for i := range t.NumField() {
		paths = append(paths, leafPaths(t.Field(i).Type, strings.TrimPrefix(at+"."+jsonName(t.Field(i)), "."))...)
	}
	return paths
}

func TestTheSchemaAndTheSettingsHaveTheSameFields(t *testing.T) {
	var schema []string
	for _, s := range Schema() {
		schema = append(schema, s.Path)
	}
	require.ElementsMatch(t, leafPaths(reflect.TypeFor[Settings](), ""), schema)
}

func TestEverySettingSaysWhatItIs(t *testing.T) {
	envs := map[string]string{}
	for _, s := range Schema() {
		require.True(t, strings.HasSuffix(s.Meaning, "."), s.Path)
		switch s.Kind {
		case KindInteger:
			require.Contains(t, []string{Milliseconds, Seconds, Count}, s.Unit, s.Path)
			require.Less(t, s.Min, s.Max, s.Path)
			require.Equal(t, s.Unit == Milliseconds, strings.HasSuffix(s.Path, "Ms"), s.Path)
			require.Equal(t, s.Unit == Seconds, strings.HasSuffix(s.Path, "Sec"), s.Path)
			if s.Default != nil {
				require.IsType(t, int64(0), s.Default, s.Path)
				require.True(t, s.Default.(int64) >= s.Min && s.Default.(int64) <= s.Max, s.Path)
			}
		case KindSwitch:
			require.IsType(t, true, s.Default, s.Path)
		default:
			require.Equal(t, KindCodes, s.Kind)
			require.NotEmpty(t, s.Default)
		}
		if s.Env != "" {
			require.NotContains(t, s.Env, "%")
			require.Empty(t, envs[s.Env], "%s has two meanings", s.Env)
			envs[s.Env] = s.Path
		}
	}
	require.Empty(t, Settings{}.Effective().Validate(), "the defaults are legal")
}

// policies is everything that the settings decide.
func policies(s Settings) []any {
	all := []any{s.LockoutPolicy(), s.ExpiredPolicy(), s.ComboWait(), s.ModelWait()}
	for _, class := range []models.Class{models.ClassOAuth, models.ClassAPIKey, models.ClassLocal} {
		all = append(all, s.BreakerPolicy(class), s.CooldownPolicy(class), s.GatePolicy(class))
	}
	return all
}

// other are legal values of a setting, most of which are not the one it has.
func other(f *field, effective any, low, high int64) []any {
	switch f.Kind {
	case KindSwitch:
		return []any{!effective.(bool)}
	case KindCodes:
		return []any{[]int{int(low), int(high)}}
	default:
		return []any{low, low + 1, (low + high) / 2, high - 1, high}
	}
}

func TestEverySettingHasAnEffect(t *testing.T) {
	var base Settings
	for _, f := range fields {
		if f.name == "enabled" {
			base.set(f, true)
		}
	}
	base.ProviderBreaker.Local.FailureThreshold = ptr(10) // else only one degradation threshold is legal
	for _, f := range fields {
		low, high := base.bounds(f)
		for _, value := range other(f, base.effective(f), low, high) {
			s := base
			s.set(f, value)
			require.Empty(t, s.Validate(), "%s = %v", f.Path, value)
			if reflect.DeepEqual(value, base.effective(f)) {
				continue
			}
			require.Equal(t, value, s.effective(f), "%s is taken as it is", f.Path)
			require.NotEqual(t, policies(base), policies(s), "%s = %v changes nothing", f.Path, value)
		}
	}
}

func TestAnySettingOutOfRangeIsRefusedAndClamped(t *testing.T) {
	for _, f := range fields {
		var s Settings
		low, high := s.bounds(f)
		for _, value := range []int64{low - 1, high + 1} {
			switch f.Kind {
			case KindInteger:
				s.set(f, value)
				problems := s.Validate()
				require.True(t, slices.ContainsFunc(problems, func(p Problem) bool { return p.Path == f.Path }), "%s = %d", f.Path, value)
				require.Equal(t, min(max(value, low), high), s.effective(f), f.Path)
			case KindCodes:
				s.set(f, []int{int(value)})
				require.Equal(t, f.Path+"[0]", s.Validate()[0].Path)
				require.Equal(t, f.Default, s.effective(f), "codes that do not exist are no codes")
			}
		}
	}
}

func TestTooManyCodesAreRefused(t *testing.T) {
	s := Settings{ModelLockout: LockoutSettings{ErrorCodes: slices.Repeat([]int{429}, maxCodes+1)}}
	require.Equal(t, []Problem{{"modelLockout.errorCodes", "has 101 entries, at most 100 are allowed"}}, s.Validate())
	require.Equal(t, []int{429}, s.LockoutPolicy().Codes, "each counts once")
}

func TestBoundsThatFollowFromOtherValues(t *testing.T) {
	base, least := ptr(int64(600_000)), ptr(int64(400_000))
	for path, c := range map[string]struct {
		s    Settings
		want string
	}{
		"modelLockout.maxCooldownMs": {
			Settings{ModelLockout: LockoutSettings{BaseCooldownMs: base, MaxCooldownMs: ptr(int64(599_999))}},
			"599999 is not between 600000 and 3600000",
		},
		"providerCooldown.maxRetryCooldownMs": {
			Settings{ProviderCooldown: GateSettings{MinRetryCooldownMs: least, MaxRetryCooldownMs: ptr(int64(300_000))}},
			"300000 is not between 400000 and 86400000",
		},
		"providerBreaker.local.degradationThreshold": {
			Settings{ProviderBreaker: ByClass[BreakerSettings]{Local: BreakerSettings{FailureThreshold: ptr(5), DegradationThreshold: ptr(5)}}},
			"5 is not between 1 and 4",
		},
		"comboCooldownWait.budgetMs": {
			Settings{ComboCooldownWait: ComboWaitSettings{MaxWaitMs: ptr(int64(10_000)), BudgetMs: ptr(int64(9_999))}},
			"9999 is not between 10000 and 300000",
		},
		"waitForCooldown.budgetMs": {
			Settings{WaitForCooldown: CooldownWaitSettings{MaxRetryWaitSec: ptr(int64(10)), BudgetMs: ptr(int64(9_999))}},
			"9999 is not between 10000 and 300000",
		},
	} {
		require.Equal(t, []Problem{{path, c.want}}, c.s.Validate())
	}
	// A default follows, too: nobody has to raise two values to raise one.
	raised := Settings{ProviderCooldown: GateSettings{MinRetryCooldownMs: least}}
	require.Empty(t, raised.Validate())
	require.Equal(t, raised.GatePolicy(models.ClassLocal).Least, raised.GatePolicy(models.ClassLocal).Longest)
}

func TestStoredValuesAreJudgedBesideTheDefaultsOfTheEnvironment(t *testing.T) {
	s := Settings{ProviderBreaker: ByClass[BreakerSettings]{APIKey: BreakerSettings{DegradationThreshold: ptr(7)}}}
	defaults := Settings{ProviderBreaker: ByClass[BreakerSettings]{APIKey: BreakerSettings{FailureThreshold: ptr(5)}}}
	require.Empty(t, s.Validate())
	require.Equal(t, []Problem{{"providerBreaker.apikey.degradationThreshold", "7 is not between 1 and 4"}}, s.ValidateOver(defaults))
}

func TestAValueSaysWhereItCameFromAndWhatItWouldBeOtherwise(t *testing.T) {
	s := Settings{ModelLockout: LockoutSettings{Enabled: ptr(true), ErrorCodes: []int{502, 429, 502}}}
	defaults := Settings{ProviderBreaker: ByClass[BreakerSettings]{OAuth: BreakerSettings{ResetTimeoutMs: ptr(int64(7000))}}}
	values := map[string]Value{}
	for _, v := range s.Values(defaults) {
		values[v.Path] = v
	}
	require.Len(t, values, len(Schema()))

	lockout := values["modelLockout.enabled"]
	require.Equal(t, []any{true, false, SourceSetting}, []any{lockout.Effective, lockout.Otherwise, lockout.Source})
	require.Equal(t, []int{429, 502}, values["modelLockout.errorCodes"].Effective)

	reset := values["providerBreaker.oauth.resetTimeoutMs"]
	require.Equal(t, []any{int64(7000), int64(7000), SourceEnv}, []any{reset.Effective, reset.Otherwise, reset.Source})
	probe := values["providerBreaker.oauth.probeTimeoutMs"]
	require.Equal(t, []any{int64(7000), SourceDefault}, []any{probe.Effective, probe.Source}, "it follows resetTimeoutMs")

	degradation := values["providerBreaker.local.degradationThreshold"]
	require.Equal(t, []any{int64(1), int64(1), int64(1)}, []any{degradation.Effective, degradation.Low, degradation.High})

	require.Equal(t, policies(s.Over(defaults)), policies(s.Over(defaults).Effective()), "what is shown is what is in force")
}
