package resilience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNobodyWaitsUntilAnOperatorSwitchesItOn(t *testing.T) {
	require.Zero(t, Settings{}.ComboWait())
	require.Zero(t, Settings{}.ModelWait())
	var s Settings
	s.ComboCooldownWait.MaxWaitMs, s.WaitForCooldown.MaxRetries = ptr(int64(1000)), ptr(3)
	require.Zero(t, s.ComboWait(), "values alone do not switch it on")
	require.Zero(t, s.ModelWait())
}

func TestWaitingHasTheGuidesDefaultsAndBounds(t *testing.T) {
	on := ptr(true)
	standard := WaitPolicy{Attempts: 5, Longest: 90 * time.Second, Budget: 300 * time.Second}
	require.Equal(t, standard, Settings{ComboCooldownWait: ComboWaitSettings{Enabled: on}}.ComboWait())
	require.Equal(t, standard, Settings{WaitForCooldown: CooldownWaitSettings{Enabled: on}}.ModelWait())

	cases := map[string]struct {
		combo ComboWaitSettings
		model CooldownWaitSettings
		want  WaitPolicy
		bad   int // problems of each
	}{
		"inside the bounds": {
			ComboWaitSettings{on, ptr(int64(10_000)), ptr(2), ptr(int64(15_000))},
			CooldownWaitSettings{on, ptr(2), ptr(int64(10)), ptr(int64(15_000))},
			WaitPolicy{2, 10 * time.Second, 15 * time.Second},
			0,
		},
		"no wait is off": {
			ComboWaitSettings{on, ptr(int64(0)), nil, nil},
			CooldownWaitSettings{on, nil, ptr(int64(0)), nil},
			WaitPolicy{},
			0,
		},
		"no attempt is off": {
			ComboWaitSettings{on, nil, ptr(0), nil},
			CooldownWaitSettings{on, ptr(0), nil, nil},
			WaitPolicy{},
			0,
		},
		"above the bounds": {
			ComboWaitSettings{on, ptr(int64(1 << 60)), ptr(11), ptr(int64(300_001))},
			CooldownWaitSettings{on, ptr(11), ptr(int64(1 << 60)), ptr(int64(300_001))},
			WaitPolicy{10, 300 * time.Second, 300 * time.Second},
			3,
		},
		"below the bounds": {
			ComboWaitSettings{on, ptr(int64(-1)), ptr(-1), ptr(int64(-1))},
			CooldownWaitSettings{on, ptr(-1), ptr(int64(-1 << 60)), ptr(int64(-1))},
			WaitPolicy{},
			3,
		},
		"a budget too small for one wait": {
			ComboWaitSettings{on, nil, nil, ptr(int64(60_000))},
			CooldownWaitSettings{on, nil, nil, ptr(int64(60_000))},
			WaitPolicy{5, 90 * time.Second, 90 * time.Second},
			1,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			combo, model := Settings{ComboCooldownWait: c.combo}, Settings{WaitForCooldown: c.model}
			require.Equal(t, c.want, combo.ComboWait())
			require.Equal(t, c.want, model.ModelWait())
			require.Len(t, combo.Validate(), c.bad)
			require.Len(t, model.Validate(), c.bad)
			require.Zero(t, combo.ModelWait(), "one says nothing of the other")
			require.Zero(t, model.ComboWait())
		})
	}
}

func TestAWaitOutOfRangeIsNamedByItsPath(t *testing.T) {
	s := Settings{
		ComboCooldownWait: ComboWaitSettings{MaxWaitMs: ptr(int64(300_001))},
		WaitForCooldown:   CooldownWaitSettings{MaxRetryWaitSec: ptr(int64(301))},
	}
	problems := s.Validate()
	require.Equal(t, []Problem{
		{"comboCooldownWait.maxWaitMs", "300001 is not between 0 and 300000"},
		{"waitForCooldown.maxRetryWaitSec", "301 is not between 0 and 300"},
	}, problems)
}
