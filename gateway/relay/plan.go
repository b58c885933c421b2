package relay

import (
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/routing"
)

// longestRetryWait bounds the wait for a target of a combo to come back inside one request,
// which is worth it only for the first steps of a backoff.
const longestRetryWait = 5 * time.Second

// plan finds the route of the model that was asked for, looks at the health of each of its
// targets, and lets the strategy order those that are in.
func (r *run) plan(now time.Time) (routing.Plan, *models.Error) {
	r.snapshot = r.health.Snapshot()
	r.begun, r.spent, r.retrying = len(r.trials), spent{}, false
	r.limits = r.snapshot.Settings.Limits.Effective()
	r.limits.MaxAttempts = max(1, r.limits.MaxAttempts)
	route := r.snapshot.Resolve(r.Chat.Model)
	if route == nil {
		return routing.Plan{}, r.unknownModel()
	}
	if !MayUse(r.Key, r.Chat.Model, route) {
		return routing.Plan{}, r.notAllowed("This API key may not use the model %q.")
	}
	r.route = route
	filtered := r.gather(now)
	if len(r.pool) == 0 {
		if filtered {
			return routing.Plan{}, r.notAllowed("This API key may not use any connection that serves %q.")
		}
		return routing.Plan{}, r.noTargets()
	}
	return r.order(r.pool, now), nil
}

// MayUse reports whether a key's allow-list names the route, by the name that was asked for
// or by the one it stands for.
func MayUse(key *catalog.KeyView, asked string, route *catalog.Route) bool {
	if key == nil || key.Models == nil || key.Models[asked] || key.Models[route.Name] {
		return true
	}
	return route.Combo == nil && len(route.Legs) == 1 && key.Models[route.Legs[0].Model.Ref.String()]
}

// gather lists every target of the route that the key may use, with the exclusion it has
// now, and reports whether the key's allow-list kept any away.
func (r *run) gather(now time.Time) (filtered bool) {
	size := 0
	for leg := range r.route.Legs {
		size += len(r.route.Legs[leg].Connections)
	}
	r.pool = make([]routing.Candidate, 0, size)
	for leg := range r.route.Legs {
		l := &r.route.Legs[leg]
		for _, conn := range l.Connections {
			if r.Key != nil && r.Key.Connections != nil && !r.Key.Connections[conn.ID] {
				filtered = true
				continue
			}
			r.pool = append(r.pool, r.candidate(leg, l, conn, now))
		}
	}
	return filtered
}

func (r *run) candidate(leg int, l *catalog.Leg, conn *catalog.ConnectionView, now time.Time) routing.Candidate {
	c := routing.Candidate{
		Target:   models.Target{Connection: conn.ID, Model: l.Model.Ref},
		Name:     string(conn.ID),
		Leg:      leg,
		Key:      l.Key,
		Priority: conn.Priority,
		Weight:   l.Weight,
	}
	if conn.Disabled {
		c.Exclusion = &routing.Exclusion{Reason: models.ReasonDisabled}
		return c
	}
	c.Exclusion, c.Rank = r.health.Check(conn, l.Model.Ref, r.isCombo(), now)
	return c
}

func (r *run) isCombo() bool { return r.route.Combo != nil }

// order has the route's strategy order candidates.
func (r *run) order(candidates []routing.Candidate, now time.Time) routing.Plan {
	return routing.Order(&routing.Query{Strategy: r.strategy(), Candidates: candidates, Now: now, Rand: r.rand})
}

func (r *run) strategy() string {
	if !r.isCombo() {
		return routing.Priority
	}
	return r.route.Combo.Strategy
}

// retries is how often the targets of the request's combo may be tried again.
func (r *run) retries() int {
	most := 0
	for i := range r.route.Legs {
		most = max(most, r.route.Legs[i].Policy.Retries)
	}
	return most
}

// planRetry plans another walk over targets that failed in a way that may pass, and says how
// long to wait for the first of them. Other targets come before the same one again: a retry
// is planned only when a whole walk has failed.
func (r *run) planRetry(now time.Time) (routing.Plan, time.Duration) {
	var again []routing.Candidate
	wait := longestRetryWait
	for i := range r.pool {
		c := r.pool[i]
		if !r.mayPass(c.Target) || contains(again, c.Target) {
			continue
		}
		out, rank := r.health.Check(r.snapshot.Connections[c.Target.Connection], c.Target.Model, r.isCombo(), now)
		c.Exclusion, c.Rank = nil, rank
		if out == nil {
			wait = 0
		} else {
			remaining := out.Until.Sub(now)
			if !out.Reason.Timer() || remaining > longestRetryWait {
				continue
			}
			wait = min(wait, max(0, remaining))
		}
		again = append(again, c)
	}
	r.retrying = true
	return r.order(again, now), r.spread(wait)
}

func contains(candidates []routing.Candidate, target models.Target) bool {
	for i := range candidates {
		if candidates[i].Target == target {
			return true
		}
	}
	return false
}

// spread lengthens a wait by up to a tenth, so that requests that failed together do not
// come back together.
func (r *run) spread(wait time.Duration) time.Duration {
	if wait <= 0 {
		return 0
	}
	return wait + time.Duration(r.rand()%uint64(wait/10+1)) + time.Millisecond
}

// mayPass reports whether the target was tried and its last failure put out nothing wider
// than the target itself.
func (r *run) mayPass(target models.Target) bool {
	t := r.lastTrial(target)
	if t == nil || !t.verdict.Failover || t.verdict.Terminal != "" {
		return false
	}
	return t.verdict.Scope == models.ScopeNone || t.verdict.Scope == models.ScopeModel && t.verdict.Lock != models.LockFamily
}

func (r *run) unknownModel() *models.Error {
	var allowed map[string]bool
	if r.Key != nil {
		allowed = r.Key.Models
	}
	hint := ""
	if near := r.snapshot.Near(r.Chat.Model, allowed); len(near) > 0 {
		hint = " Did you mean " + strings.Join(near, ", ") + "?"
	}
	r.result.reason = models.ReasonNotFound
	return models.Errorf(models.CodeModelNotFound, "The model %q does not exist.%s", r.Chat.Model, hint).WithParam("model")
}

func (r *run) notAllowed(format string) *models.Error {
	r.result.reason = models.ReasonNotAllowed
	return models.Errorf(models.CodeModelNotAllowed, format, r.Chat.Model).WithParam("model")
}
