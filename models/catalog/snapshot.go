package catalog

import (
	"time"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/routing"
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
	// Routes finds what a name stands for: "provider/model", a bare model id that exactly one
	// provider has, a combo's name, the same after "combo/", or one of the virtual combos "auto",
	// "auto/<category>" and "auto/<category>:<tier>". Clients' names go through Resolve.
	Routes map[string]*Route
	// Names lists the keys of Routes that GET /v1/models shows, sorted.
	Names []string
	// Mappings lead other names to combos; see Resolve.
	Mappings  []Mapping
	Emergency *EmergencyView // nil = off
	// Warnings are about what is allowed and probably not meant, such as a wildcard that no model
	// fits.
	Warnings []string
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
	ContextWindow int // tokens; 0 = unknown
	MaxOutput     int // tokens of an answer; 0 = unknown
	Price         routing.Price
	Capabilities  []string
	Family        string // the quota family it shares at its provider; empty = none
	CreatedAt     time.Time
}

// ComboView is a named group of targets and a strategy, with every value of its configuration in
// force.
type ComboView struct {
	Name          string
	Strategy      string
	ContextLength int             // tokens that a request may have; 0 = as its targets
	Virtual       bool            // no combo of the catalog, but one made of all its models
	Tuning        *routing.Tuning // never nil in a snapshot of the catalog
	Loop          LoopPolicy
	Fusion        FusionPolicy
	Handoff       HandoffPolicy
	Route         *Route
}

// Route is what a model name resolves to, worked out once per snapshot.
type Route struct {
	Name  string
	Combo *ComboView // nil for a plain model
	Legs  []Leg
}

// Leg is one target of a route: a model with the connections that can serve it, by priority, or
// a combo that is run as one target.
type Leg struct {
	// Key is the execution key: the ids of the steps that lead to the target, which stays the same
	// when positions change. No two legs of a route share one.
	Key         string
	Label       string // for people; empty = none
	Model       *ModelView
	Connections []*ConnectionView
	Combo       *ComboView // instead of a model
	Weight      float64
	Tags        []string
	Prompt      string // of a step of the strategy pipeline
	// OnlyOnQuota lets the strategy priority go on to the next target only when every failure of
	// this one was a used-up quota.
	OnlyOnQuota bool
	Policy      TargetPolicy
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
