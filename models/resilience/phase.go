package resilience

import (
	"time"

	"omniroute/models"
)

// Phase is where the connection as a whole stands at now, as rows and lists show it: the phase
// of its cooldown, or locked when nothing but models are out.
func (c Connection) Phase(now time.Time) models.Phase {
	phase := c.Cooldown.Standing(now).Phase
	if phase == models.PhaseReady && len(c.Out(now)) > 0 {
		return models.PhaseLocked
	}
	return phase
}

// Standing is where a connection's cooldown stands at now under the policy: without cooling what
// was set before, or by a replica that has the old setting, keeps nothing away either. Expired
// credentials do, as Fail has them; refused requests are only counted.
func (p ConnectionPolicy) Standing(c Cooldown, now time.Time) Standing {
	s := c.Standing(now)
	if !p.NoCooldown || s.Phase.Terminal() || s.Reason == models.ReasonExpired {
		return s
	}
	return Standing{Phase: models.PhaseReady}
}
