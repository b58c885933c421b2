package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/secrets"
)

// NewKey describes a gateway key to create.
type NewKey struct {
	Name               string
	Scopes             []string              // empty = inference
	AllowedConnections []models.ConnectionID // empty = all
	AllowedModels      []string              // empty = all
	ExpiresAt          time.Time             // zero = never
	Actor              string                // who, for the audit log
}

// KeyInfo is a gateway key as an operator sees it: everything but the key.
type KeyInfo struct {
	ID                 models.APIKeyID
	Name               string
	Scopes             []string
	AllowedConnections []models.ConnectionID
	AllowedModels      []string
	ExpiresAt          time.Time
	CreatedAt          time.Time
}

// CreateKey makes a random key and returns it in clear, once. The same rules hold as for a
// key in a catalog file.
func (s *Store) CreateKey(ctx context.Context, k NewKey) (info KeyInfo, clear string, err error) {
	if _, err := s.hashKey(""); err != nil {
		return KeyInfo{}, "", err
	}
	clear = secrets.NewAPIKey()
	doc, err := catalog.KeyDocument(catalog.DocAPIKey{
		Name: k.Name, Key: catalog.Sealable{Secret: catalog.NewSecret(clear)}, Scopes: k.Scopes,
		AllowedConnections: k.AllowedConnections, AllowedModels: k.AllowedModels, ExpiresAt: k.ExpiresAt,
	})
	if err != nil {
		return KeyInfo{}, "", err
	}
	err = s.changingCatalog(ctx, func(tx *gorm.DB) (bool, error) {
		stored, err := s.loadIn(tx)
		if err != nil {
			return false, err
		}
		if _, taken := stored.Keys[k.Name]; taken {
			return false, models.Errorf(models.CodeInvalidRequest, "there is already a key named %q", k.Name)
		}
		outcome, err := catalog.PlanApply(stored, doc, false, s.ring.HashKey)
		if err != nil {
			return false, err
		}
		now, err := s.nowMs(tx)
		if err != nil {
			return false, err
		}
		a := &applier{store: s, tx: tx, stored: stored, result: outcome.Result, now: now, actor: k.Actor}
		if err := a.run(outcome.Diff.Changes); err != nil {
			return false, err
		}
		info, err = s.key(tx, "name = ?", k.Name)
		return true, err
	})
	if err != nil {
		return KeyInfo{}, "", s.fail("create the key", err)
	}
	return info, clear, nil
}

// ListKeys lists the gateway keys by name.
func (s *Store) ListKeys(ctx context.Context) ([]KeyInfo, error) {
	var rows []catalog.APIKey
	if err := s.db.WithContext(ctx).Order("name").Find(&rows).Error; err != nil {
		return nil, s.fail("list the keys", err)
	}
	infos := make([]KeyInfo, len(rows))
	for i, r := range rows {
		info, err := keyInfo(r)
		if err != nil {
			return nil, s.fail("list the keys", err)
		}
		infos[i] = info
	}
	return infos, nil
}

// RevokeKey deletes the key of an id or a name. Replicas refuse it as soon as the change
// reaches them; the audit log keeps that it was there.
func (s *Store) RevokeKey(ctx context.Context, idOrName, actor string) (KeyInfo, error) {
	var info KeyInfo
	err := s.changingCatalog(ctx, func(tx *gorm.DB) (bool, error) {
		var err error
		if info, err = s.key(tx, "id = ? OR name = ?", idOrName, idOrName); err != nil {
			return false, err
		}
		now, err := s.nowMs(tx)
		if err != nil {
			return false, err
		}
		stored := &catalog.Stored{Keys: map[string]catalog.StoredKey{info.Name: {ID: info.ID}}}
		a := &applier{store: s, tx: tx, stored: stored, now: now, actor: actor}
		return true, a.run([]catalog.Change{{Action: catalog.ActionDelete, Kind: catalog.KindAPIKey, ID: info.Name}})
	})
	return info, s.fail("revoke the key", err)
}

