// Package resilience holds the state machines of the resilience guide as values:
// (state, event, policy, now) -> (state, changes). Gateway and workflows run the same code.
package resilience

import "omniroute/models"

// Settings is the "resilience" section of the operator's settings. Field names follow the
// guide. A nil value was not set and takes its default. Units, defaults, bounds and meanings
// are in the schema alone.
type Settings struct {
	ConnectionCooldown ByClass[CooldownSettings] `json:"connectionCooldown,omitzero" yaml:"connectionCooldown,omitzero"`
	ProviderBreaker    ByClass[BreakerSettings]  `json:"providerBreaker,omitzero" yaml:"providerBreaker,omitzero"`
	ProviderCooldown   GateSettings              `json:"providerCooldown,omitzero" yaml:"providerCooldown,omitzero"`
	ModelLockout       LockoutSettings           `json:"modelLockout,omitzero" yaml:"modelLockout,omitzero"`
	ExpiredRetry       ExpiredSettings           `json:"expiredRetry,omitzero" yaml:"expiredRetry,omitzero"`
	ComboCooldownWait  ComboWaitSettings         `json:"comboCooldownWait,omitzero" yaml:"comboCooldownWait,omitzero"`
	WaitForCooldown    CooldownWaitSettings      `json:"waitForCooldown,omitzero" yaml:"waitForCooldown,omitzero"`
}

// ByClass holds one value per provider class.
type ByClass[T any] struct {
	OAuth  T `json:"oauth,omitzero" yaml:"oauth,omitzero"`
	APIKey T `json:"apikey,omitzero" yaml:"apikey,omitzero"`
	Local  T `json:"local,omitzero" yaml:"local,omitzero"`
}

// className is how the settings write a class; an unknown one is treated as api_key, as the
// guide does.
func className(class models.Class) string {
	switch class {
	case models.ClassOAuth:
		return "oauth"
	case models.ClassLocal:
		return "local"
	default:
		return "apikey"
	}
}

// CooldownSettings are the cooldown of a connection (guide section 2).
type CooldownSettings struct {
	BaseCooldownMs        *int64 `json:"baseCooldownMs,omitempty" yaml:"baseCooldownMs,omitempty"`
	MaxBackoffSteps       *int   `json:"maxBackoffSteps,omitempty" yaml:"maxBackoffSteps,omitempty"`
	MaxCooldownMs         *int64 `json:"maxCooldownMs,omitempty" yaml:"maxCooldownMs,omitempty"`
	UseUpstreamRetryHints *bool  `json:"useUpstreamRetryHints,omitempty" yaml:"useUpstreamRetryHints,omitempty"`
}

// BreakerSettings are the circuit breaker of a provider (guide section 1).
type BreakerSettings struct {
	FailureThreshold       *int   `json:"failureThreshold,omitempty" yaml:"failureThreshold,omitempty"`
	DegradationThreshold   *int   `json:"degradationThreshold,omitempty" yaml:"degradationThreshold,omitempty"`
	ResetTimeoutMs         *int64 `json:"resetTimeoutMs,omitempty" yaml:"resetTimeoutMs,omitempty"`
	WindowMs               *int64 `json:"windowMs,omitempty" yaml:"windowMs,omitempty"`
	ProbeTimeoutMs         *int64 `json:"probeTimeoutMs,omitempty" yaml:"probeTimeoutMs,omitempty"`
	MaxBackoffMultiplier   *int   `json:"maxBackoffMultiplier,omitempty" yaml:"maxBackoffMultiplier,omitempty"`
	BackoffEscalationCount *int   `json:"backoffEscalationCount,omitempty" yaml:"backoffEscalationCount,omitempty"`
}

// GateSettings are the optional cooldown of a provider (guide section 1, window gate).
type GateSettings struct {
	Enabled            *bool          `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	MinRetryCooldownMs *int64         `json:"minRetryCooldownMs,omitempty" yaml:"minRetryCooldownMs,omitempty"`
	MaxRetryCooldownMs *int64         `json:"maxRetryCooldownMs,omitempty" yaml:"maxRetryCooldownMs,omitempty"`
	OAuth              WindowSettings `json:"oauth,omitzero" yaml:"oauth,omitzero"`
	APIKey             WindowSettings `json:"apikey,omitzero" yaml:"apikey,omitzero"`
	Local              WindowSettings `json:"local,omitzero" yaml:"local,omitzero"`
}

// WindowSettings are the window gate of one class.
type WindowSettings struct {
	FailureThreshold *int   `json:"failureThreshold,omitempty" yaml:"failureThreshold,omitempty"`
	FailureWindowMs  *int64 `json:"failureWindowMs,omitempty" yaml:"failureWindowMs,omitempty"`
	CooldownMs       *int64 `json:"cooldownMs,omitempty" yaml:"cooldownMs,omitempty"`
}

// LockoutSettings are the lockout of a model (guide section 3). An empty list of codes is one
// that was not set.
type LockoutSettings struct {
	Enabled               *bool  `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	ErrorCodes            []int  `json:"errorCodes,omitempty" yaml:"errorCodes,omitempty"`
	BaseCooldownMs        *int64 `json:"baseCooldownMs,omitempty" yaml:"baseCooldownMs,omitempty"`
	UseExponentialBackoff *bool  `json:"useExponentialBackoff,omitempty" yaml:"useExponentialBackoff,omitempty"`
	MaxBackoffSteps       *int   `json:"maxBackoffSteps,omitempty" yaml:"maxBackoffSteps,omitempty"`
	MaxCooldownMs         *int64 `json:"maxCooldownMs,omitempty" yaml:"maxCooldownMs,omitempty"`
	EscalationWindowMs    *int64 `json:"escalationWindowMs,omitempty" yaml:"escalationWindowMs,omitempty"`
}

// ExpiredSettings are the retries of expired credentials (guide section 2).
type ExpiredSettings struct {
	MaxRetries  *int   `json:"maxRetries,omitempty" yaml:"maxRetries,omitempty"`
	BaseDelayMs *int64 `json:"baseDelayMs,omitempty" yaml:"baseDelayMs,omitempty"`
}

// ComboWaitSettings say whether a request to a combo waits for a target that will soon be back,
// instead of being refused (guide section 4).
type ComboWaitSettings struct {
	Enabled     *bool  `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	MaxWaitMs   *int64 `json:"maxWaitMs,omitempty" yaml:"maxWaitMs,omitempty"`
	MaxAttempts *int   `json:"maxAttempts,omitempty" yaml:"maxAttempts,omitempty"`
	BudgetMs    *int64 `json:"budgetMs,omitempty" yaml:"budgetMs,omitempty"`
}

// CooldownWaitSettings say the same of requests to a plain model.
type CooldownWaitSettings struct {
	Enabled         *bool  `json:"enabled,omitempty" yaml:"enabled,omitempty"`
	MaxRetries      *int   `json:"maxRetries,omitempty" yaml:"maxRetries,omitempty"`
	MaxRetryWaitSec *int64 `json:"maxRetryWaitSec,omitempty" yaml:"maxRetryWaitSec,omitempty"`
	BudgetMs        *int64 `json:"budgetMs,omitempty" yaml:"budgetMs,omitempty"`
}
