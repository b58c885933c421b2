package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// Layer is one kind of state that keeps targets out (guide sections 1 to 3).
type Layer string

// Layers, from the widest to the narrowest. The first two are one state of one workflow: a
// reset of either begins a new era of both. A terminal state is left by a new era, too, which
// ends cooldown and lockouts with it.
const (
	LayerBreaker          Layer = "breaker"
	LayerProviderCooldown Layer = "provider_cooldown"
	LayerCooldown         Layer = "cooldown"
	LayerTerminal         Layer = "terminal"
	LayerLockout          Layer = "lockout"
)

var layerNames = []string{
	string(LayerBreaker), string(LayerProviderCooldown), string(LayerCooldown), string(LayerTerminal), string(LayerLockout),
}

// selection is what to clear. Empty filters select everything.
type selection struct {
	provider   models.ProviderID
	connection models.ConnectionID
	model      string // its id at the provider, with or without the provider's name before it
	layers     []Layer
}

func (sel selection) has(layer Layer) bool { return slices.Contains(sel.layers, layer) }

// cleared is what a clearing did.
type cleared struct {
	connections     []models.ConnectionID
	providers       []models.ProviderID
	lockouts        []lockoutName
	skippedTerminal int // left alone, because the selection has no terminal states
	unchanged       int // had nothing to clear
}

// lockoutName is a lockout that was ended.
type lockoutName struct {
	Connection models.ConnectionID `json:"connection"`
	Scope      models.LockScope    `json:"scope"`
	Model      string              `json:"model,omitempty"`
	Family     string              `json:"family,omitempty"`
}

func nameOf(connection models.ConnectionID, key resilience.LockKey) lockoutName {
	if key.Scope == models.LockFamily {
		return lockoutName{Connection: connection, Scope: key.Scope, Family: key.Name}
	}
	return lockoutName{Connection: connection, Scope: key.Scope, Model: key.Name}
}

// step is one call of a workflow, with what the audit log says of it.
type step struct {
	entry catalog.Audit
	run   func(ctx context.Context) error
	note  func(*cleared)
}

// clear does what a selection asks for through the workflows that own the state, so that every
// replica follows and a restart does not bring the old state back. Without Temporal it is
// refused. What this replica sees nothing of is left alone, unless it is named. After a failure
// nothing more is begun; what was begun ends, since its workflow may have done it already, and
// is audited. The error then says how much was done.
func (s *Service) clear(ctx context.Context, actor string, sel selection) (cleared, error) {
	if err := s.known(sel); err != nil {
		return cleared{}, err
	}
	done, steps := s.plan(sel, s.o.Live.Report(time.Now()))
	var mu sync.Mutex
	var trail []catalog.Audit
	var failed atomic.Bool
	var group errgroup.Group
	group.SetLimit(resetWidth)
	for _, st := range steps {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			err := st.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, errTerminal) {
				done.skippedTerminal++
				return nil
			}
			if err != nil {
				failed.Store(true)
				return err
			}
			st.note(&done)
			st.entry.Actor = actor
			trail = append(trail, st.entry)
			return nil
		})
	}
	err := group.Wait()
	s.audit(ctx, trail)
	slices.Sort(done.connections)
	slices.Sort(done.providers)
	return done, partly(resetError(err), len(trail), len(steps))
}

// partly adds to an error how much was done before it.
func partly(err error, done, all int) error {
	var coded *models.Error
	if done > 0 && errors.As(err, &coded) {
		coded.Message += fmt.Sprintf(" %d of %d were done before.", done, all)
	}
	return err
}

// known refuses names that the catalog does not have.
func (s *Service) known(sel selection) error {
	snapshot := s.o.Live.Snapshot()
	if sel.provider != "" && snapshot.Providers[sel.provider] == nil {
		return models.Errorf(models.CodeNotFound, "There is no provider %q.", sel.provider).WithParam("provider")
	}
	if sel.connection == "" {
		return nil
	}
	connection := snapshot.Connections[sel.connection]
	switch {
	case connection == nil:
		return models.Errorf(models.CodeNotFound, "There is no connection %q.", sel.connection).WithParam("connection")
	case sel.provider != "" && connection.Provider.ID != sel.provider:
		return models.Errorf(models.CodeInvalidRequest, "Connection %q is one of provider %q.", sel.connection, connection.Provider.ID).WithParam("provider")
	}
	return nil
}

