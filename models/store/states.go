package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"gorm.io/gorm"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// PublishConnection writes a connection's state where its stamp is newer than the row's and
// returns the row as it then stands: the caller's own, or the newer one that won, for the
// caller to join. Publishing twice, or out of order, is harmless. A connection that has left
// the catalog is accepted too: its row is the tombstone that ends a workflow.
func (s *Store) PublishConnection(ctx context.Context, st catalog.ConnectionState) (stored catalog.ConnectionState, err error) {
	var changed bool
	err = s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var err error
		if changed, err = s.upsertConnection(tx, st); err != nil {
			return err
		}
		if changed {
			if err := s.notify(tx, catalog.ChangedState); err != nil {
				return err
			}
		}
		stored, _, err = s.connectionState(tx, st.Connection)
		return err
	})
	if err == nil && changed {
		s.watchers.tell(catalog.ChangedState)
	}
	return stored, s.fail("publish the connection's state", err)
}

// PublishProvider writes a provider's opening and cooldowns where their stamp is newer, and
// returns the row as it then stands. An opening that changed ends the probe of the one before
// it.
func (s *Store) PublishProvider(ctx context.Context, st catalog.ProviderState) (stored catalog.ProviderState, err error) {
	var changed bool
	err = s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		var err error
		if changed, err = s.upsertProvider(tx, st); err != nil {
			return err
		}
		if changed {
			if err := s.notify(tx, catalog.ChangedState); err != nil {
				return err
			}
		}
		stored, _, err = s.providerState(tx, st.Provider)
		return err
	})
	if err == nil && changed {
		s.watchers.tell(catalog.ChangedState)
	}
	return stored, s.fail("publish the provider's state", err)
}

// LoadConnectionState reads one connection's published state.
func (s *Store) LoadConnectionState(ctx context.Context, id models.ConnectionID) (state catalog.ConnectionState, found bool, err error) {
	state, found, err = s.connectionState(s.db.WithContext(ctx), id)
	return state, found, s.fail("read the connection's state", err)
}

// LoadProviderState reads one provider's published state.
func (s *Store) LoadProviderState(ctx context.Context, id models.ProviderID) (state catalog.ProviderState, found bool, err error) {
	state, found, err = s.providerState(s.db.WithContext(ctx), id)
	return state, found, s.fail("read the provider's state", err)
}

// States reads the published states of what the catalog holds: those updated in the last
// `since` by the database's clock, or with 0 all of them. The reader compares the clocks.
func (s *Store) States(ctx context.Context, since time.Duration) (*catalog.States, error) {
	states := &catalog.States{Complete: since <= 0}
	where, args := "", []any{}
	if since > 0 {
		where, args = " WHERE s.updated_at >= "+s.now+" - ?", []any{since.Milliseconds()}
	}
	err := s.reading(ctx, func(tx *gorm.DB) error {
		var connections []connectionRow
		if err := tx.Raw(s.selectConnections()+" JOIN connections c ON c.id = s.connection_id"+where, args...).Scan(&connections).Error; err != nil {
			return err
		}
		var providers []providerRow
		if err := tx.Raw(s.selectProviders()+" JOIN providers p ON p.id = s.name"+where, args...).Scan(&providers).Error; err != nil {
			return err
		}
		for _, row := range connections {
			states.Connections = append(states.Connections, s.connectionOf(row))
		}
		for _, row := range providers {
			states.Providers = append(states.Providers, s.providerOf(row))
		}
		now, err := s.nowMs(tx)
		states.Now = time.UnixMilli(now)
		return err
	})
	return states, s.fail("read the states", err)
}

// connectionRow is a row and what only the database can say of it: the time left by its clock.
type connectionRow struct {
	catalog.ConnectionStateRow
	RemainingMs int64
}

type providerRow struct {
	catalog.CircuitBreakerRow
	RemainingMs int64
}

func (s *Store) selectConnections() string {
	return "SELECT s.*, CASE WHEN s.until_at > 0 THEN s.until_at - " + s.now + " ELSE 0 END AS remaining_ms FROM connection_states s"
}

func (s *Store) selectProviders() string {
	return "SELECT s.*, CASE WHEN s.until_at > 0 THEN s.until_at - " + s.now + " ELSE 0 END AS remaining_ms FROM domain_circuit_breakers s"
}

func (s *Store) connectionState(tx *gorm.DB, id models.ConnectionID) (catalog.ConnectionState, bool, error) {
	var rows []connectionRow
	if err := tx.Raw(s.selectConnections()+" WHERE s.connection_id = ?", id).Scan(&rows).Error; err != nil || len(rows) == 0 {
		return catalog.ConnectionState{}, false, err
	}
	return s.connectionOf(rows[0]), true, nil
}

func (s *Store) providerState(tx *gorm.DB, id models.ProviderID) (catalog.ProviderState, bool, error) {
	var rows []providerRow
	if err := tx.Raw(s.selectProviders()+" WHERE s.name = ?", id).Scan(&rows).Error; err != nil || len(rows) == 0 {
		return catalog.ProviderState{}, false, err
	}
	return s.providerOf(rows[0]), true, nil
}

