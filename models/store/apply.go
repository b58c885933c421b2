package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"omniroute/models"
	"omniroute/models/catalog"
)

// ApplyOptions say how a document is applied.
type ApplyOptions struct {
	DryRun bool   // work out the diff and change nothing
	Prune  bool   // delete what the present sections do not name
	Actor  string // who, for the audit log
}

// Apply makes the catalog what the document says, in one transaction: all of it or nothing.
// The diff is what changed, or on a dry run would. A connection with a new credential, or one
// that moved to another provider, begins a new era of its health. A *catalog.DocumentError
// lists references that lead nowhere and secrets that are missing.
func (s *Store) Apply(ctx context.Context, doc *catalog.Document, o ApplyOptions) (*catalog.Diff, error) {
	if _, err := s.hashKey(""); err != nil {
		return nil, err
	}
	if o.DryRun {
		stored, err := s.load(ctx)
		if err != nil {
			return nil, s.fail("read the catalog", err)
		}
		outcome, err := catalog.PlanApply(stored, doc, o.Prune, s.ring.HashKey)
		if err != nil {
			return nil, err
		}
		return outcome.Diff, nil
	}

	var diff *catalog.Diff
	newEra := false
	err := s.changingCatalog(ctx, func(tx *gorm.DB) (bool, error) {
		stored, err := s.loadIn(tx)
		if err != nil {
			return false, err
		}
		outcome, err := catalog.PlanApply(stored, doc, o.Prune, s.ring.HashKey)
		if err != nil {
			return false, err
		}
		diff = outcome.Diff
		if diff.Empty() {
			return false, nil
		}
		now, err := s.nowMs(tx)
		if err != nil {
			return false, err
		}
		a := &applier{store: s, tx: tx, stored: stored, result: outcome.Result, now: now, actor: o.Actor}
		if err := a.run(diff.Changes); err != nil {
			return false, err
		}
		newEra = a.newEra
		return true, nil
	})
	if err != nil {
		return nil, s.fail("apply the catalog", err)
	}
	if newEra {
		s.watchers.tell(catalog.ChangedState)
	}
	return diff, nil
}

// applier writes the changes of one diff inside the catalog's transaction.
type applier struct {
	store  *Store
	tx     *gorm.DB
	stored *catalog.Stored
	result *catalog.Document
	now    int64
	actor  string
	newEra bool // a connection's health began a new era
}

// Deletions go from what refers to what is referred to; creations and updates the other way.
var (
	deletionOrder = []string{catalog.KindAPIKey, catalog.KindCombo, catalog.KindModel, catalog.KindConnection, catalog.KindProvider, catalog.KindSetting}
	writingOrder  = []string{catalog.KindProvider, catalog.KindConnection, catalog.KindModel, catalog.KindCombo, catalog.KindAPIKey, catalog.KindSetting}
)

func (a *applier) run(changes []catalog.Change) error {
	for _, c := range changes {
		if err := a.makeWay(c); err != nil {
			return err
		}
	}
	for _, kind := range writingOrder {
		for _, c := range changes {
			if c.Kind == kind && c.Action != catalog.ActionDelete {
				if err := a.write(c); err != nil {
					return err
				}
			}
		}
	}
	for _, kind := range deletionOrder {
		for _, c := range changes {
			if c.Kind == kind && c.Action == catalog.ActionDelete {
				if err := a.remove(c); err != nil {
					return err
				}
			}
		}
	}
	if a.newEra {
		if err := a.store.notify(a.tx, catalog.ChangedState); err != nil {
			return err
		}
	}
	return a.audit(changes)
}

// makeWay removes what would hold back the other changes. The targets of a combo that changes
// or goes must not keep the models and connections they point to, nor a connection that moves
// to another provider. The hash of a key that changes or goes must be free for another name.
func (a *applier) makeWay(c catalog.Change) error {
	switch {
	case c.Action == catalog.ActionCreate:
		return nil
	case c.Kind == catalog.KindCombo:
		return a.tx.Where("combo_name = ?", c.ID).Delete(&catalog.ComboTarget{}).Error
	case c.Kind == catalog.KindAPIKey && (c.NewCredential || c.Action == catalog.ActionDelete):
		free := fmt.Sprintf("%064s", a.stored.Keys[c.ID].ID)
		return a.tx.Model(&catalog.APIKey{}).Where("name = ?", c.ID).UpdateColumn("hash", free).Error
	default:
		return nil
	}
}