// plan works out the steps of a selection.
func (s *Service) plan(sel selection, report live.Report) (cleared, []step) {
	var done cleared
	var steps []step
	if sel.has(LayerBreaker) || sel.has(LayerProviderCooldown) {
		for _, p := range report.Providers {
			if sel.provider == p.Provider || sel.provider == "" && sel.wants(p) {
				steps = append(steps, s.resetProvider(p.Provider))
			}
		}
	}
	if !sel.has(LayerCooldown) && !sel.has(LayerTerminal) && !sel.has(LayerLockout) {
		return done, steps
	}
	lockouts := lockoutsByConnection(report.Lockouts)
	for _, c := range report.Connections {
		if sel.provider != "" && sel.provider != c.Provider || sel.connection != "" && sel.connection != c.Connection {
			continue
		}
		own := s.clearConnection(sel, c, s.selected(sel, lockouts[c.Connection]))
		switch {
		case len(own) > 0:
			steps = append(steps, own...)
		case c.Phase.Terminal():
			done.skippedTerminal++
		default:
			done.unchanged++
		}
	}
	return done, steps
}

// wants reports whether a provider has something of the layers.
func (sel selection) wants(p live.ProviderReport) bool {
	return sel.has(LayerBreaker) && (p.Breaker != resilience.BreakerClosed || p.Failures > 0) ||
		sel.has(LayerProviderCooldown) && (p.Hold != nil || p.Gate != nil)
}

// clearConnection works out the steps for one connection and the lockouts seen on it.
func (s *Service) clearConnection(sel selection, c live.ConnectionReport, seen []resilience.LockKey) []step {
	named, terminal := sel.connection != "", c.Phase.Terminal()
	cooling := !terminal && (c.Phase == models.PhaseCooling || c.Level > 0 || c.Rejections > 0 || c.Expiries > 0)
	everything := sel.has(LayerCooldown) && sel.has(LayerTerminal) && sel.has(LayerLockout)
	switch {
	case everything && (named || terminal || cooling || len(seen) > 0), sel.has(LayerTerminal) && terminal:
		return []step{s.resetConnection(c.Connection)}
	case terminal:
		return nil
	}
	var steps []step
	if sel.has(LayerCooldown) && (named || cooling) {
		steps = append(steps, s.clearCooldown(c.Connection))
	}
	if named && sel.model != "" {
		steps = append(steps, s.enableModels(c.Connection, s.everyKey(sel, c.Provider), seen))
	} else if sel.has(LayerLockout) && len(seen) > 0 {
		steps = append(steps, s.enableModels(c.Connection, seen, seen))
	}
	return steps
}

// selected are the lockouts on a connection that a selection means, of those that this replica
// sees.
func (s *Service) selected(sel selection, lockouts []live.LockoutReport) []resilience.LockKey {
	var keys []resilience.LockKey
	for _, l := range lockouts {
		if sel.model == "" || s.means(sel.model, l) {
			keys = append(keys, resilience.LockKey{Scope: l.Scope, Name: l.Model})
		}
	}
	return keys
}

// means reports whether a name is the lockout's own, or that of a model which it keeps out.
func (s *Service) means(name string, l live.LockoutReport) bool {
	model, family := s.modelOf(name, l.Provider)
	return l.Model == name || l.Model == model || l.Scope == models.LockFamily && l.Model == family
}

// modelOf is the id at a provider of a model that may have the provider's name before it, and
// the quota family of the model, if it has one.
func (s *Service) modelOf(name string, provider models.ProviderID) (model, family string) {
	model = strings.TrimPrefix(name, string(provider)+"/")
	if view := s.o.Live.Snapshot().Models[models.ModelRef{Provider: provider, Model: model}]; view != nil {
		family = view.Family
	}
	return model, family
}

