package store

import (
	"context"
	"time"

	"gorm.io/gorm"

	"omniroute/models"
	"omniroute/models/catalog"
)

// LoadSnapshot reads the whole catalog as of one moment and works out what the hot path needs.
// A connection whose credential does not open is disabled and logged; it does not keep the
// rest from being served.
func (s *Store) LoadSnapshot(ctx context.Context) (*catalog.Snapshot, error) {
	stored, err := s.load(ctx)
	if err != nil {
		return nil, s.fail("load the catalog", err)
	}
	for id, problem := range stored.Unreadable {
		s.log.WithField("connection", id).WithError(problem).Error("the credential does not open; the connection is disabled")
	}
	for id, problem := range stored.UnreadableClients {
		s.log.WithField("provider", id).WithError(problem).Error("the OAuth client's secret does not open; tokens cannot be refreshed")
	}
	return catalog.BuildSnapshot(stored, s.environment), nil
}

// Export reads the catalog as a document without secrets; see catalog.Stored.Export.
func (s *Store) Export(ctx context.Context) (*catalog.Document, error) {
	stored, err := s.load(ctx)
	if err != nil {
		return nil, s.fail("export the catalog", err)
	}
	return stored.Export(), nil
}

// CatalogRevision is the number of catalog changes so far.
func (s *Store) CatalogRevision(ctx context.Context) (int64, error) {
	var revision int64
	err := s.db.WithContext(ctx).Raw("SELECT revision FROM catalog_meta WHERE id = 1").Scan(&revision).Error
	return revision, s.fail("read the catalog's revision", err)
}

func (s *Store) load(ctx context.Context) (*catalog.Stored, error) {
	var stored *catalog.Stored
	err := s.reading(ctx, func(tx *gorm.DB) (err error) {
		stored, err = s.loadIn(tx)
		return err
	})
	return stored, err
}

// loadIn reads the catalog inside a transaction. Every section of the result is present.
func (s *Store) loadIn(tx *gorm.DB) (*catalog.Stored, error) {
	l := s.newLoader(tx)
	for _, step := range []func() error{
		l.revision, l.providers, l.connections, l.tokens, l.models, l.combos, l.apiKeys, l.settings,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return l.stored, nil
}

func (s *Store) newLoader(tx *gorm.DB) *loader {
	return &loader{store: s, tx: tx, stored: &catalog.Stored{
		Keys:              map[string]catalog.StoredKey{},
		ModelsCreated:     map[models.ModelRef]time.Time{},
		Unreadable:        map[models.ConnectionID]error{},
		UnreadableClients: map[models.ProviderID]error{},
		Tokens:            map[models.ConnectionID]catalog.StoredTokens{},
	}}
}

type loader struct {
	store  *Store
	tx     *gorm.DB
	stored *catalog.Stored
}

func (l *loader) revision() error {
	return l.tx.Raw("SELECT revision FROM catalog_meta WHERE id = 1").Scan(&l.stored.Revision).Error
}

func (l *loader) apiKeys() error {
	var rows []catalog.APIKey
	if err := l.tx.Order("name").Find(&rows).Error; err != nil {
		return err
	}
	l.stored.APIKeys = make([]catalog.DocAPIKey, len(rows))
	for i, r := range rows {
		doc, stored, err := keyFromRow(r)
		if err != nil {
			return err
		}
		l.stored.APIKeys[i], l.stored.Keys[r.Name] = doc, stored
	}
	return nil
}
