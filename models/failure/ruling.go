package failure

import (
	"net/http"
	"time"

	"omniroute/models"
)

// ruling is what a rule of the provider or of the operator says about a failure.
type ruling struct {
	id       string
	reason   models.Reason
	scope    models.Scope
	lock     models.LockScope
	cooldown time.Duration // 0 = the upstream's hint, else backoff
}

// ruled is the verdict of a ruling. A cooldown that it names goes before whatever the answer
// asks for. It is the upstream that failed, so somebody else may do better, whatever the status.
func (f *facts) ruled(r ruling) Verdict {
	v := Verdict{
		Reason: r.reason, Blame: models.BlameUpstream, Scope: r.scope, Failover: true,
		Fixed: r.cooldown, Rule: r.id, Code: models.CodeUpstreamFailed,
	}
	if r.cooldown == 0 {
		v.Hint = f.hint
	}
	if v.Scope == models.ScopeModel {
		v.Lock = r.lock
		v.Trips = r.reason == models.ReasonServerError && trips(f.status)
	}
	say := ""
	switch r.reason {
	case models.ReasonQuotaExhausted:
		v.Code, say = models.CodeUpstreamRateLimit, sayQuota
	case models.ReasonRateLimited:
		v.Code = models.CodeUpstreamRateLimit
	case models.ReasonAuth:
		v.Code, say = inactive, sayCredentials
		if v.Scope == models.ScopeModel {
			v.Code, say = models.CodeModelNotAllowed, ""
		}
	case models.ReasonModelCapacity:
		v.Status = http.StatusServiceUnavailable
	case models.ReasonServerError:
		v.Status = shownStatus(f.status)
	}
	if v.Status == 0 {
		v.Status = v.Code.Status()
	}
	v.Message = f.say(say)
	return v
}

// byReason is the smallest thing that a reason alone can be about.
func (f *facts) byReason(id string, reason models.Reason) ruling {
	r := ruling{id: id, reason: reason, scope: models.ScopeModel}
	switch {
	case !limits(reason) && reason != models.ReasonAuth:
	case f.perModel():
		r.lock = models.LockFamily
	default:
		r.scope = models.ScopeConnection
	}
	return r
}

// limits reports that a reason is about what an account, or an address, may use.
func limits(r models.Reason) bool {
	return r == models.ReasonRateLimited || r == models.ReasonQuotaExhausted
}

// trips reports that the status counts against the provider's breaker (guide section 1).
func trips(status int) bool {
	switch status {
	case 408, 500, 502, 503, 504:
		return true
	default:
		return false
	}
}

// shownStatus is how a client sees a server error.
func shownStatus(status int) int {
	switch status {
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return http.StatusGatewayTimeout
	case http.StatusServiceUnavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}
