package live

import (
	"cmp"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

const (
	// maxWindows bounds the quotas that are remembered of one connection, or of a model on it.
	maxWindows = 16
	// unendedQuota is how long a quota is believed that was told without its length or its end:
	// such are limits per minute.
	unendedQuota = time.Minute
	// recountEvery is how old the quotas of an entered plan may be that strategies go by.
	recountEvery = time.Second
)

// quota is what is known of the quotas of a connection, or of one model on it where its provider
// limits by model. What answers declare goes before what is counted here.
type quota struct {
	view atomic.Pointer[quotaView] // nil = nothing is known

	mu    sync.Mutex
	era   int64 // of the account that the windows are of
	heard []quotaWindow
}

// quotaWindow is a window and until when it is believed.
type quotaWindow struct {
	routing.QuotaWindow
	until time.Time
}

// quotaView is what readers see without a lock. Its windows are never changed.
type quotaView struct {
	era     int64
	made    time.Time
	windows []routing.QuotaWindow // the declared ones by their ends, then the counted ones
	ends    []time.Time           // of the declared ones
}

// Heard takes in what an answer's headers say of limits. An attempt of an older era speaks of
// another account. It allocates only where there is such a header.
func (p *pass) Heard(h http.Header, now time.Time) {
	limits := failure.Limits(h, now)
	if len(limits) == 0 || p.era != p.connection.era.Load() {
		return
	}
	windows := windowsOf(limits, now)
	if len(windows) == 0 {
		return
	}
	q := &p.connection.quota
	if p.view.PerModelQuota {
		q = &p.live.track(p.connection, p.model.Model, now).quota
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hear(windows, p.era, now)
	q.publish(p.connection.counted(p.view.Plan, now), now)
}

// hear puts what is declared now in the place of what was declared before under the same name.
// Callers hold the mutex.
func (q *quota) hear(windows []quotaWindow, era int64, now time.Time) {
	if q.era != era {
		q.era, q.heard = era, nil
	}
	q.heard = slices.DeleteFunc(q.heard, func(old quotaWindow) bool {
		return !now.Before(old.until) || named(windows, old.Name)
	})
	q.heard = append(q.heard, windows...)
	slices.SortFunc(q.heard, func(a, b quotaWindow) int {
		return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.Name, b.Name))
	})
	if spare := len(q.heard) - maxWindows; spare > 0 {
		q.heard = slices.Delete(q.heard, 0, spare) // those that end soonest
	}
}

func named(windows []quotaWindow, name string) bool {
	return slices.ContainsFunc(windows, func(w quotaWindow) bool { return w.Name == name })
}

// publish makes what readers see of what was declared and of what was counted. Callers hold the
// mutex.
func (q *quota) publish(counted []routing.QuotaWindow, now time.Time) *quotaView {
	view := &quotaView{era: q.era, made: now}
	for _, w := range q.heard {
		if now.Before(w.until) {
			view.windows = append(view.windows, w.QuotaWindow)
			view.ends = append(view.ends, w.until)
		}
	}
	for _, w := range counted {
		if !named(q.heard, w.Name) {
			view.windows = append(view.windows, w)
		}
	}
	q.view.Store(view)
	return view
}

// windowsOf are the limits of which it is known how much is left. Of two under one name the one
// with less left counts.
func windowsOf(limits []failure.Limit, now time.Time) []quotaWindow {
	windows := make([]quotaWindow, 0, len(limits))
	for _, limit := range limits {
		if limit.Left < 0 {
			continue
		}
		w := quotaWindow{
			QuotaWindow: routing.QuotaWindow{Name: nameOf(&limit), Length: limit.Length, Remaining: limit.Left, Reset: limit.Reset},
			until:       limit.Reset,
		}
		switch {
		case !limit.Reset.IsZero():
		case limit.Length > 0:
			w.until = now.Add(limit.Length)
		default:
			w.until = now.Add(unendedQuota)
		}
		at := slices.IndexFunc(windows, func(o quotaWindow) bool { return o.Name == w.Name })
		switch {
		case at < 0:
			windows = append(windows, w)
		case w.Remaining < windows[at].Remaining:
			windows[at] = w
		}
	}
	return windows
}

const day = 24 * time.Hour

// nameOf is the name that strategies know a quota by: of an account's usual windows that of
// their length, else what the provider calls it.
func nameOf(l *failure.Limit) string {
	switch {
	case l.Length == 5*time.Hour:
		return "session"
	case l.Length == 7*day:
		return "weekly"
	case l.Length >= 28*day && l.Length <= 31*day:
		return "monthly"
	case l.Name == "":
		return "account"
	default:
		return l.Name
	}
}

// quotas are the windows that a candidate has, and whether one of them is used up. t may be nil.
func (c *connection) quotas(t *track, plan *catalog.QuotaPlan, now time.Time) (windows []routing.QuotaWindow, exhausted bool) {
	q := &c.quota
	if t != nil && t.quota.view.Load() != nil {
		q = &t.quota
	}
	view := q.view.Load()
	if plan != nil && len(plan.Windows) > 0 && (view == nil || now.Sub(view.made).Abs() >= recountEvery) {
		view = c.recount(q, view, plan, now)
	}
	if view == nil || view.era != c.era.Load() && len(view.ends) > 0 {
		return nil, false
	}
	over := 0
	for over < len(view.ends) && !now.Before(view.ends[over]) {
		over++
	}
	windows = view.windows[over:]
	for i := range windows {
		exhausted = exhausted || windows[i].Remaining <= 0
	}
	return windows, exhausted
}

// recount brings the quotas of a plan up to date. Whoever finds somebody else at it goes by what
// there is.
func (c *connection) recount(q *quota, before *quotaView, plan *catalog.QuotaPlan, now time.Time) *quotaView {
	if !q.mu.TryLock() {
		return before
	}
	defer q.mu.Unlock()
	if era := c.era.Load(); q.era != era {
		q.era, q.heard = era, nil
	}
	return q.publish(c.counted(plan, now), now)
}