func (s *Store) key(tx *gorm.DB, where string, args ...any) (KeyInfo, error) {
	var rows []catalog.APIKey
	if err := tx.Where(where, args...).Limit(2).Find(&rows).Error; err != nil {
		return KeyInfo{}, err
	}
	if len(rows) != 1 {
		// Two rows: somebody named a key like another's id. Neither is revoked by accident.
		return KeyInfo{}, models.Errorf(models.CodeNotFound, "%d keys have the id or name %q", len(rows), args[0])
	}
	return keyInfo(rows[0])
}

func keyInfo(r catalog.APIKey) (KeyInfo, error) {
	doc, stored, err := keyFromRow(r)
	return KeyInfo{
		ID: stored.ID, Name: doc.Name, Scopes: doc.Scopes, AllowedConnections: doc.AllowedConnections,
		AllowedModels: doc.AllowedModels, ExpiresAt: doc.ExpiresAt, CreatedAt: stored.CreatedAt,
	}, err
}

// keyRow writes a key's document as its row. A key without an id gets one.
func keyRow(k catalog.DocAPIKey, id models.APIKeyID, hash [32]byte, now int64) (*catalog.APIKey, error) {
	scopes, err := json.Marshal(k.Scopes)
	if err != nil {
		return nil, err
	}
	row := &catalog.APIKey{
		ID: cmp.Or(string(id), newKeyID()), Name: k.Name, Hash: catalog.HashText(hash), Scopes: string(scopes),
		CreatedAt: now, UpdatedAt: now,
	}
	if row.AllowedConnections, err = allowList(k.AllowedConnections); err != nil {
		return nil, err
	}
	if row.AllowedModels, err = allowList(k.AllowedModels); err != nil {
		return nil, err
	}
	if !k.ExpiresAt.IsZero() {
		at := k.ExpiresAt.UnixMilli()
		row.ExpiresAt = &at
	}
	return row, nil
}

func keyFromRow(r catalog.APIKey) (catalog.DocAPIKey, catalog.StoredKey, error) {
	doc := catalog.DocAPIKey{Name: r.Name}
	stored := catalog.StoredKey{ID: models.APIKeyID(r.ID), CreatedAt: time.UnixMilli(r.CreatedAt)}
	hash, err := hex.DecodeString(r.Hash)
	if err != nil || len(hash) != len(stored.Hash) {
		return doc, stored, fmt.Errorf("the hash of key %q is damaged", r.Name)
	}
	copy(stored.Hash[:], hash)
	if err := json.Unmarshal([]byte(r.Scopes), &doc.Scopes); err != nil {
		return doc, stored, fmt.Errorf("the scopes of key %q: %w", r.Name, err)
	}
	// A damaged allow-list must not read as "all".
	if r.AllowedConnections != nil {
		if err := json.Unmarshal([]byte(*r.AllowedConnections), &doc.AllowedConnections); err != nil {
			return doc, stored, fmt.Errorf("the allowed connections of key %q: %w", r.Name, err)
		}
	}
	if r.AllowedModels != nil {
		if err := json.Unmarshal([]byte(*r.AllowedModels), &doc.AllowedModels); err != nil {
			return doc, stored, fmt.Errorf("the allowed models of key %q: %w", r.Name, err)
		}
	}
	if r.ExpiresAt != nil {
		doc.ExpiresAt = time.UnixMilli(*r.ExpiresAt).UTC()
	}
	return doc, stored, nil
}

// allowList is nil, which allows all, for a list without entries.
func allowList[S ~string](items []S) (*string, error) {
	if len(items) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(slices.Clone(items))
	list := string(text)
	return &list, err
}

// newKeyID is random, so that it says nothing of the key or of how many there are.
func newKeyID() string {
	raw := make([]byte, 8)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never returns an error; it ends the process instead
	return "key-" + hex.EncodeToString(raw)
}