// connectionOf reads a row. What is damaged counts as healthy in the row's era: everybody who
// knows better joins his own evidence, and the next publication, whose version follows the
// row's, or new credentials replace it.
func (s *Store) connectionOf(r connectionRow) catalog.ConnectionState {
	var register catalog.RegisterState
	if err := json.Unmarshal([]byte(r.State), &register); err != nil {
		s.log.WithError(err).WithField("connection", r.ConnectionID).Error("a published state is damaged and counts as healthy")
		register = catalog.RegisterState{}
	}
	register.Cooldown.Era = r.Era
	return catalog.ConnectionState{
		Connection:     models.ConnectionID(r.ConnectionID),
		Provider:       models.ProviderID(r.ProviderID),
		Stamp:          models.Stamp{Era: r.Era, Version: r.Version},
		State:          register.Connection,
		AppliedThrough: register.AppliedThrough,
		Remaining:      time.Duration(r.RemainingMs) * time.Millisecond,
	}
}

// providerOf is connectionOf for a provider's row.
func (s *Store) providerOf(r providerRow) catalog.ProviderState {
	var opening catalog.OpeningState
	if err := json.Unmarshal([]byte(r.Opening), &opening); err != nil {
		s.log.WithError(err).WithField("provider", r.Name).Error("a published opening is damaged and counts as closed")
		opening = catalog.OpeningState{}
	}
	opening.Opening.Era = r.Era
	return catalog.ProviderState{
		Provider:       models.ProviderID(r.Name),
		Stamp:          models.Stamp{Era: r.Era, Version: r.Version},
		State:          opening.Provider,
		AppliedThrough: opening.AppliedThrough,
		Remaining:      time.Duration(r.RemainingMs) * time.Millisecond,
	}
}

// upsertConnection reports whether the state was newer than the row and replaced it. The
// comparison and the write are one statement, so no older state can slip in between.
func (s *Store) upsertConnection(tx *gorm.DB, st catalog.ConnectionState) (bool, error) {
	if st.Connection == "" {
		return false, errors.New("a state names no connection")
	}
	register, err := json.Marshal(catalog.RegisterState{Connection: st.State, AppliedThrough: st.AppliedThrough})
	if err != nil {
		return false, err
	}
	done := tx.Exec(`INSERT INTO connection_states
		(connection_id, provider_id, era, version, phase, reason, status, level, until_at, applied_through, state, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, `+s.now+`)
		ON CONFLICT (connection_id) DO UPDATE SET
			provider_id = excluded.provider_id, era = excluded.era, version = excluded.version,
			phase = excluded.phase, reason = excluded.reason, status = excluded.status, level = excluded.level,
			until_at = excluded.until_at, applied_through = excluded.applied_through,
			state = excluded.state, updated_at = excluded.updated_at
		WHERE (excluded.era, excluded.version) > (connection_states.era, connection_states.version)`,
		st.Connection, st.Provider, st.Era, st.Version,
		st.State.Phase(time.Now()), st.State.Cooldown.Reason, st.State.Cooldown.Status, st.State.Cooldown.Level,
		millis(st.State.Cooldown.Until), millis(st.AppliedThrough), string(register))
	return done.RowsAffected > 0, done.Error
}

func (s *Store) upsertProvider(tx *gorm.DB, st catalog.ProviderState) (bool, error) {
	if st.Provider == "" {
		return false, errors.New("a state names no provider")
	}
	opening, err := json.Marshal(catalog.OpeningState{Provider: st.State, AppliedThrough: st.AppliedThrough})
	if err != nil {
		return false, err
	}
	done := tx.Exec(`INSERT INTO domain_circuit_breakers
		(name, era, version, state, failure_count, last_failure_time, cycle, until_at, applied_through, opening, probe_owner, probe_until, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '', 0, `+s.now+`)
		ON CONFLICT (name) DO UPDATE SET
			era = excluded.era, version = excluded.version, state = excluded.state,
			failure_count = excluded.failure_count, last_failure_time = excluded.last_failure_time,
			cycle = excluded.cycle, until_at = excluded.until_at, applied_through = excluded.applied_through,
			opening = excluded.opening, updated_at = excluded.updated_at,
			probe_owner = CASE WHEN `+sameOpening+` THEN domain_circuit_breakers.probe_owner ELSE '' END,
			probe_until = CASE WHEN `+sameOpening+` THEN domain_circuit_breakers.probe_until ELSE 0 END
		WHERE (excluded.era, excluded.version) > (domain_circuit_breakers.era, domain_circuit_breakers.version)`,
		st.Provider, st.Era, st.Version, breakerState(st.State.Opening), st.State.Opening.Failures, millis(st.State.Opening.OpenedAt),
		st.State.Opening.Cycle, millis(st.State.Opening.Until), millis(st.AppliedThrough), string(opening))
	return done.RowsAffected > 0, done.Error
}

const sameOpening = `(excluded.era, excluded.state, excluded.until_at) =
	(domain_circuit_breakers.era, domain_circuit_breakers.state, domain_circuit_breakers.until_at)`

// breakerState is CLOSED or OPEN: HALF_OPEN is OPEN whose time has passed, which readers see
// from the remaining time.
func breakerState(o resilience.Opening) resilience.BreakerState {
	if o.State(o.Until) == resilience.BreakerClosed {
		return resilience.BreakerClosed
	}
	return resilience.BreakerOpen
}

// millis is an instant in epoch milliseconds; 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
