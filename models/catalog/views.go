package catalog

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"omniroute/models/resilience"
)

// providers works out what is known of each provider: what the catalog says, over what the
// environment says, over what its kind is known for.
func (b *builder) providers() {
	settings := b.snapshot.Settings
	for _, p := range b.stored.Providers {
		kind := cmp.Or(p.Kind, string(p.ID))
		known := factsOf(kind, p.Class)
		view := &ProviderView{
			ID:            p.ID,
			Class:         p.Class,
			Dialect:       p.Dialect,
			BaseURL:       strings.TrimRight(p.BaseURL, "/"),
			Timeouts:      p.Timeouts.Over(settings.Timeouts),
			Breaker:       settings.Resilience.BreakerPolicy(p.Class),
			Cooldown:      settings.Resilience.CooldownPolicy(p.Class),
			Lockout:       settings.Resilience.LockoutPolicy(),
			Gate:          settings.Resilience.GatePolicy(p.Class),
			Kind:          kind,
			Rules:         settings.Rules(p.ID, kind),
			PerModelQuota: known.perModel,
			EgressShared:  b.egressShared(&p, kind, known),
			OAuth:         b.oauth(&p),
		}
		if p.Quota.PerModel != nil {
			view.PerModelQuota = *p.Quota.PerModel
		}
		b.families[p.ID] = newFamilies(known.families)
		if p.Quota.Families != nil {
			b.families[p.ID] = newFamilies(p.Quota.Families)
		}
		b.snapshot.Providers[p.ID] = view
	}
}

func (b *builder) egressShared(p *DocProvider, kind string, known facts) bool {
	switch named := b.environment.EgressShared; {
	case p.EgressShared != nil:
		return *p.EgressShared
	case named != nil:
		return slices.Contains(named, strings.ToLower(kind)) || slices.Contains(named, strings.ToLower(string(p.ID)))
	default:
		return known.egress
	}
}

// oauth is nil where tokens cannot be refreshed: there is no token endpoint, or the client's
// secret does not open.
func (b *builder) oauth(p *DocProvider) *OAuthView {
	if p.OAuth == nil || b.stored.UnreadableClients[p.ID] != nil {
		return nil
	}
	return &OAuthView{
		TokenURL: p.OAuth.TokenURL, ClientID: p.OAuth.ClientID,
		ClientSecret: p.OAuth.ClientSecret.Secret, Scopes: p.OAuth.Scopes,
	}
}

func (b *builder) connections() {
	for _, c := range b.stored.Connections {
		provider := b.snapshot.Providers[c.Provider]
		if provider == nil {
			continue
		}
		view := b.connection(&c, provider)
		b.snapshot.Connections[c.ID] = view
		provider.Connections = append(provider.Connections, view)
	}
	for _, provider := range b.snapshot.Providers {
		slices.SortFunc(provider.Connections, func(x, y *ConnectionView) int {
			return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.ID, y.ID))
		})
	}
}

func (b *builder) connection(c *DocConnection, provider *ProviderView) *ConnectionView {
	view := &ConnectionView{
		ID:            c.ID,
		Provider:      provider,
		Priority:      c.Priority,
		MaxConcurrent: c.MaxConcurrent,
		// Without its credential a connection can only fail; its siblings serve.
		Disabled: c.Disabled || b.stored.Unreadable[c.ID] != nil,
		APIKey:   c.Credential.bearer(),
		Policy: resilience.ConnectionPolicy{
			Cooldown:   provider.Cooldown,
			Lockout:    provider.Lockout,
			Expired:    b.snapshot.Settings.Resilience.ExpiredPolicy(),
			NoCooldown: c.DisableCooling,
		},
		PerModelQuota: provider.PerModelQuota,
		Egress:        egress(c),
		Proxy:         c.Proxy.Secret,
		LocalAddress:  c.LocalAddress,
	}
	view.Plan = c.Plan.view()
	if c.PassthroughModels != nil {
		view.PerModelQuota = *c.PassthroughModels
	}
	if c.Credential.Tokens() {
		view.tokens(c.Credential, b.stored.Tokens[c.ID])
	}
	return view
}

// tokens puts the newest tokens in the place of the declared ones.
func (v *ConnectionView) tokens(declared *DocCredential, stored StoredTokens) {
	v.Renewable = !declared.RefreshToken.Empty() && v.Provider.OAuth != nil
	v.Policy.Renewable = v.Renewable
	v.TokenGeneration, v.TokenExpiresAt = stored.Generation, declared.ExpiresAt
	if !stored.AccessToken.Empty() {
		v.APIKey, v.TokenExpiresAt = stored.AccessToken, stored.ExpiresAt
	}
}

// egress says what a connection's requests leave through; empty is the machine's own choice.
func egress(c *DocConnection) string {
	if c.Proxy.Empty() {
		return c.LocalAddress
	}
	u, err := url.Parse(c.Proxy.Reveal())
	if err != nil {
		return "" // no file gets past the check with such a one
	}
	return "proxy " + proxyHost(u)
}

// soonExpired is how long before its end an access token is renewed.
const soonExpired = 5 * time.Minute

// Expiring reports whether the access token is due for renewal: it is missing, or it ends
// within five minutes, and there is something to renew it with.
func (v *ConnectionView) Expiring(now time.Time) bool {
	if !v.Renewable {
		return false
	}
	return v.APIKey.Empty() || !v.TokenExpiresAt.IsZero() && v.TokenExpiresAt.Sub(now) <= soonExpired
}
