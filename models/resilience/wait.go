package resilience

import "time"

// WaitPolicy bounds how one request waits for its targets. The zero value does not wait.
type WaitPolicy struct {
	Attempts int           // waits
	Longest  time.Duration // one wait
	Budget   time.Duration // all waits together
}

// ComboWait is the effective policy of requests to a combo.
func (s Settings) ComboWait() WaitPolicy {
	return waitPolicy(s.on("comboCooldownWait.enabled"), WaitPolicy{
		Attempts: int(s.integer("comboCooldownWait.maxAttempts")),
		Longest:  s.duration("comboCooldownWait.maxWaitMs"),
		Budget:   s.duration("comboCooldownWait.budgetMs"),
	})
}

// ModelWait is the effective policy of requests to a plain model.
func (s Settings) ModelWait() WaitPolicy {
	return waitPolicy(s.on("waitForCooldown.enabled"), WaitPolicy{
		Attempts: int(s.integer("waitForCooldown.maxRetries")),
		Longest:  s.duration("waitForCooldown.maxRetryWaitSec"),
		Budget:   s.duration("waitForCooldown.budgetMs"),
	})
}

func waitPolicy(enabled bool, p WaitPolicy) WaitPolicy {
	if !enabled || p.Attempts == 0 || p.Longest == 0 {
		return WaitPolicy{}
	}
	return p
}
