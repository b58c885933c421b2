package catalog

import (
	"time"

	"omniroute/models/routing"
)

// LoopPolicy is how the attempts of one request to a combo follow each other, with every value in
// force.
type LoopPolicy struct {
	SetRetries          int // how often all targets are gone through again
	SetRetryDelay       time.Duration
	MaxAttempts         int           // of one request, nested combos included; at least 1
	ComboTimeout        time.Duration // 0 = none
	FailoverBeforeRetry bool          // other targets come before the same one again
	Hedge               bool
	HedgeDelay          time.Duration
	PredictiveTTFT      time.Duration // mean time to the first content above which a target is passed over; 0 = none is
	FailOpenFilter      bool          // targets that cannot serve as far as is known are tried when there are no others
	Context             ContextPolicy
	SessionStickiness   bool // a conversation stays at the connection that served it last
}

// ContextPolicy is which context windows a combo's targets are to have.
type ContextPolicy struct {
	MinWindow   int  // tokens; 0 = any
	PreferLarge bool // larger windows go first
	Strict      bool // an unknown window does not meet MinWindow
}

// TargetPolicy is how one target of a combo is tried, with every value in force. That of a plain
// model is zero.
type TargetPolicy struct {
	Retries       int // tries of the same target after the first
	RetryDelay    time.Duration
	FallbackDelay time.Duration // before the next target
	TargetTimeout time.Duration // of one attempt, of a stream until its headers; 0 = the provider's timeouts alone
	Concurrency   int           // at once, where the connection sets no bound; at least 1
	QueueTimeout  time.Duration
	QueueDepth    int // 0 = none waits
}

// FusionPolicy is how a panel of the strategy fusion is held.
type FusionPolicy struct {
	Judge          string // a name to resolve; empty = the first of the panel
	MinPanel       int    // answers that suffice; at least 1
	MaxPanel       int    // members at most; at least 1
	StragglerGrace time.Duration
	PanelTimeout   time.Duration
}

// HandoffPolicy is when the strategy context-relay writes a summary for the next account.
type HandoffPolicy struct {
	Threshold   float64  // share of an account's quota that is used
	Model       string   // a name to resolve; empty = the one that served
	Providers   []string // ids or kinds
	MaxMessages int      // of which a summary is made
}

// The functions below take an effective configuration.

func (c *ComboConfig) loop() LoopPolicy {
	return LoopPolicy{
		SetRetries:          *c.MaxSetRetries,
		SetRetryDelay:       ms(c.SetRetryDelayMs),
		MaxAttempts:         *c.MaxGlobalAttempts,
		ComboTimeout:        ms(c.ComboTimeoutMs),
		FailoverBeforeRetry: *c.FailoverBeforeRetry,
		Hedge:               *c.Hedging,
		HedgeDelay:          ms(c.HedgeDelayMs),
		PredictiveTTFT:      ms(c.PredictiveTTFTMs),
		FailOpenFilter:      *c.CompatFilterFailOpen,
		Context: ContextPolicy{
			MinWindow:   *c.ContextRequirements.MinContextWindow,
			PreferLarge: *c.ContextRequirements.PreferLargeContext,
			Strict:      *c.ContextRequirements.ContextFilterMode == ContextStrict,
		},
		SessionStickiness: !*c.DisableSessionStickiness,
	}
}

func (c *ComboConfig) target() TargetPolicy {
	return TargetPolicy{
		Retries:       *c.MaxRetries,
		RetryDelay:    ms(c.RetryDelayMs),
		FallbackDelay: ms(c.FallbackDelayMs),
		TargetTimeout: ms(c.TargetTimeoutMs),
		Concurrency:   *c.ConcurrencyPerModel,
		QueueTimeout:  ms(c.QueueTimeoutMs),
		QueueDepth:    *c.QueueDepth,
	}
}

func (c *ComboConfig) fusion() FusionPolicy {
	return FusionPolicy{
		Judge:          *c.JudgeModel,
		MinPanel:       *c.FusionTuning.MinPanel,
		MaxPanel:       *c.FusionTuning.MaxPanel,
		StragglerGrace: ms(c.FusionTuning.StragglerGraceMs),
		PanelTimeout:   ms(c.FusionTuning.PanelHardTimeoutMs),
	}
}

func (c *ComboConfig) handoff() HandoffPolicy {
	return HandoffPolicy{
		Threshold:   *c.HandoffThreshold,
		Model:       *c.HandoffModel,
		Providers:   c.HandoffProviders,
		MaxMessages: *c.MaxMessagesForSummary,
	}
}

func (c *ComboConfig) tuning() *routing.Tuning {
	return &routing.Tuning{
		StickyRoundRobin: max(1, *c.StickyRoundRobinLimit),
		StickyWeighted:   max(1, *c.StickyWeightedLimit),
	}
}

func ms(n *int64) time.Duration { return time.Duration(*n) * time.Millisecond }
