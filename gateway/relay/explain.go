package relay

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// Headers that describe how a request was served. They are written as net/http spells them,
// so that setting them costs no lookup.
const (
	HeaderRequestID  = "X-Request-Id"
	headerProvider   = "X-Omniroute-Provider"
	headerModel      = "X-Omniroute-Model"
	headerConnection = "X-Omniroute-Connection"
	headerAttempts   = "X-Omniroute-Attempts"
	headerTrace      = "X-Omniroute-Combo-Trace"
)

// Bounds of what an answer explains.
const (
	maxListed   = 64          // targets in the diagnostics
	maxNamed    = 5           // targets in the message
	maxTrace    = 1024        // bytes of the trace header
	slotRetry   = time.Second // a target is in, or will be when any request ends
	unknownWait = time.Second // a timer whose end nobody knows
)

// Diagnostics is why a request was not served, beside the error's envelope.
type Diagnostics struct {
	PoolSize       int         `json:"poolSize"`
	Attempted      int         `json:"attempted"`
	Excluded       []Excluded  `json:"excluded"`
	AttemptOrder   []Attempted `json:"attemptOrder"`
	TerminalReason string      `json:"terminalReason"`
	Recovery       Recovery    `json:"recovery"`
}

// Excluded is a target that was not tried, and why.
type Excluded struct {
	Provider   models.ProviderID   `json:"provider"`
	Model      string              `json:"model"`
	Connection models.ConnectionID `json:"connection"`
	Reason     models.Reason       `json:"reason"`
	Detail     string              `json:"detail,omitempty"`
	Seconds    int                 `json:"retry_after_seconds,omitempty"`
}

// Attempted is a target that was tried and failed, and how.
type Attempted struct {
	Provider   models.ProviderID   `json:"provider"`
	Model      string              `json:"model"`
	Connection models.ConnectionID `json:"connection"`
	Reason     models.Reason       `json:"reason"`
	// Rule is the rule of the provider or of the operator that decided, if one did.
	Rule string `json:"rule,omitempty"`
	// RestatedFrom is the status that the upstream sent where a rule says what it means instead.
	RestatedFrom int `json:"restated_from,omitempty"`
}

// Recovery is what the caller can do about it.
type Recovery struct {
	Action   string `json:"action"` // wait, retry, switch-model, fix-request or fix-accounts
	NextStep string `json:"next_step"`
	Seconds  int    `json:"retry_after_seconds,omitempty"`
}

// unserved answers a request for which no target was left.
func (r *run) unserved() *models.Error {
	if len(r.trials) == r.begun {
		return r.nothingTried()
	}
	return r.allFailed()
}

// nothingTried answers a request none of whose targets could be tried.
func (r *run) nothingTried() *models.Error {
	now := time.Now()
	timers, slots := 0, 0
	for i := range r.pool {
		switch reason := r.pool[i].Exclusion.Reason; {
		case reason.Timer():
			timers++
		case reason == models.ReasonConcurrency:
			slots++
		}
	}
	r.result.reason = r.pool[0].Exclusion.Reason
	var answer *models.Error
	switch {
	case slots > 0:
		answer = models.Errorf(models.CodeQueueFull, "Every connection that could serve %q is at its limit of concurrent requests.", r.Chat.Model)
		answer.RetryAfter = slotRetry
	case timers > 0:
		answer = models.Errorf(models.CodeAllCoolingDown, "No target of %q can be called now: %s.", r.Chat.Model, r.listTimers(now))
		answer.RetryAfter = r.earliest(now, unknownWait)
	default:
		answer = models.Errorf(models.CodeAllInactive, "No account that could serve %q is usable; an operator has to look at them.", r.Chat.Model)
	}
	return r.explained(answer, now)
}

// noTargets answers a request for a name behind which there is nothing to call.
func (r *run) noTargets() *models.Error {
	r.result.reason = models.ReasonUnavailable
	return r.explained(models.Errorf(models.CodeNoTargets, "The model %q has no connection that could serve it.", r.Chat.Model).WithParam("model"), time.Now())
}

// finalFailure answers with the failure that no other target would have avoided.
func (r *run) finalFailure() *models.Error {
	return r.failure(&r.trials[len(r.trials)-1].verdict)
}

