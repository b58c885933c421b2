package catalog

// ComboConfig is what a combo, or settings.comboDefaults for all of them, sets of how it works. A
// nil value was not set. Units, defaults, bounds and meanings are in the schema alone.
type ComboConfig struct {
	MaxRetries          *int   `json:"maxRetries,omitempty" yaml:"maxRetries,omitempty"`
	RetryDelayMs        *int64 `json:"retryDelayMs,omitempty" yaml:"retryDelayMs,omitempty"`
	FallbackDelayMs     *int64 `json:"fallbackDelayMs,omitempty" yaml:"fallbackDelayMs,omitempty"`
	TargetTimeoutMs     *int64 `json:"targetTimeoutMs,omitempty" yaml:"targetTimeoutMs,omitempty"`
	ConcurrencyPerModel *int   `json:"concurrencyPerModel,omitempty" yaml:"concurrencyPerModel,omitempty"`
	QueueTimeoutMs      *int64 `json:"queueTimeoutMs,omitempty" yaml:"queueTimeoutMs,omitempty"`
	QueueDepth          *int   `json:"queueDepth,omitempty" yaml:"queueDepth,omitempty"`

	MaxSetRetries       *int   `json:"maxSetRetries,omitempty" yaml:"maxSetRetries,omitempty"`
	SetRetryDelayMs     *int64 `json:"setRetryDelayMs,omitempty" yaml:"setRetryDelayMs,omitempty"`
	MaxGlobalAttempts   *int   `json:"maxGlobalAttempts,omitempty" yaml:"maxGlobalAttempts,omitempty"`
	ComboTimeoutMs      *int64 `json:"comboTimeoutMs,omitempty" yaml:"comboTimeoutMs,omitempty"`
	FailoverBeforeRetry *bool  `json:"failoverBeforeRetry,omitempty" yaml:"failoverBeforeRetry,omitempty"`
	Hedging             *bool  `json:"hedging,omitempty" yaml:"hedging,omitempty"`
	HedgeDelayMs        *int64 `json:"hedgeDelayMs,omitempty" yaml:"hedgeDelayMs,omitempty"`
	PredictiveTTFTMs    *int64 `json:"predictiveTtftMs,omitempty" yaml:"predictiveTtftMs,omitempty"`

	CompatFilterFailOpen *bool               `json:"compatFilterFailOpen,omitempty" yaml:"compatFilterFailOpen,omitempty"`
	ContextRequirements  ContextRequirements `json:"contextRequirements,omitzero" yaml:"contextRequirements,omitempty"`

	StickyRoundRobinLimit    *int  `json:"stickyRoundRobinLimit,omitempty" yaml:"stickyRoundRobinLimit,omitempty"`
	StickyWeightedLimit      *int  `json:"stickyWeightedLimit,omitempty" yaml:"stickyWeightedLimit,omitempty"`
	DisableSessionStickiness *bool `json:"disableSessionStickiness,omitempty" yaml:"disableSessionStickiness,omitempty"`

	MaxComboDepth   *int            `json:"maxComboDepth,omitempty" yaml:"maxComboDepth,omitempty"`
	NestedComboMode *string         `json:"nestedComboMode,omitempty" yaml:"nestedComboMode,omitempty"`
	CompositeTiers  *CompositeTiers `json:"compositeTiers,omitempty" yaml:"compositeTiers,omitempty"`

	ResetAwareSessionWeight          *float64 `json:"resetAwareSessionWeight,omitempty" yaml:"resetAwareSessionWeight,omitempty"`
	ResetAwareWeeklyWeight           *float64 `json:"resetAwareWeeklyWeight,omitempty" yaml:"resetAwareWeeklyWeight,omitempty"`
	ResetAwareTieBandPercent         *float64 `json:"resetAwareTieBandPercent,omitempty" yaml:"resetAwareTieBandPercent,omitempty"`
	ResetAwareExhaustionGuardPercent *float64 `json:"resetAwareExhaustionGuardPercent,omitempty" yaml:"resetAwareExhaustionGuardPercent,omitempty"`
	ResetWindowWindows               []string `json:"resetWindowWindows,omitempty" yaml:"resetWindowWindows,omitempty"`
	ResetWindowIncludeSession        *bool    `json:"resetWindowIncludeSession,omitempty" yaml:"resetWindowIncludeSession,omitempty"`
	ResetWindowTieBandMs             *int64   `json:"resetWindowTieBandMs,omitempty" yaml:"resetWindowTieBandMs,omitempty"`

	CandidatePool         []string    `json:"candidatePool,omitempty" yaml:"candidatePool,omitempty"`
	ModePack              *string     `json:"modePack,omitempty" yaml:"modePack,omitempty"`
	Weights               AutoWeights `json:"weights,omitzero" yaml:"weights,omitempty"`
	RouterStrategy        *string     `json:"routerStrategy,omitempty" yaml:"routerStrategy,omitempty"`
	ExplorationRate       *float64    `json:"explorationRate,omitempty" yaml:"explorationRate,omitempty"`
	BudgetCap             *float64    `json:"budgetCap,omitempty" yaml:"budgetCap,omitempty"`
	BudgetFallback        *string     `json:"budgetFallback,omitempty" yaml:"budgetFallback,omitempty"`
	SLATargetP95Ms        *int64      `json:"slaTargetP95Ms,omitempty" yaml:"slaTargetP95Ms,omitempty"`
	SLAMaxErrorRate       *float64    `json:"slaMaxErrorRate,omitempty" yaml:"slaMaxErrorRate,omitempty"`
	SLAMaxCostPer1MTokens *float64    `json:"slaMaxCostPer1MTokens,omitempty" yaml:"slaMaxCostPer1MTokens,omitempty"`
	SLAHardConstraints    *bool       `json:"slaHardConstraints,omitempty" yaml:"slaHardConstraints,omitempty"`

	JudgeModel   *string      `json:"judgeModel,omitempty" yaml:"judgeModel,omitempty"`
	FusionTuning FusionTuning `json:"fusionTuning,omitzero" yaml:"fusionTuning,omitempty"`

	HandoffThreshold      *float64 `json:"handoffThreshold,omitempty" yaml:"handoffThreshold,omitempty"`
	HandoffModel          *string  `json:"handoffModel,omitempty" yaml:"handoffModel,omitempty"`
	HandoffProviders      []string `json:"handoffProviders,omitempty" yaml:"handoffProviders,omitempty"`
	MaxMessagesForSummary *int     `json:"maxMessagesForSummary,omitempty" yaml:"maxMessagesForSummary,omitempty"`
}

