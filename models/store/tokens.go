package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"omniroute/models"
	"omniroute/models/catalog"
)

// tokenPair is the content of a sealed row of tokens.
type tokenPair struct {
	AccessToken  string `json:"accessToken"`
	RefreshToken string `json:"refreshToken"`
}

// LoadRefresh reads what fetching new tokens for a connection needs. It reports false for a
// connection that is not in the catalog.
func (s *Store) LoadRefresh(ctx context.Context, id models.ConnectionID) (catalog.Refresh, bool, error) {
	var refresh catalog.Refresh
	var found bool
	err := s.reading(ctx, func(tx *gorm.DB) (err error) {
		refresh, found, err = s.loadRefresh(tx, id)
		return err
	})
	return refresh, found, s.fail("read the tokens", err)
}

func (s *Store) loadRefresh(tx *gorm.DB, id models.ConnectionID) (refresh catalog.Refresh, found bool, err error) {
	var row catalog.Connection
	if err := tx.Where("id = ?", id).Take(&row).Error; errors.Is(err, gorm.ErrRecordNotFound) {
		return refresh, false, nil
	} else if err != nil {
		return refresh, false, err
	}
	var provider catalog.Provider
	if err := tx.Where("id = ?", row.ProviderID).Take(&provider).Error; err != nil {
		return refresh, false, err
	}
	settings, err := settingsIn(tx)
	if err != nil {
		return refresh, false, err
	}
	refresh.Expired = settings.Over(s.environment).Resilience.ExpiredPolicy()
	l := s.newLoader(tx)
	client, err := l.client(&provider)
	if err != nil {
		return refresh, false, err
	}
	if client != nil {
		refresh.Client = &catalog.OAuthView{
			TokenURL: client.TokenURL, ClientID: client.ClientID, ClientSecret: client.ClientSecret.Secret, Scopes: client.Scopes,
		}
	}
	conn, err := l.connection(&row)
	if err != nil {
		return refresh, false, err
	}
	refresh.Proxy, refresh.LocalAddress = conn.Proxy.Secret, conn.LocalAddress
	refresh.Generation = row.TokenGeneration
	if refresh.Declared, err = s.fingerprint(conn.Credential); err != nil || !conn.Credential.Tokens() {
		return refresh, true, err
	}
	refresh.RefreshToken, refresh.ExpiresAt = conn.Credential.RefreshToken.Secret, conn.Credential.ExpiresAt

	var newest catalog.ConnectionTokens
	err = tx.Where("connection_id = ? AND declared = ?", id, refresh.Declared).Take(&newest).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return refresh, true, nil
	} else if err != nil {
		return refresh, true, err
	}
	pair, err := s.openTokens(&newest)
	if err != nil {
		return refresh, true, err
	}
	refresh.RefreshToken = catalog.NewSecret(pair.RefreshToken)
	refresh.Generation, refresh.ExpiresAt = newest.Generation, instant(newest.ExpiresAt)
	return refresh, true, nil
}

// SaveTokens stores new tokens in the place of those of the generation that the caller has
// seen, as one compare-and-set: it reports false, and stores nothing, when others have come
// meanwhile or the catalog declares another credential. Every replica hears of it as of a
// change of the catalog.
func (s *Store) SaveTokens(ctx context.Context, id models.ConnectionID, seen int64, tokens catalog.Tokens) (generation int64, saved bool, err error) {
	err = s.changingCatalog(ctx, func(tx *gorm.DB) (bool, error) {
		saved = false
		now, found, err := s.loadRefresh(tx, id)
		if err != nil || !found {
			return false, err
		}
		generation = now.Generation
		if now.Generation != seen || now.Declared != tokens.Declared {
			return false, nil
		}
		generation, saved = seen+1, true
		return true, s.saveTokens(tx, id, generation, tokens)
	})
	return generation, saved && err == nil, s.fail("store the tokens", err)
}

func (s *Store) saveTokens(tx *gorm.DB, id models.ConnectionID, generation int64, tokens catalog.Tokens) error {
	text, err := json.Marshal(tokenPair{tokens.AccessToken.Reveal(), tokens.RefreshToken.Reveal()})
	if err != nil {
		return err
	}
	sealed, err := s.seal(renewedTokens, string(id), catalog.NewSecret(string(text)))
	if err != nil {
		return err
	}
	at, err := s.nowMs(tx)
	if err != nil {
		return err
	}
	return tx.Clauses(clause.OnConflict{UpdateAll: true}).Create(&catalog.ConnectionTokens{
		ConnectionID: string(id), Generation: generation, Sealed: sealed,
		ExpiresAt: millis(tokens.ExpiresAt), Declared: tokens.Declared, UpdatedAt: at,
	}).Error
}

func (s *Store) openTokens(row *catalog.ConnectionTokens) (tokenPair, error) {
	text, err := s.open(renewedTokens, row.ConnectionID, row.Sealed)
	if err != nil {
		return tokenPair{}, err
	}
	var pair tokenPair
	if err := json.Unmarshal([]byte(text.Reveal()), &pair); err != nil {
		// The error of the decoder may quote the text.
		return tokenPair{}, errors.New("the stored tokens are damaged")
	}
	return pair, nil
}

// fingerprint tells declared credentials apart without holding them.
func (s *Store) fingerprint(c *catalog.DocCredential) (string, error) {
	hash, err := s.hashKey("connection credential\x00" + c.Text())
	return catalog.HashText(hash), err
}

// instant is the time of an epoch in milliseconds; 0 is the zero time.
func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
