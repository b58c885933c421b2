package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

// accounts is a catalog whose second connection authenticates with tokens.
const accounts = `
providers:
  - {id: work, class: oauth, baseURL: "https://work.example/v1", kind: codex, egressShared: true, quota: {families: {big: ["gpt-9*"]}},
     oauth: {tokenURL: "https://auth.example/token", clientId: omni, clientSecret: "${CLIENT_SECRET}", scopes: [models, offline]}}
connections:
  - {id: key-1, provider: work, credential: {apiKey: "${OTHER_KEY}"}, localAddress: 127.0.0.2, passthroughModels: false}
  - {id: tokens-1, provider: work, proxy: "${PROXY}", disableCooling: true,
     credential: {accessToken: "${ACCESS}", refreshToken: "${REFRESH}", expiresAt: 2030-06-01T10:00:00Z}}
models: [{id: gpt-9-turbo, provider: work}, {id: gpt-5, provider: work}]
`

const tokensOne = models.ConnectionID("tokens-1")

func (w *world) accounts(t *testing.T) {
	t.Helper()
	w.env["CLIENT_SECRET"], w.env["PROXY"] = "the-client-secret", "http://user:proxy-password@proxy.example:3128"
	w.env["ACCESS"], w.env["REFRESH"] = "declared-access", "declared-refresh"
	w.apply(t, accounts)
}

func (w *world) loadRefresh(t *testing.T) catalog.Refresh {
	t.Helper()
	refresh, found, err := w.store.LoadRefresh(t.Context(), tokensOne)
	require.NoError(t, err)
	require.True(t, found)
	return refresh
}

// renew stores new tokens in the place of what holds now.
func (w *world) renew(t *testing.T, access, refresh string) int64 {
	t.Helper()
	now := w.loadRefresh(t)
	generation, saved, err := w.store.SaveTokens(t.Context(), tokensOne, now.Generation, catalog.Tokens{
		AccessToken: catalog.NewSecret(access), RefreshToken: catalog.NewSecret(refresh),
		ExpiresAt: time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC), Declared: now.Declared,
	})
	require.NoError(t, err)
	require.True(t, saved)
	return generation
}