// TargetConfig is the part of a combo's configuration that settings.providerOverrides may set for
// the targets at one provider. What concerns a combo as a whole has no place there.
type TargetConfig struct {
	MaxRetries          *int   `json:"maxRetries,omitempty" yaml:"maxRetries,omitempty"`
	RetryDelayMs        *int64 `json:"retryDelayMs,omitempty" yaml:"retryDelayMs,omitempty"`
	FallbackDelayMs     *int64 `json:"fallbackDelayMs,omitempty" yaml:"fallbackDelayMs,omitempty"`
	TargetTimeoutMs     *int64 `json:"targetTimeoutMs,omitempty" yaml:"targetTimeoutMs,omitempty"`
	ConcurrencyPerModel *int   `json:"concurrencyPerModel,omitempty" yaml:"concurrencyPerModel,omitempty"`
	QueueTimeoutMs      *int64 `json:"queueTimeoutMs,omitempty" yaml:"queueTimeoutMs,omitempty"`
	QueueDepth          *int   `json:"queueDepth,omitempty" yaml:"queueDepth,omitempty"`
}

// config is the same as the configuration of a combo that sets nothing else.
func (t TargetConfig) config() ComboConfig {
	return ComboConfig{
		MaxRetries: t.MaxRetries, RetryDelayMs: t.RetryDelayMs, FallbackDelayMs: t.FallbackDelayMs, TargetTimeoutMs: t.TargetTimeoutMs,
		ConcurrencyPerModel: t.ConcurrencyPerModel, QueueTimeoutMs: t.QueueTimeoutMs, QueueDepth: t.QueueDepth,
	}
}

