// Package admin is the management side of the gateway: each operation once, as a method of
// Service, with JSON handlers on top.
package admin

import (
	"context"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/gateway/access"
	"omniroute/gateway/live"
	"omniroute/gateway/outbox"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/models/store"
)

// Store is what the operations need of the database.
type Store interface {
	Ping(ctx context.Context) error
	Apply(ctx context.Context, doc *catalog.Document, o store.ApplyOptions) (*catalog.Diff, error)
	Export(ctx context.Context) (*catalog.Document, error)
	Requests(ctx context.Context, id models.RequestID, limit int) ([]catalog.RequestRecord, error)
	Settings(ctx context.Context) (*catalog.DocSettings, error)
	ChangeSettings(ctx context.Context, actor string, change func(stored *catalog.DocSettings) (*catalog.DocSettings, error)) (*catalog.Diff, error)
	Audit(ctx context.Context, entries []catalog.Audit) error
	AuditLog(ctx context.Context, limit int, before int64) ([]catalog.Audit, error)
}

// Live is this replica's view of the world.
type Live interface {
	Snapshot() *catalog.Snapshot
	Report(now time.Time) live.Report
}

// Durable reaches the workflows that own state. Its errors are coded: Temporal that is away
// is models.CodeDurableUnavailable.
type Durable interface {
	Reset(ctx context.Context, connection models.ConnectionID) error
	ResetProvider(ctx context.Context, provider models.ProviderID) error
	// EnableModels ends lockouts, also those that only some replica knows.
	EnableModels(ctx context.Context, connection models.ConnectionID, keys []resilience.LockKey) error
	// ClearCooldown ends a cooldown and what is counted towards a terminal state.
	ClearCooldown(ctx context.Context, connection models.ConnectionID) error
}

// Options are what a Service is made of.
type Options struct {
	Store   Store
	Live    Live
	Durable Durable
	// Environment is what stands behind the stored settings.
	Environment catalog.Environment
	// Temporal says why the cluster does not answer, or nil.
	Temporal func(ctx context.Context) error
	Outbox   func() outbox.Stats
	Ledger   func() (pending int)
	// HashKey turns a presented key into the one the catalog is indexed by.
	HashKey func(clear string) [32]byte
	// AdminToken is the operator's bearer token; empty means that there is none.
	AdminToken string
	// TemporalUI is the address of Temporal's Web UI for people; empty means no links.
	TemporalUI string
	Namespace  string
	Version    string
	Replica    string
	Refusals   *access.Refusals
	Log        logrus.FieldLogger
}

// Service is every management operation. It is safe for concurrent use.
type Service struct {
	o       Options
	started time.Time
	parts   *parts

	summing sync.Mutex // guards the two below
	summary Summary
	summed  time.Time
}

// New makes a Service.
func New(o Options) *Service {
	return &Service{o: o, started: time.Now(), parts: &parts{database: o.Store.Ping, temporal: o.Temporal}}
}