// everyKey is every lockout that a named model can have on a named connection. They are all
// ended, because another replica may know one that this one does not.
func (s *Service) everyKey(sel selection, provider models.ProviderID) []resilience.LockKey {
	model, family := s.modelOf(sel.model, provider)
	return resilience.KeysOf(model, cmp.Or(family, model)) // the name may be a family's
}

func lockoutsByConnection(lockouts []live.LockoutReport) map[models.ConnectionID][]live.LockoutReport {
	by := map[models.ConnectionID][]live.LockoutReport{}
	for _, l := range lockouts {
		by[l.Connection] = append(by[l.Connection], l)
	}
	return by
}

func (s *Service) resetProvider(id models.ProviderID) step {
	return step{
		catalog.Audit{Action: auditReset, Kind: catalog.KindProvider, Entity: string(id), Detail: "circuit breaker and cooldowns of the provider reset"},
		func(ctx context.Context) error { return s.o.Durable.ResetProvider(ctx, id) },
		func(done *cleared) { done.providers = append(done.providers, id) },
	}
}

func (s *Service) resetConnection(id models.ConnectionID) step {
	return step{
		catalog.Audit{Action: auditReset, Kind: catalog.KindConnection, Entity: string(id), Detail: "cooldown, terminal state and model lockouts reset"},
		func(ctx context.Context) error { return s.o.Durable.Reset(ctx, id) },
		func(done *cleared) { done.connections = append(done.connections, id) },
	}
}

func (s *Service) clearCooldown(id models.ConnectionID) step {
	return step{
		catalog.Audit{Action: auditClearCooldown, Kind: catalog.KindConnection, Entity: string(id), Detail: "cooldown cleared"},
		func(ctx context.Context) error {
			err := s.o.Durable.ClearCooldown(ctx, id)
			var coded *models.Error
			if errors.As(err, &coded) && coded.Code == models.CodeInvalidRequest {
				return errTerminal
			}
			return err
		},
		func(done *cleared) { done.connections = append(done.connections, id) },
	}
}

// errTerminal says that a cooldown has become a terminal state in the meantime: the one thing
// about it that its workflow refuses.
var errTerminal = errors.New("the state is terminal")

func (s *Service) enableModels(id models.ConnectionID, keys, seen []resilience.LockKey) step {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = string(key.Scope) + " " + key.Name
	}
	return step{
		catalog.Audit{Action: auditEnableModels, Kind: catalog.KindConnection, Entity: string(id), Detail: "model lockouts ended: " + strings.Join(names, ", ")},
		func(ctx context.Context) error { return s.o.Durable.EnableModels(ctx, id, keys) },
		func(done *cleared) {
			for _, key := range seen {
				done.lockouts = append(done.lockouts, nameOf(id, key))
			}
		},
	}
}

// resetError adds when to try again where Temporal is away.
func resetError(err error) error {
	var coded *models.Error
	if errors.As(err, &coded) && coded.Code == models.CodeDurableUnavailable {
		coded.RetryAfter = resetRetry
	}
	return err
}

// resolve works out the layers of a request that names some, all of them, or none.
func resolve(named []Layer, all bool, usual []Layer) ([]Layer, error) {
	for i, layer := range named {
		if !slices.Contains(layerNames, string(layer)) {
			return nil, models.Errorf(models.CodeInvalidRequest, "%q is not a layer; layers are %s.", layer, strings.Join(layerNames, ", ")).
				WithParam(fmt.Sprintf("layers[%d]", i))
		}
	}
	switch {
	case all && len(named) > 0:
		return nil, models.Errorf(models.CodeInvalidRequest, "Send layers or all, not both.").WithParam("layers")
	case len(named) > 0:
		return named, nil
	case all:
		return []Layer{LayerBreaker, LayerProviderCooldown, LayerCooldown, LayerTerminal, LayerLockout}, nil
	default:
		return usual, nil
	}
}
