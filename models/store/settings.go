package store

import (
	"context"

	"gorm.io/gorm"

	"omniroute/models/catalog"
)

// Settings reads the sections of the operator's settings.
func (s *Store) Settings(ctx context.Context) (*catalog.DocSettings, error) {
	settings := &catalog.DocSettings{}
	err := s.reading(ctx, func(tx *gorm.DB) (err error) {
		settings, err = settingsIn(tx)
		return err
	})
	if err != nil {
		return nil, s.fail("read the settings", err)
	}
	return settings, nil
}

// ChangeSettings lets change turn the stored settings into new ones, in the one transaction at
// a time that may change the catalog: what it was given is what the new ones replace. An error
// of change is returned as it is and nothing is changed. A nil section of the new settings takes
// the stored one away.
func (s *Store) ChangeSettings(ctx context.Context, actor string, change func(stored *catalog.DocSettings) (*catalog.DocSettings, error)) (*catalog.Diff, error) {
	var diff *catalog.Diff
	err := s.changingCatalog(ctx, func(tx *gorm.DB) (bool, error) {
		stored, err := settingsIn(tx)
		if err != nil {
			return false, err
		}
		settings, err := change(stored)
		if err != nil {
			return false, err
		}
		if err := s.danglingSettings(tx, settings); err != nil {
			return false, err
		}
		var result *catalog.DocSettings
		if diff, result = catalog.PlanSettings(stored, settings); diff.Empty() {
			return false, nil
		}
		now, err := s.nowMs(tx)
		if err != nil {
			return false, err
		}
		a := &applier{store: s, tx: tx, result: &catalog.Document{Settings: result}, now: now, actor: actor}
		return true, a.run(diff.Changes)
	})
	if err != nil {
		return nil, s.fail("change the settings", err)
	}
	return diff, nil
}

// danglingSettings refuses settings that name a model or a combo which is not there, or that do
// not go with the combos there are.
func (s *Store) danglingSettings(tx *gorm.DB, settings *catalog.DocSettings) error {
	if settings.ComboDefaults == nil && settings.ModelMappings == nil && settings.EmergencyFallback == nil {
		return nil
	}
	stored, err := s.loadIn(tx)
	if err != nil {
		return err
	}
	return stored.FitSettings(settings)
}

func settingsIn(tx *gorm.DB) (*catalog.DocSettings, error) {
	var rows []catalog.Setting
	if err := tx.Find(&rows).Error; err != nil {
		return nil, err
	}
	settings := &catalog.DocSettings{}
	for _, r := range rows {
		if err := settings.SetSection(r.Name, []byte(r.Value)); err != nil {
			return nil, err
		}
	}
	return settings, nil
}

func (l *loader) settings() (err error) {
	l.stored.Settings, err = settingsIn(l.tx)
	return err
}

func (a *applier) setting(c catalog.Change) error {
	value, err := a.result.Settings.Section(c.ID)
	if err != nil {
		return err
	}
	return a.save(c, &catalog.Setting{Name: c.ID, Value: string(value), UpdatedAt: a.now})
}