func (a *applier) write(c catalog.Change) error {
	switch c.Kind {
	case catalog.KindProvider:
		return a.provider(c)
	case catalog.KindConnection:
		return a.connection(c)
	case catalog.KindModel:
		return a.model(c)
	case catalog.KindCombo:
		return a.combo(c)
	case catalog.KindAPIKey:
		return a.apiKey(c)
	default:
		return a.setting(c)
	}
}

// save inserts or updates the whole row, keeping when it was created.
func (a *applier) save(c catalog.Change, row any) error {
	if c.Action == catalog.ActionCreate {
		return a.tx.Create(row).Error
	}
	return a.tx.Select("*").Omit("created_at").Updates(row).Error
}

func (a *applier) apiKey(c catalog.Change) error {
	key := find(a.result.APIKeys, func(x catalog.DocAPIKey) bool { return x.Name == c.ID })
	hash := a.stored.Keys[c.ID].Hash
	if clear := key.Key.Reveal(); clear != "" {
		hash = a.store.ring.HashKey(clear)
	}
	row, err := keyRow(key, a.stored.Keys[c.ID].ID, hash, a.now)
	if err != nil {
		return err
	}
	return a.save(c, row)
}

func (a *applier) remove(c catalog.Change) error {
	switch c.Kind {
	case catalog.KindProvider:
		return a.tx.Delete(&catalog.Provider{}, "id = ?", c.ID).Error
	case catalog.KindConnection:
		conn := find(a.stored.Connections, func(x catalog.DocConnection) bool { return string(x.ID) == c.ID })
		if err := a.tx.Delete(&catalog.Connection{}, "id = ?", c.ID).Error; err != nil {
			return err
		}
		return a.beginEra(c.ID, string(conn.Provider), true)
	case catalog.KindModel:
		ref, _ := models.ParseModelRef(c.ID)
		return a.tx.Delete(&catalog.Model{}, "provider_id = ? AND id = ?", ref.Provider, ref.Model).Error
	case catalog.KindCombo:
		return a.tx.Delete(&catalog.Combo{}, "name = ?", c.ID).Error
	case catalog.KindAPIKey:
		return a.tx.Delete(&catalog.APIKey{}, "name = ?", c.ID).Error
	default:
		return a.tx.Delete(&catalog.Setting{}, "name = ?", c.ID).Error
	}
}

// beginEra puts a healthy state of the next era where a connection's state is. Nothing that
// was observed of the old credential may outlive it: not a row, not a workflow's next
// publication, not a replica's memory. A connection that is new has no era to end unless
// something is there already.
func (a *applier) beginEra(connection, provider string, always bool) error {
	return a.outrank(func() (written bool, err error) {
		state, found, err := a.store.connectionState(a.tx, models.ConnectionID(connection))
		if err != nil || !found && !always {
			return true, err
		}
		a.newEra = true
		return a.store.upsertConnection(a.tx, catalog.ConnectionState{
			Connection: models.ConnectionID(connection),
			Provider:   models.ProviderID(provider),
			Stamp:      models.Stamp{Era: state.Era + 1},
			State:      state.State.Enter(state.Era+1, time.UnixMilli(a.now)),
		})
	})
}

// beginProviderEra is beginEra for a provider that is new: a row of an earlier one of its name
// says nothing about it.
func (a *applier) beginProviderEra(provider string) error {
	return a.outrank(func() (written bool, err error) {
		state, found, err := a.store.providerState(a.tx, models.ProviderID(provider))
		if err != nil || !found {
			return true, err
		}
		a.newEra = true
		return a.store.upsertProvider(a.tx, catalog.ProviderState{
			Provider: models.ProviderID(provider),
			Stamp:    models.Stamp{Era: state.Era + 1},
			State:    state.State.Enter(state.Era+1, time.UnixMilli(a.now)),
		})
	})
}

// eraAttempts is how often a new era is written again after a reset was published between its
// reading and its writing, which seldom happens once.
const eraAttempts = 5

// outrank repeats a write until it is the newest.
func (a *applier) outrank(write func() (written bool, err error)) error {
	for range eraAttempts {
		if written, err := write(); err != nil || written {
			return err
		}
	}
	return errors.New("the published state kept changing while a new era was written; apply again")
}

func (a *applier) audit(changes []catalog.Change) error {
	rows := make([]catalog.Audit, len(changes))
	for i, c := range changes {
		rows[i] = catalog.Audit{
			At: a.now, Actor: cmp.Or(a.actor, "unknown"),
			Action: string(c.Action), Kind: c.Kind, Entity: c.ID, Detail: c.String(),
		}
	}
	return a.tx.CreateInBatches(rows, 500).Error
}

// find returns the entity a diff names; the diff was made from the same list.
func find[T any](list []T, is func(T) bool) T {
	return list[slices.IndexFunc(list, is)]
}
