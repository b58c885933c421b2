package catalog

import (
	"time"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// Snapshot is the whole catalog as the hot path reads it: immutable, indexed, with
// credentials opened. A new one replaces it as a whole.
type Snapshot struct {
	Revision    int64 // grows with every catalog change
	Settings    Settings
	Providers   map[models.ProviderID]*ProviderView
	Connections map[models.ConnectionID]*ConnectionView
	Models      map[models.ModelRef]*ModelView
	Combos      map[string]*ComboView
	// Keys finds a gateway key by the HMAC-SHA256 of what the client presented.
	Keys map[[32]byte]*KeyView
	// Routes resolves every name a client may call: "provider/model", a bare model id that
	// exactly one provider has, or a combo name.
	Routes map[string]*Route
	// Names lists the keys of Routes that GET /v1/models shows, sorted.
	Names []string
}

// ProviderView is one provider as the hot path sees it.
type ProviderView struct {
	ID          models.ProviderID
	Class       models.Class
	Dialect     string
	BaseURL     string // without a trailing slash
	Timeouts    Timeouts
	Breaker     resilience.BreakerPolicy
	Cooldown    resilience.CooldownPolicy
	Lockout     resilience.LockoutPolicy
	Gate        resilience.WindowPolicy
	Connections []*ConnectionView // by priority, then id

	Kind          string         // which built-in rules and facts apply; the id unless the catalog names another
	Rules         *failure.Rules // the built-in ones and the operator's
	PerModelQuota bool           // a 429 is about a model or its family, not about the account
	EgressShared  bool           // the provider limits by the address that requests come from
	OAuth         *OAuthView     // nil when the provider has no token endpoint
}

// OAuthView is how a provider's tokens are refreshed (RFC 6749 section 6).
type OAuthView struct {
	TokenURL     string
	ClientID     string
	ClientSecret Secret
	Scopes       []string
}

// ConnectionView is one account or key as the hot path sees it.
type ConnectionView struct {
	ID            models.ConnectionID
	Provider      *ProviderView
	Priority      int
	MaxConcurrent int // 0 = unbounded
	Disabled      bool
	APIKey        Secret // the API key, or the access token that holds now

	Policy        resilience.ConnectionPolicy
	PerModelQuota bool   // the provider's, unless the connection says otherwise
	Egress        string // what its requests leave through; two connections with one share an address
	Proxy         Secret // URL of the proxy, which may hold a password; empty = the environment's
	LocalAddress  string // IP address its requests leave from; empty = the machine's choice

	Renewable       bool      // it has a refresh token and its provider a token endpoint
	TokenGeneration int64     // grows with every refresh
	TokenExpiresAt  time.Time // of the access token; zero = unknown

	Plan *QuotaPlan // nil = none was entered
}

// ModelView is one model at a provider.
type ModelView struct {
	Ref           models.ModelRef
	ContextWindow int
	PriceInput    float64 // currency units per million tokens
	PriceOutput   float64
	Capabilities  []string
	Family        string // the quota family it shares at its provider; empty = none
	CreatedAt     time.Time
}

// ComboView is a named group of targets and a strategy.
type ComboView struct {
	Name     string
	Strategy string
	Config   ComboConfig
	Route    *Route
}

// Route is what a model name resolves to, worked out once per snapshot.
type Route struct {
	Name  string
	Combo *ComboView // nil for a plain model
	Legs  []Leg
}

// Leg is one target of a route with the connections that can serve it, by priority.
type Leg struct {
	Model       *ModelView
	Connections []*ConnectionView
	Weight      int
}

// KeyView is a gateway API key as the hot path sees it.
type KeyView struct {
	ID          models.APIKeyID
	Name        string
	Scopes      map[string]bool
	Connections map[models.ConnectionID]bool // nil = all
	Models      map[string]bool              // route names; nil = all
	ExpiresAt   time.Time                    // zero = never
}

// Valid reports whether the key has not expired.
func (k *KeyView) Valid(now time.Time) bool { return k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt) }

// Secret is a credential in memory. It prints, logs and marshals as "[redacted]". The value is
// behind a pointer because fmt, given a verb that does not fit an outer value, prints the
// fields of inner ones without asking their methods; of a pointer it then prints the address.
type Secret struct{ value *string }

// NewSecret wraps a clear value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{&value}
}

// Reveal returns the clear value, for the one place that sends it upstream.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// Equal reports whether both hide the same value.
func (s Secret) Equal(o Secret) bool {
	return s.value == o.value || s.value != nil && o.value != nil && *s.value == *o.value
}

// Empty reports whether there is no value.
func (s Secret) Empty() bool { return s.value == nil }

// String implements fmt.Stringer without the value.
func (Secret) String() string { return "[redacted]" }

// GoString implements fmt.GoStringer without the value.
func (Secret) GoString() string { return "[redacted]" }

// MarshalText implements encoding.TextMarshaler without the value.
func (Secret) MarshalText() ([]byte, error) { return []byte("[redacted]"), nil }