// ContextRequirements say how large the context windows of a combo's models are to be.
type ContextRequirements struct {
	MinContextWindow   *int    `json:"minContextWindow,omitempty" yaml:"minContextWindow,omitempty"`
	PreferLargeContext *bool   `json:"preferLargeContext,omitempty" yaml:"preferLargeContext,omitempty"`
	ContextFilterMode  *string `json:"contextFilterMode,omitempty" yaml:"contextFilterMode,omitempty"`
}

// CompositeTiers order the targets of a combo by named tiers, each of one target, that fall back
// on each other.
type CompositeTiers struct {
	DefaultTier string                   `json:"defaultTier" yaml:"defaultTier"`
	Tiers       map[string]CompositeTier `json:"tiers" yaml:"tiers"`
}

// CompositeTier is one tier: the id of its target, and the tier to fall back on.
type CompositeTier struct {
	StepID       string `json:"stepId" yaml:"stepId"`
	FallbackTier string `json:"fallbackTier,omitempty" yaml:"fallbackTier,omitempty"`
}

// FusionTuning bounds the panel of the strategy fusion.
type FusionTuning struct {
	MinPanel           *int   `json:"minPanel,omitempty" yaml:"minPanel,omitempty"`
	MaxPanel           *int   `json:"maxPanel,omitempty" yaml:"maxPanel,omitempty"`
	StragglerGraceMs   *int64 `json:"stragglerGraceMs,omitempty" yaml:"stragglerGraceMs,omitempty"`
	PanelHardTimeoutMs *int64 `json:"panelHardTimeoutMs,omitempty" yaml:"panelHardTimeoutMs,omitempty"`
}

// AutoWeights weigh the factors of the strategy auto against each other. A weight that is not set
// is that of the mode pack.
type AutoWeights struct {
	Quota               *float64 `json:"quota,omitempty" yaml:"quota,omitempty"`
	Health              *float64 `json:"health,omitempty" yaml:"health,omitempty"`
	CostInv             *float64 `json:"costInv,omitempty" yaml:"costInv,omitempty"`
	LatencyInv          *float64 `json:"latencyInv,omitempty" yaml:"latencyInv,omitempty"`
	TaskFit             *float64 `json:"taskFit,omitempty" yaml:"taskFit,omitempty"`
	Stability           *float64 `json:"stability,omitempty" yaml:"stability,omitempty"`
	TierPriority        *float64 `json:"tierPriority,omitempty" yaml:"tierPriority,omitempty"`
	TierAffinity        *float64 `json:"tierAffinity,omitempty" yaml:"tierAffinity,omitempty"`
	SpecificityMatch    *float64 `json:"specificityMatch,omitempty" yaml:"specificityMatch,omitempty"`
	ContextAffinity     *float64 `json:"contextAffinity,omitempty" yaml:"contextAffinity,omitempty"`
	SessionAvailability *float64 `json:"sessionAvailability,omitempty" yaml:"sessionAvailability,omitempty"`
	ConnectionDensity   *float64 `json:"connectionDensity,omitempty" yaml:"connectionDensity,omitempty"`
	CacheAffinity       *float64 `json:"cacheAffinity,omitempty" yaml:"cacheAffinity,omitempty"`
	ResetWindowAffinity *float64 `json:"resetWindowAffinity,omitempty" yaml:"resetWindowAffinity,omitempty"`
	Quality             *float64 `json:"quality,omitempty" yaml:"quality,omitempty"`
	Reliability         *float64 `json:"reliability,omitempty" yaml:"reliability,omitempty"`
}