var tokenTests = map[string]func(*testing.T, *world){
	"WhatTheCatalogSaysOfAnAccountIsInTheSnapshot": func(t *testing.T, w *world) {
		w.accounts(t)

		s := w.snapshot(t)
		provider, key, account := s.Providers["work"], s.Connections["key-1"], s.Connections[tokensOne]
		require.Equal(t, "codex", provider.Kind)
		require.True(t, provider.PerModelQuota && provider.EgressShared)
		require.Equal(t, "big", s.Models[models.ModelRef{Provider: "work", Model: "gpt-9-turbo"}].Family)
		require.Empty(t, s.Models[models.ModelRef{Provider: "work", Model: "gpt-5"}].Family, "the operator's families replace the built-in ones")
		require.Equal(t, "https://auth.example/token", provider.OAuth.TokenURL)
		require.Equal(t, "omni", provider.OAuth.ClientID)
		require.Equal(t, "the-client-secret", provider.OAuth.ClientSecret.Reveal())
		require.Equal(t, []string{"models", "offline"}, provider.OAuth.Scopes)

		require.False(t, key.PerModelQuota || key.Renewable)
		require.Equal(t, "127.0.0.2", key.Egress)
		require.True(t, account.PerModelQuota && account.Policy.NoCooldown && account.Renewable)
		require.Equal(t, "declared-access", account.APIKey.Reveal())
		require.Equal(t, "proxy proxy.example:3128", account.Egress)
		require.Equal(t, "http://user:proxy-password@proxy.example:3128", account.Proxy.Reveal())
		require.True(t, account.TokenExpiresAt.Equal(time.Date(2030, 6, 1, 10, 0, 0, 0, time.UTC)))
		require.Equal(t, "no changes", w.apply(t, accounts).String())
	},

	"ARefreshFindsTheDeclaredTokensAndHowTheConnectionGoesOut": func(t *testing.T, w *world) {
		w.accounts(t)

		refresh := w.loadRefresh(t)

		require.Equal(t, "declared-refresh", refresh.RefreshToken.Reveal())
		require.Equal(t, "https://auth.example/token", refresh.Client.TokenURL)
		require.Equal(t, "the-client-secret", refresh.Client.ClientSecret.Reveal())
		require.Equal(t, "http://user:proxy-password@proxy.example:3128", refresh.Proxy.Reveal())
		require.Equal(t, w.snapshot(t).Connections[tokensOne].TokenGeneration, refresh.Generation)

		byKey, found, err := w.store.LoadRefresh(t.Context(), "key-1")
		require.NoError(t, err)
		require.True(t, found && byKey.RefreshToken.Empty())
		_, found, err = w.store.LoadRefresh(t.Context(), "nobody")
		require.NoError(t, err)
		require.False(t, found)
	},

	"NewTokensAreInEverySnapshotAndApplyingTheFileAgainChangesNothing": func(t *testing.T, w *world) {
		w.accounts(t)
		before, revision := w.snapshot(t).Connections[tokensOne].TokenGeneration, w.revision(t)
		changes, stop := w.store.Watch()
		defer stop()

		generation := w.renew(t, "second-access", "second-refresh")

		require.Equal(t, before+1, generation)
		require.Equal(t, catalog.ChangedCatalog, <-changes)
		require.Equal(t, revision+1, w.revision(t))
		account := w.snapshot(t).Connections[tokensOne]
		require.Equal(t, "second-access", account.APIKey.Reveal())
		require.Equal(t, generation, account.TokenGeneration)
		require.Equal(t, 2031, account.TokenExpiresAt.UTC().Year())
		require.Equal(t, "second-refresh", w.loadRefresh(t).RefreshToken.Reveal())

		require.Equal(t, "no changes", w.apply(t, accounts).String())
		_, found, err := w.store.LoadConnectionState(t.Context(), tokensOne)
		require.NoError(t, err)
		require.False(t, found, "the account is the same, so its era goes on")
		require.Equal(t, generation+1, w.renew(t, "third-access", "third-refresh"))
	},

	"OfTwoRefreshesAtOnceOneIsStored": func(t *testing.T, w *world) {
		w.accounts(t)
		now := w.loadRefresh(t)
		stored, generations := make(chan string, 4), make(chan int64, 4)
		var group errgroup.Group
		for _, name := range []string{"a", "b", "c", "d"} {
			group.Go(func() error {
				generation, saved, err := w.store.SaveTokens(t.Context(), tokensOne, now.Generation, catalog.Tokens{
					AccessToken: catalog.NewSecret(name), RefreshToken: catalog.NewSecret(name), Declared: now.Declared,
				})
				generations <- generation
				if saved {
					stored <- name
				}
				return err
			})
		}

		require.NoError(t, group.Wait())

		for range 4 {
			require.Equal(t, now.Generation+1, <-generations, "whoever comes late is told what holds")
		}
		require.Len(t, stored, 1)
		require.Equal(t, <-stored, w.snapshot(t).Connections[tokensOne].APIKey.Reveal())
	},

	"AnotherDeclaredCredentialEndsTheTokensAndBeginsAnEra": func(t *testing.T, w *world) {
		w.accounts(t)
		late := w.loadRefresh(t)
		second := w.renew(t, "second-access", "second-refresh")

		w.env["REFRESH"] = "another-account"
		diff := w.apply(t, accounts)

		require.Equal(t, "~ connection tokens-1: secret (changed)\n0 to create, 1 to update, 0 to delete", diff.String())
		require.Zero(t, w.count(t, "connection_tokens"))
		account := w.snapshot(t).Connections[tokensOne]
		require.Equal(t, "declared-access", account.APIKey.Reveal())
		require.Greater(t, account.TokenGeneration, second, "nobody takes the old tokens for newer ones")
		state, found, err := w.store.LoadConnectionState(t.Context(), tokensOne)
		require.NoError(t, err)
		require.True(t, found)
		require.EqualValues(t, 1, state.Era)

		// A refresh that was under way brings tokens of the account before.
		_, saved, err := w.store.SaveTokens(t.Context(), tokensOne, account.TokenGeneration, catalog.Tokens{
			AccessToken: catalog.NewSecret("late"), RefreshToken: catalog.NewSecret("late"), Declared: late.Declared,
		})
		require.NoError(t, err)
		require.False(t, saved)
		require.Equal(t, "another-account", w.loadRefresh(t).RefreshToken.Reveal())
	},

	"TokensOfAConnectionThatIsGoneAreNotStored": func(t *testing.T, w *world) {
		w.accounts(t)
		now := w.loadRefresh(t)
		w.renew(t, "second-access", "second-refresh")
		_, err := w.prune(t, "connections: []")
		require.NoError(t, err)

		_, saved, err := w.store.SaveTokens(t.Context(), tokensOne, now.Generation, catalog.Tokens{Declared: now.Declared})

		require.NoError(t, err)
		require.False(t, saved)
		require.Zero(t, w.count(t, "connection_tokens"))
	},

	"NoTokenIsInAnyColumnInClearNorInAnExport": func(t *testing.T, w *world) {
		w.accounts(t)
		w.renew(t, "second-access", "second-refresh")
		secrets := []string{"declared-access", "declared-refresh", "second-access", "second-refresh", "the-client-secret", "proxy-password"}

		text := w.text(t)
		doc, err := w.store.Export(t.Context())
		require.NoError(t, err)
		exported, err := doc.YAML()
		require.NoError(t, err)

		require.Contains(t, text, "connection_tokens.tokens=v1:old:")
		for _, secret := range secrets {
			require.NotContains(t, text, secret)
			require.NotContains(t, string(exported), secret)
		}
		w.env = map[string]string{
			"WORK_CLIENT_SECRET": "the-client-secret", "KEY_1_API_KEY": w.env["OTHER_KEY"], "TOKENS_1_PROXY": w.env["PROXY"],
			"TOKENS_1_ACCESS_TOKEN": "declared-access", "TOKENS_1_REFRESH_TOKEN": "declared-refresh",
		}
		diff, err := w.prune(t, string(exported))
		require.NoError(t, err)
		require.Equal(t, "no changes", diff.String(), string(exported))
	},

	"EveryTokenIsSealedAnewAfterARotation": func(t *testing.T, w *world) {
		w.accounts(t)
		w.renew(t, "second-access", "second-refresh")
		rotated := w.open(t, newKey+","+oldKey)

		resealed, err := rotated.Reseal(t.Context())

		require.NoError(t, err)
		require.Equal(t, 6, resealed, "client secret, key, access and refresh token, proxy, renewed tokens")
		require.NotContains(t, w.text(t), "v1:old:")
		after, err := rotated.LoadSnapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, "second-access", after.Connections[tokensOne].APIKey.Reveal())
	},

	"ASecretThatDoesNotOpenIsToldAndWrittenAgainByTheFile": func(t *testing.T, w *world) {
		w.accounts(t)
		w.renew(t, "second-access", "second-refresh")
		for _, statement := range []string{
			"UPDATE providers SET oauth_client_secret = (SELECT credential FROM connections WHERE id = 'key-1')",
			"UPDATE connections SET proxy = credential WHERE id = 'tokens-1'",
		} {
			_, err := w.sql(t).Exec(statement)
			require.NoError(t, err)
		}

		broken := w.snapshot(t)

		require.Nil(t, broken.Providers["work"].OAuth)
		require.True(t, broken.Connections[tokensOne].Disabled, "no request leaves by another way than it should")
		_, err := w.store.CheckSecrets(t.Context())
		require.ErrorContains(t, err, "2 of the stored credentials do not open")
		_, _, err = w.store.LoadRefresh(t.Context(), tokensOne)
		require.Error(t, err)
		require.Len(t, w.apply(t, accounts).Changes, 2)
		healed := w.snapshot(t)
		require.NotNil(t, healed.Providers["work"].OAuth)
		require.False(t, healed.Connections[tokensOne].Disabled)
		count, err := w.store.CheckSecrets(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, count)
	},

	"AClientSecretAndAProxysPasswordChangeWithoutANewEra": func(t *testing.T, w *world) {
		w.accounts(t)
		w.renew(t, "second-access", "second-refresh")

		w.env["CLIENT_SECRET"], w.env["PROXY"] = "rotated", "http://user:another@proxy.example:3128"
		diff := w.apply(t, accounts)

		require.Equal(t, "~ provider work: oauth.clientSecret (changed)\n~ connection tokens-1: proxy (changed)\n0 to create, 2 to update, 0 to delete", diff.String())
		_, found, err := w.store.LoadConnectionState(t.Context(), tokensOne)
		require.NoError(t, err)
		require.False(t, found)
		refresh := w.loadRefresh(t)
		require.Equal(t, "rotated", refresh.Client.ClientSecret.Reveal())
		require.Contains(t, refresh.Proxy.Reveal(), "another")
		require.Equal(t, "second-refresh", refresh.RefreshToken.Reveal())
	},

	"ARefreshTokenNeedsItsProvidersEndpointWhicheverOfThemChanges": func(t *testing.T, w *world) {
		w.accounts(t)

		_, err := w.store.Apply(t.Context(), w.parse(t, `providers: [{id: work, class: oauth, baseURL: "https://work.example/v1"}]`), store.ApplyOptions{})

		require.EqualError(t, err, `catalog.yaml: stored connection tokens-1: refreshToken needs the oauth.tokenURL of provider "work", which has none`)
	},
}
