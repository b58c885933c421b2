package store

import (
	"context"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"omniroute/models/catalog"
)

var errNoKeyRing = errors.New("no encryption keys are configured")

// place is a column of sealed values. What is sealed for one row of it opens nowhere else.
type place struct{ table, key, column string }

// Every column with sealed values.
var (
	clientSecrets = place{catalog.TableProviders, "id", "oauth_client_secret"}
	credentials   = place{catalog.TableConnections, "id", "credential"}
	refreshTokens = place{catalog.TableConnections, "id", "refresh_token"}
	proxies       = place{catalog.TableConnections, "id", "proxy"}
	renewedTokens = place{catalog.TableConnectionTokens, "connection_id", "tokens"}

	places = []place{clientSecrets, credentials, refreshTokens, proxies, renewedTokens}
)

// seal seals a secret for one row; an empty one stays empty.
func (s *Store) seal(at place, row string, secret catalog.Secret) (string, error) {
	if secret.Empty() {
		return "", nil
	}
	if s.ring == nil {
		return "", errNoKeyRing
	}
	return s.ring.Seal([]byte(secret.Reveal()), at.table, row, at.column)
}

// open opens what was sealed for the row.
func (s *Store) open(at place, row, sealed string) (catalog.Secret, error) {
	if sealed == "" {
		return catalog.Secret{}, nil
	}
	if s.ring == nil {
		return catalog.Secret{}, errNoKeyRing
	}
	clear, err := s.ring.Open(sealed, at.table, row, at.column)
	return catalog.NewSecret(string(clear)), err
}

// hashKey is the key ring's hash of an API key.
func (s *Store) hashKey(clear string) ([32]byte, error) {
	if s.ring == nil {
		return [32]byte{}, errNoKeyRing
	}
	return s.ring.HashKey(clear), nil
}

// CheckSecrets opens every stored credential and returns how many there are. The error names
// what does not open.
func (s *Store) CheckSecrets(ctx context.Context) (int, error) {
	stored, err := s.load(ctx)
	if err != nil {
		return 0, s.fail("read the credentials", err)
	}
	count, broken := 0, len(stored.Unreadable)+len(stored.UnreadableClients)
	tell := func(what, id string, problem error) {
		if problem != nil && err == nil {
			err = fmt.Errorf("%d of the stored credentials do not open, the first is %s %q: %w", broken, what, id, problem)
		}
	}
	for _, c := range stored.Connections {
		if problem := stored.Unreadable[c.ID]; c.Credential != nil || problem != nil {
			count++
			tell("connection", string(c.ID), problem)
		}
	}
	for _, p := range stored.Providers {
		if problem := stored.UnreadableClients[p.ID]; problem != nil || p.OAuth != nil && !p.OAuth.ClientSecret.Empty() {
			count++
			tell("the client secret of provider", string(p.ID), problem)
		}
	}
	return count, err
}

// Reseal seals everything that was sealed with an older key of the ring anew with its first,
// and returns how many values there were. After it, the older keys can be dropped from the
// ring, except the last, which hashes API keys.
func (s *Store) Reseal(ctx context.Context) (int, error) {
	if s.ring == nil {
		return 0, errNoKeyRing
	}
	resealed := 0
	err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		resealed = 0
		meta, err := s.lockMeta(tx)
		if err != nil {
			return err
		}
		if meta.SealTest != "" && !s.ring.Current(meta.SealTest) {
			meta.SealTest = ""
		}
		if err := s.rememberKeyRing(tx, meta); err != nil {
			return err
		}
		for _, at := range places {
			n, err := s.resealColumn(tx, at)
			if err != nil {
				return err
			}
			resealed += n
		}
		return nil
	})
	return resealed, s.fail("reseal the credentials", err)
}

func (s *Store) resealColumn(tx *gorm.DB, at place) (resealed int, err error) {
	var rows []struct{ ID, Sealed string }
	err = tx.Raw(fmt.Sprintf("SELECT %s AS id, %s AS sealed FROM %s WHERE %s <> '' ORDER BY 1", at.key, at.column, at.table, at.column)).
		Scan(&rows).Error
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		if s.ring.Current(r.Sealed) {
			continue
		}
		secret, err := s.open(at, r.ID, r.Sealed)
		if err != nil {
			return resealed, err
		}
		sealed, err := s.seal(at, r.ID, secret)
		if err != nil {
			return resealed, err
		}
		if err := tx.Exec(fmt.Sprintf("UPDATE %s SET %s = ? WHERE %s = ?", at.table, at.column, at.key), sealed, r.ID).Error; err != nil {
			return resealed, err
		}
		resealed++
	}
	return resealed, nil
}
