package models_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

func TestAModelRefSplitsAtItsFirstSlash(t *testing.T) {
	for text, want := range map[string]models.ModelRef{
		"openai/gpt-x":               {Provider: "openai", Model: "gpt-x"},
		"fw/accounts/f/models/llama": {Provider: "fw", Model: "accounts/f/models/llama"},
		"local/qwen:7b":              {Provider: "local", Model: "qwen:7b"},
	} {
		ref, ok := models.ParseModelRef(text)
		require.True(t, ok, text)
		require.Equal(t, want, ref)
		require.Equal(t, text, ref.String())
	}
	for _, text := range []string{"", "gpt-x", "/gpt-x", "openai/", "/"} {
		_, ok := models.ParseModelRef(text)
		require.False(t, ok, text)
	}
}

func TestAStampOfANewerEraComesAfterAnyVersionOfAnOlderOne(t *testing.T) {
	require.True(t, models.Stamp{Era: 2, Version: 1}.After(models.Stamp{Era: 1, Version: 99}))
	require.False(t, models.Stamp{Era: 1, Version: 99}.After(models.Stamp{Era: 2, Version: 1}))
	require.True(t, models.Stamp{Era: 1, Version: 2}.After(models.Stamp{Era: 1, Version: 1}))

	stamp := rapid.Custom(func(t *rapid.T) models.Stamp {
		return models.Stamp{Era: rapid.Int64Range(0, 2).Draw(t, "era"), Version: rapid.Int64Range(0, 2).Draw(t, "version")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := stamp.Draw(t, "a"), stamp.Draw(t, "b"), stamp.Draw(t, "c")
		require.False(t, a.After(a))
		require.Equal(t, a != b, a.After(b) != b.After(a), "of two different stamps exactly one is newer")
		if a.After(b) && b.After(c) {
			require.True(t, a.After(c))
		}
	})
}

// Retry-After is an integer, rounded up and at least 1 (the outside contract).
func TestRetryAfterIsRoundedUpAndAtLeastOne(t *testing.T) {
	for wait, want := range map[time.Duration]int{
		-time.Second: 0, 0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90,
	} {
		require.Equal(t, want, (&models.Error{RetryAfter: wait}).RetryAfterSeconds(), wait)
	}
}

func TestAnErrorShowsItsCodesStatusUnlessAnUpstreamsIsPassedOn(t *testing.T) {
	cause := errors.New("what only the log sees")
	err := models.Errorf(models.CodeInvalidRequest, "%q is not a number", "x").WithParam("top_p").WithCause(cause)
	require.Equal(t, http.StatusBadRequest, err.Status())
	require.Equal(t, "top_p", err.Param)
	require.Equal(t, `invalid_request: "x" is not a number`, err.Error())
	require.ErrorIs(t, err, cause)

	err.HTTPStatus = http.StatusUnprocessableEntity
	require.Equal(t, http.StatusUnprocessableEntity, err.Status())
}

func TestTheGuidesCodesHaveTheGuidesStatuses(t *testing.T) {
	for code, status := range map[models.Code]int{
		"RATE_LIMIT_QUEUE_FULL": 429, "all_targets_cooling_down": 503, "no_executable_targets": 404,
	} {
		require.Equal(t, status, code.Status(), code)
		require.NotEqual(t, "server_error", code.Type(), code)
	}
	require.Equal(t, http.StatusInternalServerError, models.Code("not in the table").Status())
	require.Equal(t, "server_error", models.Code("not in the table").Type())
}

func TestOnlyTimersEndByThemselves(t *testing.T) {
	for _, reason := range []models.Reason{models.ReasonCircuitOpen, models.ReasonConnCooldown, models.ReasonModelCooldown} {
		require.True(t, reason.Timer(), reason)
	}
	for _, reason := range []models.Reason{models.ReasonBanned, models.ReasonDisabled, models.ReasonConcurrency, models.ReasonNotAllowed} {
		require.False(t, reason.Timer(), reason)
	}
	for phase, terminal := range map[models.Phase]bool{
		models.PhaseReady: false, models.PhaseCooling: false,
		models.PhaseBanned: true, models.PhaseExpired: true, models.PhaseCreditsExhausted: true,
	} {
		require.Equal(t, terminal, phase.Terminal(), phase)
	}
}
