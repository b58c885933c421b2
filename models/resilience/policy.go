package resilience

import (
	"time"

	"omniroute/models"
)

// BreakerPolicy is what the breaker machine runs with: effective, clamped values.
type BreakerPolicy struct {
	FailureThreshold       int
	DegradationThreshold   int
	ResetTimeout           time.Duration
	Window                 time.Duration
	ProbeTimeout           time.Duration
	MaxBackoffMultiplier   int
	BackoffEscalationCount int
}

// BreakerPolicy is the effective policy of a class.
func (s Settings) BreakerPolicy(class models.Class) BreakerPolicy {
	at := "providerBreaker." + className(class) + "."
	return BreakerPolicy{
		FailureThreshold:       int(s.integer(at + "failureThreshold")),
		DegradationThreshold:   int(s.integer(at + "degradationThreshold")),
		ResetTimeout:           s.duration(at + "resetTimeoutMs"),
		Window:                 s.duration(at + "windowMs"),
		ProbeTimeout:           s.duration(at + "probeTimeoutMs"),
		MaxBackoffMultiplier:   int(s.integer(at + "maxBackoffMultiplier")),
		BackoffEscalationCount: int(s.integer(at + "backoffEscalationCount")),
	}
}

// CooldownPolicy is what the cooldown machine runs with: effective, clamped values. Only
// gateways decide by it; what they decided travels as a state.
type CooldownPolicy struct {
	Base     time.Duration
	MaxSteps int
	Max      time.Duration
	UseHints bool
	// Window is how long after its end an episode is remembered: the next failure within it
	// raises the level, a later one begins at the first. Zero decays level by level instead.
	Window time.Duration
	// Eases says that a success halves the level of a lockout instead of clearing it.
	Eases bool
}

// fallbackBase stands in for a base of zero, which is a legal setting.
const fallbackBase = time.Second

// CooldownPolicy is the effective policy of a class.
func (s Settings) CooldownPolicy(class models.Class) CooldownPolicy {
	at := "connectionCooldown." + className(class) + "."
	p := CooldownPolicy{
		Base:     s.duration(at + "baseCooldownMs"),
		MaxSteps: int(s.integer(at + "maxBackoffSteps")),
		Max:      s.duration(at + "maxCooldownMs"),
		UseHints: s.on(at + "useUpstreamRetryHints"),
	}
	if p.Base == 0 {
		p.Base = fallbackBase
		p.Max = max(p.Max, p.Base)
	}
	return p
}

// GatePolicy is the effective policy of the window gate for a class.
func (s Settings) GatePolicy(class models.Class) WindowPolicy {
	at := "providerCooldown." + className(class) + "."
	return WindowPolicy{
		Enabled:  s.on("providerCooldown.enabled"),
		Failures: int(s.integer(at + "failureThreshold")),
		Within:   s.duration(at + "failureWindowMs"),
		Cooldown: s.duration(at + "cooldownMs"),
		Least:    s.duration("providerCooldown.minRetryCooldownMs"),
		Longest:  s.duration("providerCooldown.maxRetryCooldownMs"),
	}
}

// LockoutPolicy is what model lockouts run with: effective, clamped values (guide section 3).
type LockoutPolicy struct {
	Enabled bool
	Codes   []int // upstream statuses that lock a model, sorted
	Base    time.Duration
	Max     time.Duration // bounds guesses and rules; a reset that the provider declares may exceed it
	Steps   int
	Flat    bool          // no exponential backoff
	Window  time.Duration // within which the next failure escalates
}

// LockoutPolicy is the effective policy of model lockouts.
func (s Settings) LockoutPolicy() LockoutPolicy {
	return LockoutPolicy{
		Enabled: s.on("modelLockout.enabled"),
		Codes:   s.codes("modelLockout.errorCodes"),
		Base:    s.duration("modelLockout.baseCooldownMs"),
		Max:     s.duration("modelLockout.maxCooldownMs"),
		Steps:   int(s.integer("modelLockout.maxBackoffSteps")),
		Flat:    !s.on("modelLockout.useExponentialBackoff"),
		Window:  s.duration("modelLockout.escalationWindowMs"),
	}
}

// Cooldown is the policy of one lockout.
func (p LockoutPolicy) Cooldown() CooldownPolicy {
	steps := p.Steps
	if p.Flat {
		steps = 0
	}
	return CooldownPolicy{Base: p.Base, MaxSteps: steps, Max: p.Max, UseHints: true, Window: p.Window, Eases: true}
}

// ExpiredPolicy is the effective policy for the retries of expired credentials.
func (s Settings) ExpiredPolicy() ExpiredPolicy {
	return ExpiredPolicy{
		Retries: int(s.integer("expiredRetry.maxRetries")),
		Base:    s.duration("expiredRetry.baseDelayMs"),
	}
}