// allFailed answers with the most useful of the failures: what the client can change, else a
// rate limit, which says when to come back, else the last one.
func (r *run) allFailed() *models.Error {
	best := &r.trials[len(r.trials)-1].verdict
	for i := len(r.trials) - 1; i >= 0; i-- {
		if v := &r.trials[i].verdict; usefulness(v) > usefulness(best) {
			best = v
		}
	}
	return r.failure(best)
}

func usefulness(v *failure.Verdict) int {
	switch {
	case v.Blame == models.BlameClient:
		return 2
	case v.Code == models.CodeUpstreamRateLimit:
		return 1
	default:
		return 0
	}
}

func (r *run) failure(v *failure.Verdict) *models.Error {
	now := time.Now()
	answer := errorOf(v)
	switch answer.Status() {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r.refreshExclusions(now)
		answer.RetryAfter = max(r.earliest(now, v.Hint), v.ClientRetryAfter)
	}
	r.result.reason = v.Reason
	diagnostics := r.diagnose(answer, now)
	if v.TooLong {
		diagnostics.Recovery = shorten
	}
	return r.with(answer, diagnostics)
}

// errorOf is a verdict as the client sees it.
func errorOf(v *failure.Verdict) *models.Error {
	return &models.Error{
		Code: v.Code, Message: v.Message, HTTPStatus: v.Status,
		UpstreamCode: v.Names.Code, Param: v.Names.Param, UpstreamType: v.Names.Type,
	}
}

// clientGone is for the books only: nobody reads the answer.
func (r *run) clientGone() *models.Error {
	r.result.reason = models.ReasonClientGone
	return models.Errorf(models.CodeClientClosed, "The client closed the request.")
}

func (r *run) shuttingDown() *models.Error {
	r.result.reason = models.ReasonUnavailable
	answer := models.Errorf(models.CodeShuttingDown, "The gateway is shutting down; try again.")
	answer.RetryAfter = time.Second
	return answer
}

// refreshExclusions looks again at what is out, now that this request has learned something.
func (r *run) refreshExclusions(now time.Time) {
	for i := range r.pool {
		c := &r.pool[i]
		if conn := r.snapshot.Connections[c.Target.Connection]; !conn.Disabled {
			c.Exclusion, c.Rank = r.health.Check(conn, c.Target.Model, r.isCombo(), now)
		}
	}
}

// earliest is how long until it is worth asking again: until the first target comes back, and
// only a moment when one that this request has not tried is in, or merely has no slot free.
// Where no timer tells, it is otherwise.
func (r *run) earliest(now time.Time, otherwise time.Duration) time.Duration {
	var first time.Duration
	timers := false
	for i := range r.pool {
		out := r.pool[i].Exclusion
		if (out == nil || out.Reason == models.ReasonConcurrency) && !r.wasTried(r.pool[i].Target) {
			return slotRetry
		}
		if out == nil || !out.Reason.Timer() {
			continue
		}
		timers = true
		if remaining := out.Until.Sub(now); remaining > 0 && (first == 0 || remaining < first) {
			first = remaining
		}
	}
	if timers && first > 0 {
		return first
	}
	return otherwise
}

// explained completes an answer with diagnostics and headers.
func (r *run) explained(answer *models.Error, now time.Time) *models.Error {
	return r.with(answer, r.diagnose(answer, now))
}

func (r *run) with(answer *models.Error, diagnostics *Diagnostics) *models.Error {
	answer.Details = diagnostics
	r.describe(r.w.Header(), nil)
	return answer
}

func (r *run) diagnose(answer *models.Error, now time.Time) *Diagnostics {
	d := &Diagnostics{
		PoolSize: len(r.pool), Attempted: len(r.trials), TerminalReason: string(answer.Code),
		Excluded: []Excluded{}, AttemptOrder: []Attempted{}, Recovery: recovery(answer),
	}
	for i := range r.pool {
		c := &r.pool[i]
		if c.Exclusion == nil || r.wasTried(c.Target) || len(d.Excluded) == maxListed {
			continue
		}
		d.Excluded = append(d.Excluded, Excluded{
			Provider: c.Target.Model.Provider, Model: c.Target.Model.Model, Connection: c.Target.Connection,
			Reason: c.Exclusion.Reason, Detail: c.Exclusion.Detail, Seconds: secondsLeft(c.Exclusion, now),
		})
	}
	for i := range r.trials[:min(len(r.trials), maxListed)] {
		t := &r.trials[i]
		d.AttemptOrder = append(d.AttemptOrder, Attempted{
			Provider: t.target.Model.Provider, Model: t.target.Model.Model, Connection: t.target.Connection,
			Reason: t.verdict.Reason, Rule: t.verdict.Rule, RestatedFrom: t.verdict.RestatedFrom,
		})
	}
	return d
}

