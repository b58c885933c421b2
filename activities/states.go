// Package activities holds the side effects of the workflows, grouped by what they depend on.
package activities

import (
	"context"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// Store is the part of models/store that the state activities need.
type Store interface {
	LoadConnectionState(ctx context.Context, id models.ConnectionID) (catalog.ConnectionState, bool, error)
	PublishConnection(ctx context.Context, s catalog.ConnectionState) (catalog.ConnectionState, error)
	LoadProviderState(ctx context.Context, id models.ProviderID) (catalog.ProviderState, bool, error)
	PublishProvider(ctx context.Context, s catalog.ProviderState) (catalog.ProviderState, error)
}

// States reads and publishes the entities' rows. Its methods are activities.
type States struct{ Store Store }

// LoadConnection reads a connection's row; without one it is the zero row.
func (a States) LoadConnection(ctx context.Context, e contract.Entity) (contract.Row[resilience.Connection], error) {
	row, _, err := a.Store.LoadConnectionState(ctx, e.Connection)
	return connectionRow(row), err
}

// PublishConnection writes a connection's row where it is newer and answers with the row as
// it stands, without the state where that is the one that was sent.
func (a States) PublishConnection(ctx context.Context, p contract.Publish[resilience.Connection]) (contract.Stood[resilience.Connection], error) {
	stored, err := a.Store.PublishConnection(ctx, catalog.ConnectionState{
		Connection:     p.Connection,
		Provider:       p.Provider,
		Stamp:          p.Row.Stamp,
		State:          p.Row.State,
		AppliedThrough: p.Row.AppliedThrough,
	})
	if err != nil {
		return contract.Stood[resilience.Connection]{}, err
	}
	return stood(connectionRow(stored), stored.State.Equal(p.Row.State)), nil
}

// LoadProvider reads a provider's row; without one it is the zero row.
func (a States) LoadProvider(ctx context.Context, e contract.Entity) (contract.Row[resilience.Provider], error) {
	row, _, err := a.Store.LoadProviderState(ctx, e.Provider)
	return providerRow(row), err
}

// PublishProvider is PublishConnection for a provider's row.
func (a States) PublishProvider(ctx context.Context, p contract.Publish[resilience.Provider]) (contract.Stood[resilience.Provider], error) {
	stored, err := a.Store.PublishProvider(ctx, catalog.ProviderState{
		Provider:       p.Provider,
		Stamp:          p.Row.Stamp,
		State:          p.Row.State,
		AppliedThrough: p.Row.AppliedThrough,
	})
	if err != nil {
		return contract.Stood[resilience.Provider]{}, err
	}
	return stood(providerRow(stored), stored.State.Equal(p.Row.State)), nil
}

// The rows of a workflow leave out what only a reader of the table needs: the remaining time
// and the holder of the probe.

func connectionRow(s catalog.ConnectionState) contract.Row[resilience.Connection] {
	return contract.Row[resilience.Connection]{Stamp: s.Stamp, State: s.State, AppliedThrough: s.AppliedThrough}
}

func providerRow(s catalog.ProviderState) contract.Row[resilience.Provider] {
	return contract.Row[resilience.Provider]{Stamp: s.Stamp, State: s.State, AppliedThrough: s.AppliedThrough}
}

func stood[S any](row contract.Row[S], asSent bool) contract.Stood[S] {
	s := contract.Stood[S]{Stamp: row.Stamp, AppliedThrough: row.AppliedThrough}
	if !asSent {
		s.State = &row.State
	}
	return s
}
