package relay_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// health keeps out what it is told to and what failed, and counts every pass's endings.
type health struct {
	mu       sync.Mutex
	snapshot *catalog.Snapshot
	out      map[models.Target]routing.Exclusion
	gated    map[models.Target]routing.Exclusion // heeded by requests to combos only
	passes   []*pass
}

type pass struct {
	h      *health
	conn   *catalog.ConnectionView
	target models.Target
	ends   []string
	last   failure.Verdict
	first  []time.Duration
	heard  []http.Header
	tokens int64
}

func (h *health) Snapshot() *catalog.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.snapshot
}

func (h *health) replace(snapshot *catalog.Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snapshot = snapshot
}

func (h *health) Check(conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (*routing.Exclusion, routing.Rank) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, target := range []models.Target{{Connection: conn.ID, Model: model}, {Connection: conn.ID}} {
		out, found := h.out[target]
		if !found && combo {
			out, found = h.gated[target]
		}
		if found && (!out.Reason.Timer() || now.Before(out.Until)) {
			return &out, routing.RankFull
		}
	}
	return nil, routing.RankFull
}

func (h *health) Admit(_ context.Context, conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (relay.Pass, *routing.Exclusion) {
	if out, _ := h.Check(conn, model, combo, now); out != nil {
		return nil, out
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &pass{h: h, conn: h.snapshot.Connections[conn.ID], target: models.Target{Connection: conn.ID, Model: model}}
	h.passes = append(h.passes, p)
	return p, nil
}

func (p *pass) end(how string) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.ends = append(p.ends, how)
}

func (p *pass) Connection() *catalog.ConnectionView { return p.conn }

func (p *pass) FirstContent(after time.Duration, _ time.Time) {
	p.learn(func() { p.first = append(p.first, after) })
}
func (p *pass) Heard(h http.Header, _ time.Time) { p.learn(func() { p.heard = append(p.heard, h) }) }
func (p *pass) Used(tokens int64, _ time.Time)   { p.learn(func() { p.tokens += tokens }) }

func (p *pass) learn(what func()) {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	what()
}

func (p *pass) Succeeded(time.Time) { p.end("succeeded") }
func (p *pass) Abandoned(time.Time) { p.end("abandoned") }
func (p *pass) Failed(v failure.Verdict, now time.Time) {
	p.end("failed")
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	p.last = v
	wait := max(v.Hint, v.Fixed, 3*time.Second)
	switch v.Scope {
	case models.ScopeConnection:
		p.h.out[models.Target{Connection: p.target.Connection}] = *routing.Timed(models.ReasonConnCooldown, v.Reason, now.Add(wait))
	case models.ScopeModel:
		p.h.out[p.target] = *routing.Timed(models.ReasonModelCooldown, v.Reason, now.Add(wait))
	}
}

func (h *health) requireSettled(t *testing.T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, p := range h.passes {
		require.Len(t, p.ends, 1, "pass %d on %v", i, p.target)
	}
}

// endings are how the attempts on a connection ended.
func (h *health) endings(connection models.ConnectionID) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, p := range h.passes {
		if p.target.Connection == connection {
			all = append(all, p.ends...)
		}
	}
	return all
}

func (h *health) verdict(t *testing.T, connection models.ConnectionID) failure.Verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.passes) - 1; i >= 0; i-- {
		if h.passes[i].target.Connection == connection {
			return h.passes[i].last
		}
	}
	require.Fail(t, "no attempt", "on %s", connection)
	return failure.Verdict{}
}

func newHealth() *health {
	s := &catalog.Snapshot{
		Providers: map[models.ProviderID]*catalog.ProviderView{}, Connections: map[models.ConnectionID]*catalog.ConnectionView{},
		Models: map[models.ModelRef]*catalog.ModelView{}, Combos: map[string]*catalog.ComboView{},
		Routes: map[string]*catalog.Route{}, Keys: map[[32]byte]*catalog.KeyView{},
	}
	provider := func(id models.ProviderID, model string, connections ...models.ConnectionID) catalog.Leg {
		view := &catalog.ProviderView{ID: id, Class: models.ClassAPIKey, Dialect: "openai", BaseURL: "http://" + string(id) + ".test/v1", Timeouts: limits}
		s.Providers[id] = view
		for i, c := range connections {
			conn := &catalog.ConnectionView{ID: c, Provider: view, Priority: i, APIKey: catalog.NewSecret("sk-" + string(c))}
			s.Connections[c] = conn
			view.Connections = append(view.Connections, conn)
		}
		m := &catalog.ModelView{Ref: models.ModelRef{Provider: id, Model: model}, CreatedAt: time.Unix(1_700_000_000, 0)}
		s.Models[m.Ref] = m
		leg := catalog.Leg{Model: m, Connections: view.Connections}
		route := &catalog.Route{Name: m.Ref.String(), Legs: []catalog.Leg{leg}}
		s.Routes[m.Ref.String()], s.Routes[model] = route, route
		s.Names = append(s.Names, m.Ref.String())
		return leg
	}
	p := provider("p", "m", "c1", "c2", "c3")
	q := provider("q", "n", "d1")
	provider("lonely", "x")
	combo := func(name string, retries int, legs ...catalog.Leg) {
		view := &catalog.ComboView{Name: name, Strategy: "priority"}
		view.Route = &catalog.Route{Name: name, Combo: view, Legs: slices.Clone(legs)}
		for i := range view.Route.Legs {
			view.Route.Legs[i].Policy.Retries = retries
		}
		s.Combos[name], s.Routes[name] = view, view.Route
		s.Names = append(s.Names, name)
	}
	first := catalog.Leg{Model: p.Model, Connections: p.Connections[:1]}
	combo("best", 0, first, q)
	combo("stubborn", 1, first, q)
	combo("empty", 0)
	s.Keys[hashKey(clientKey)] = &catalog.KeyView{ID: "k1", Name: "test", Scopes: map[string]bool{"inference": true}}
	return &health{snapshot: s, out: map[models.Target]routing.Exclusion{}, gated: map[models.Target]routing.Exclusion{}}
}