func (r *run) wasTried(target models.Target) bool {
	for i := range r.trials {
		if r.trials[i].target == target {
			return true
		}
	}
	return false
}

// secondsLeft rounds up, so that nobody comes back too early.
func secondsLeft(out *routing.Exclusion, now time.Time) int {
	if !out.Reason.Timer() {
		return 0
	}
	return max(1, int((out.Until.Sub(now)+time.Second-1)/time.Second))
}

// shorten is for what one model is too small for: another may not be.
var shorten = Recovery{Action: "fix-request", NextStep: "Shorten the request or call a model with a larger context window."}

func recovery(answer *models.Error) Recovery {
	seconds := answer.RetryAfterSeconds()
	switch {
	case seconds > 0:
		return Recovery{"wait", fmt.Sprintf("Try again in %d s.", seconds), seconds}
	case answer.Code == models.CodeAllInactive:
		return Recovery{Action: "fix-accounts", NextStep: "An operator has to renew the accounts of this model or reset them."}
	case answer.Code == models.CodeNoTargets, answer.Code == models.CodeModelNotFound, answer.Code == models.CodeModelNotAllowed:
		return Recovery{Action: "switch-model", NextStep: "Use another model or combo."}
	case answer.Status() < http.StatusInternalServerError:
		return Recovery{Action: "fix-request", NextStep: "Change the request; the same one will be refused again."}
	default:
		return Recovery{Action: "retry", NextStep: "Try again."}
	}
}

func (r *run) listTimers(now time.Time) string {
	var parts []string
	more := 0
	for i := range r.pool {
		c := &r.pool[i]
		if !c.Exclusion.Reason.Timer() {
			continue
		}
		if len(parts) == maxNamed {
			more++
			continue
		}
		parts = append(parts, fmt.Sprintf("%s %s %d s", c.Name, c.Exclusion.Reason, secondsLeft(c.Exclusion, now)))
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// describe sets the headers that say how the request went; serving is nil when nobody served.
func (r *run) describe(header http.Header, serving *routing.Candidate) {
	attempts := len(r.trials)
	values := new([4]string) // one allocation for all of them
	if serving != nil {
		if attempts == 0 || !r.trials[attempts-1].served {
			attempts++ // the serving attempt joins the list when it ends
		}
		values[1], values[2], values[3] = string(serving.Target.Model.Provider), serving.Target.Model.Model, serving.Name
		header[headerProvider] = values[1:2:2]
		header[headerModel] = values[2:3:3]
		header[headerConnection] = values[3:4:4]
	}
	values[0] = strconv.Itoa(attempts)
	header[headerAttempts] = values[0:1:1]
	if r.route != nil && r.route.Combo != nil {
		header[headerTrace] = []string{r.trace(serving)}
	}
}

// trace lists the attempts in order, and before them what was passed over, with the rule that
// decided where one did: "openai-1:connection_cooldown, openai-2:quota_exhausted by
// providerErrorRules[0], openai-3:ok".
func (r *run) trace(serving *routing.Candidate) string {
	var b strings.Builder
	add := func(name string, outcome string) {
		if b.Len() > maxTrace {
			return
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name)
		b.WriteByte(':')
		b.WriteString(outcome)
	}
	for i := range r.pool {
		if c := &r.pool[i]; c.Exclusion != nil && !r.wasTried(c.Target) {
			add(c.Name, string(c.Exclusion.Reason))
		}
	}
	for i := range r.trials {
		t := &r.trials[i]
		switch {
		case t.served:
			add(string(t.target.Connection), "ok")
		case t.renewed:
			add(string(t.target.Connection), "renewed")
		case t.verdict.Rule != "":
			add(string(t.target.Connection), string(t.verdict.Reason)+" by "+t.verdict.Rule)
		case t.verdict.Reason != "":
			add(string(t.target.Connection), string(t.verdict.Reason))
		default:
			add(string(t.target.Connection), "abandoned")
		}
	}
	if serving != nil && (len(r.trials) == 0 || !r.trials[len(r.trials)-1].served) {
		add(serving.Name, "ok")
	}
	return b.String()
}
