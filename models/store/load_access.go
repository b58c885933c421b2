package store

import (
	"omniroute/models"
	"omniroute/models/catalog"
)

func (l *loader) providers() error {
	var rows []catalog.Provider
	if err := l.tx.Order("id").Find(&rows).Error; err != nil {
		return err
	}
	l.stored.Providers = make([]catalog.DocProvider, len(rows))
	for i := range rows {
		r := &rows[i]
		client, err := l.client(r)
		if err != nil {
			l.stored.UnreadableClients[models.ProviderID(r.ID)] = err
		}
		l.stored.Providers[i] = catalog.DocProvider{
			ID: models.ProviderID(r.ID), Class: models.Class(r.Class), Dialect: r.Dialect,
			BaseURL: r.BaseURL, Timeouts: r.Timeouts,
			Kind: r.Kind, Quota: r.Quota, EgressShared: r.EgressShared, OAuth: client,
		}
	}
	return nil
}

// client is a provider's OAuth client, nil when it has none. An error is about its secret
// alone; the rest of it is there.
func (l *loader) client(r *catalog.Provider) (*catalog.DocOAuth, error) {
	if r.OAuth.TokenURL == "" {
		return nil, nil
	}
	secret, err := l.store.open(clientSecrets, r.ID, r.ClientSecret)
	return &catalog.DocOAuth{
		TokenURL: r.OAuth.TokenURL, ClientID: r.OAuth.ClientID, Scopes: r.OAuth.Scopes,
		ClientSecret: catalog.Sealable{Secret: secret},
	}, err
}

func (l *loader) connections() error {
	var rows []catalog.Connection
	if err := l.tx.Order("id").Find(&rows).Error; err != nil {
		return err
	}
	l.stored.Connections = make([]catalog.DocConnection, len(rows))
	for i := range rows {
		conn, err := l.connection(&rows[i])
		if err != nil {
			l.stored.Unreadable[conn.ID] = err
		}
		l.stored.Connections[i] = conn
		l.stored.Tokens[conn.ID] = catalog.StoredTokens{Generation: rows[i].TokenGeneration}
	}
	return nil
}

// connection reads one row. With an error, something sealed did not open, and the connection
// has neither credential nor proxy.
func (l *loader) connection(r *catalog.Connection) (catalog.DocConnection, error) {
	conn := catalog.DocConnection{
		ID: models.ConnectionID(r.ID), Provider: models.ProviderID(r.ProviderID),
		Priority: r.Priority, MaxConcurrent: r.MaxConcurrent, Disabled: r.Disabled,
		PassthroughModels: r.Passthrough, DisableCooling: r.DisableCooling, LocalAddress: r.LocalAddress, Plan: r.Plan,
	}
	bearer, err := l.store.open(credentials, r.ID, r.Credential)
	if err != nil {
		return conn, err
	}
	refresh, err := l.store.open(refreshTokens, r.ID, r.RefreshToken)
	if err != nil {
		return conn, err
	}
	way, err := l.store.open(proxies, r.ID, r.Proxy)
	if err != nil {
		return conn, err
	}
	conn.Proxy = catalog.Sealable{Secret: way}
	switch {
	case bearer.Empty() && refresh.Empty():
	case r.Form == catalog.FormTokens:
		conn.Credential = &catalog.DocCredential{
			AccessToken:  catalog.Sealable{Secret: bearer},
			RefreshToken: catalog.Sealable{Secret: refresh},
			ExpiresAt:    instant(r.TokenExpiresAt),
		}
	default:
		conn.Credential = &catalog.DocCredential{APIKey: catalog.Sealable{Secret: bearer}}
	}
	return conn, nil
}

// tokens reads what has become of declared tokens. A row that descends from another credential
// than the declared one counts as absent.
func (l *loader) tokens() error {
	var rows []catalog.ConnectionTokens
	if err := l.tx.Order("connection_id").Find(&rows).Error; err != nil || len(rows) == 0 {
		return err
	}
	declared := make(map[models.ConnectionID]*catalog.DocCredential, len(rows))
	for _, c := range l.stored.Connections {
		declared[c.ID] = c.Credential
	}
	for i := range rows {
		id := models.ConnectionID(rows[i].ConnectionID)
		if !declared[id].Tokens() {
			continue
		}
		fingerprint, err := l.store.fingerprint(declared[id])
		if err != nil {
			return err
		}
		if rows[i].Declared != fingerprint {
			continue
		}
		pair, err := l.store.openTokens(&rows[i])
		if err != nil {
			l.stored.Unreadable[id] = err
		}
		l.stored.Tokens[id] = catalog.StoredTokens{
			Generation:  rows[i].Generation,
			AccessToken: catalog.NewSecret(pair.AccessToken),
			ExpiresAt:   instant(rows[i].ExpiresAt),
		}
	}
	return nil
}
