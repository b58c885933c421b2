package store

import (
	"omniroute/models/catalog"
)

// provider writes a provider. A sealed value is written only where it changed: one that does
// not open, and is not given anew, stays.
func (a *applier) provider(c catalog.Change) error {
	p := find(a.result.Providers, func(x catalog.DocProvider) bool { return string(x.ID) == c.ID })
	row := &catalog.Provider{
		ID: c.ID, Class: string(p.Class), Dialect: p.Dialect, BaseURL: p.BaseURL, Timeouts: p.Timeouts,
		Kind: p.Kind, Quota: p.Quota, EgressShared: p.EgressShared,
		CreatedAt: a.now, UpdatedAt: a.now,
	}
	kept := []string{"created_at"}
	if p.OAuth != nil {
		row.OAuth = catalog.OAuthClient{TokenURL: p.OAuth.TokenURL, ClientID: p.OAuth.ClientID, Scopes: p.OAuth.Scopes}
		var err error
		if row.ClientSecret, err = a.store.seal(clientSecrets, c.ID, p.OAuth.ClientSecret.Secret); err != nil {
			return err
		}
		if !c.Changes("oauth.clientSecret") {
			kept = append(kept, clientSecrets.column)
		}
	}
	if c.Action == catalog.ActionCreate {
		if err := a.tx.Create(row).Error; err != nil {
			return err
		}
		return a.beginProviderEra(c.ID)
	}
	return a.tx.Select("*").Omit(kept...).Updates(row).Error
}

func (a *applier) connection(c catalog.Change) error {
	conn := find(a.result.Connections, func(x catalog.DocConnection) bool { return string(x.ID) == c.ID })
	row, err := a.connectionRow(&conn)
	if err != nil {
		return err
	}
	if c.Action == catalog.ActionCreate {
		if err := a.tx.Create(row).Error; err != nil {
			return err
		}
		// An earlier connection of this id may have left its state, or a workflow that still
		// publishes it.
		return a.beginEra(c.ID, row.ProviderID, false)
	}
	kept := []string{"created_at"}
	if !c.NewCredential {
		kept = append(kept, credentials.column, "credential_form", refreshTokens.column, "token_generation")
	}
	if !c.NewCredential && !c.Changes("proxy") {
		kept = append(kept, proxies.column)
	}
	if err := a.tx.Select("*").Omit(kept...).Updates(row).Error; err != nil {
		return err
	}
	if c.NewCredential {
		// What was refreshed descends from the old credential.
		if err := a.tx.Delete(&catalog.ConnectionTokens{}, "connection_id = ?", c.ID).Error; err != nil {
			return err
		}
	}
	if !c.NewCredential && !c.Changes("provider") {
		return nil
	}
	return a.beginEra(c.ID, row.ProviderID, true)
}

// connectionRow seals what is secret of a connection. Its generation is past all that
// descended from the credential before, so that nobody takes old tokens for new ones.
func (a *applier) connectionRow(conn *catalog.DocConnection) (*catalog.Connection, error) {
	row := &catalog.Connection{
		ID: string(conn.ID), ProviderID: string(conn.Provider),
		Priority: conn.Priority, MaxConcurrent: conn.MaxConcurrent, Disabled: conn.Disabled,
		Form: catalog.FormAPIKey, TokenGeneration: a.stored.Tokens[conn.ID].Generation + 1,
		Passthrough: conn.PassthroughModels, DisableCooling: conn.DisableCooling, LocalAddress: conn.LocalAddress, Plan: conn.Plan,
		CreatedAt: a.now, UpdatedAt: a.now,
	}
	bearer, refresh := catalog.Secret{}, catalog.Secret{}
	switch credential := conn.Credential; {
	case credential.Tokens():
		row.Form, row.TokenExpiresAt = catalog.FormTokens, millis(credential.ExpiresAt)
		bearer, refresh = credential.AccessToken.Secret, credential.RefreshToken.Secret
	case credential != nil:
		bearer = credential.APIKey.Secret
	}
	for _, secret := range []struct {
		at    place
		value catalog.Secret
		into  *string
	}{
		{credentials, bearer, &row.Credential}, {refreshTokens, refresh, &row.RefreshToken}, {proxies, conn.Proxy.Secret, &row.Proxy},
	} {
		var err error
		if *secret.into, err = a.store.seal(secret.at, row.ID, secret.value); err != nil {
			return nil, err
		}
	}
	return row, nil
}
