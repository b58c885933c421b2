package catalog

import (
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// The entities below are the tables. Their column tags are what the migrations create; a
// test of the store compares both. Times are epoch milliseconds (UTC) in BIGINT columns in
// both dialects, and JSON lives in text columns, so that one suite of queries serves both.

// Names of the tables that more than one package has to agree on.
const (
	TableProviders        = "providers"
	TableConnections      = "connections"
	TableConnectionTokens = "connection_tokens"
	TableConnectionStates = "connection_states"
	TableCircuitBreakers  = "domain_circuit_breakers"
)

// Words of the change feed. The store notifies in the transaction that makes the change;
// the feed listens. A notification is a hint: it carries no content.
const (
	ChangeChannel  = "omniroute_changed"
	ChangedCatalog = "catalog"
	ChangedState   = "state"
)

// Provider is an upstream service.
type Provider struct {
	ID        string          `gorm:"column:id;primaryKey"`
	Class     string          `gorm:"column:class;not null"`
	Dialect   string          `gorm:"column:dialect;not null"`
	BaseURL   string          `gorm:"column:base_url;not null"`
	Timeouts  TimeoutSettings `gorm:"column:timeouts;serializer:json;type:text;not null"`
	CreatedAt int64           `gorm:"column:created_at;autoCreateTime:false;not null"`
	UpdatedAt int64           `gorm:"column:updated_at;autoUpdateTime:false;not null"`

	Kind         string      `gorm:"column:kind;not null"` // empty = the id
	Quota        Quota       `gorm:"column:quota;serializer:json;type:text;not null"`
	EgressShared *bool       `gorm:"column:egress_shared"` // nil = what the kind is known for
	OAuth        OAuthClient `gorm:"column:oauth;serializer:json;type:text;not null"`
	// ClientSecret is sealed for this row and column; empty when the client is public.
	ClientSecret string `gorm:"column:oauth_client_secret;not null"`
}

// Connection is one account or key at a provider.
type Connection struct {
	ID            string `gorm:"column:id;primaryKey"`
	ProviderID    string `gorm:"column:provider_id;not null"`
	Priority      int    `gorm:"column:priority;not null"`
	MaxConcurrent int    `gorm:"column:max_concurrent;not null"` // 0 = unbounded
	Disabled      bool   `gorm:"column:disabled;not null"`
	// Credential is the API key or the access token that the catalog declares, sealed for this
	// row and column; empty when there is none. Form says which of the two it is.
	Credential string         `gorm:"column:credential;not null"`
	Form       CredentialForm `gorm:"column:credential_form;not null"`
	// RefreshToken is the declared one, sealed; empty when there is none.
	RefreshToken   string `gorm:"column:refresh_token;not null"`
	TokenExpiresAt int64  `gorm:"column:token_expires_at;not null"` // of the declared access token; 0 = unknown
	// TokenGeneration is that of the declared credential. It grows when the credential changes,
	// past every generation that descended from the one before.
	TokenGeneration int64  `gorm:"column:token_generation;not null"`
	Passthrough     *bool  `gorm:"column:passthrough_models"` // nil = as the provider
	DisableCooling  bool   `gorm:"column:disable_cooling;not null"`
	Proxy           string `gorm:"column:proxy;not null"` // sealed: its URL may hold a password
	LocalAddress    string `gorm:"column:local_address;not null"`
	CreatedAt       int64  `gorm:"column:created_at;autoCreateTime:false;not null"`
	UpdatedAt       int64  `gorm:"column:updated_at;autoUpdateTime:false;not null"`

	Plan *DocPlan `gorm:"column:plan;serializer:json;type:text"` // nil = none was entered
}

// CredentialForm is what a connection authenticates with.
type CredentialForm string

// Forms of credentials.
const (
	FormAPIKey CredentialForm = "api_key"
	FormTokens CredentialForm = "tokens"
)

// ConnectionTokens are the newest tokens of a connection, once its declared ones have been
// refreshed. The row goes with the credential that it descends from.
type ConnectionTokens struct {
	ConnectionID string `gorm:"column:connection_id;primaryKey"`
	Generation   int64  `gorm:"column:generation;not null"`
	Sealed       string `gorm:"column:tokens;not null"`     // JSON of both tokens, sealed for this row and column
	ExpiresAt    int64  `gorm:"column:expires_at;not null"` // of the access token; 0 = unknown
	Declared     string `gorm:"column:declared;not null"`   // HMAC of the credential they descend from, 64 hex digits
	UpdatedAt    int64  `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// TableName names the table of refreshed tokens.
func (ConnectionTokens) TableName() string { return TableConnectionTokens }

// Model is a model at a provider, by the provider's own id.
type Model struct {
	ProviderID    string   `gorm:"column:provider_id;primaryKey"`
	ID            string   `gorm:"column:id;primaryKey"`
	ContextWindow int      `gorm:"column:context_window;not null"`                    // tokens; 0 = unknown
	PriceInput    float64  `gorm:"column:price_input;type:double precision;not null"` // currency units per million tokens
	PriceOutput   float64  `gorm:"column:price_output;type:double precision;not null"`
	PriceKnown    bool     `gorm:"column:price_known;not null"` // a price that is not zero is known in any case
	Capabilities  []string `gorm:"column:capabilities;serializer:json;type:text;not null"`
	MaxOutput     int      `gorm:"column:max_output;not null"` // tokens; 0 = unknown
	CreatedAt     int64    `gorm:"column:created_at;autoCreateTime:false;not null"`
	UpdatedAt     int64    `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// Combo is a named group of targets and a strategy.
type Combo struct {
	Name      string      `gorm:"column:name;primaryKey"`
	Strategy  string      `gorm:"column:strategy;not null"`
	Config    ComboConfig `gorm:"column:config;serializer:json;type:text;not null"`
	CreatedAt int64       `gorm:"column:created_at;autoCreateTime:false;not null"`
	UpdatedAt int64       `gorm:"column:updated_at;autoUpdateTime:false;not null"`

	Description      string              `gorm:"column:description;not null"`
	AllowedProviders []models.ProviderID `gorm:"column:allowed_providers;serializer:json;type:text;not null"`
	ContextLength    int                 `gorm:"column:context_length;not null"` // tokens; 0 = as its targets
	Disabled         bool                `gorm:"column:disabled;not null"`
}

// ComboTarget is one leg of a combo, at its position in the list: a model, a pattern of a
// provider's models, or another combo.
type ComboTarget struct {
	ComboName    string  `gorm:"column:combo_name;primaryKey"`
	Position     int     `gorm:"column:position;primaryKey;autoIncrement:false"`
	ProviderID   *string `gorm:"column:provider_id"`
	ModelID      *string `gorm:"column:model_id"`
	ConnectionID *string `gorm:"column:connection_id"` // nil = every connection of the provider
	Weight       float64 `gorm:"column:weight;type:double precision;not null"`

	StepID             string                `gorm:"column:step_id;not null"` // empty = an older version wrote the row
	Pattern            *string               `gorm:"column:pattern"`
	InnerCombo         *string               `gorm:"column:inner_combo"`
	AllowedConnections []models.ConnectionID `gorm:"column:allowed_connections;serializer:json;type:text;not null"`
	Label              string                `gorm:"column:label;not null"`
	Tags               []string              `gorm:"column:tags;serializer:json;type:text;not null"`
	Prompt             string                `gorm:"column:prompt;not null"`
	OnlyOnQuota        bool                  `gorm:"column:only_on_quota;not null"`
}

// APIKey is a key that clients present. Only its HMAC is here.
type APIKey struct {
	ID     string `gorm:"column:id;primaryKey"`
	Name   string `gorm:"column:name;not null"`
	Hash   string `gorm:"column:hash;not null"` // HMAC-SHA256, 64 hex digits
	Scopes string `gorm:"column:scopes;type:text;not null"`
	// The allow-lists are JSON lists of names; NULL allows all.
	AllowedConnections *string `gorm:"column:allowed_connections;type:text"`
	AllowedModels      *string `gorm:"column:allowed_models;type:text"`
	ExpiresAt          *int64  `gorm:"column:expires_at"`
	CreatedAt          int64   `gorm:"column:created_at;autoCreateTime:false;not null"`
	UpdatedAt          int64   `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// TableName implements gorm's tabler: the default would be a_p_i_keys-like guesswork.
func (APIKey) TableName() string { return "api_keys" }

// Setting is one top-level section of the settings document.
type Setting struct {
	Name      string `gorm:"column:name;primaryKey"`
	Value     string `gorm:"column:value;type:text;not null"` // JSON
	UpdatedAt int64  `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// Audit is one administrative change: who did what to which entity. Detail is the diff
// line, in which a credential reads "(changed)".
type Audit struct {
	ID     int64  `gorm:"column:id;primaryKey;autoIncrement"`
	At     int64  `gorm:"column:at;not null"`
	Actor  string `gorm:"column:actor;not null"`
	Action string `gorm:"column:action;not null"`
	Kind   string `gorm:"column:kind;not null"`
	Entity string `gorm:"column:entity;not null"`
	Detail string `gorm:"column:detail;type:text;not null"`
}

// TableName names the audit trail.
func (Audit) TableName() string { return "audit_log" }

// Meta is the catalog's single row: its revision, and two values by which a start with the
// wrong key ring is noticed before anything is served or written.
type Meta struct {
	ID       int    `gorm:"column:id;primaryKey;autoIncrement:false"` // always 1
	Revision int64  `gorm:"column:revision;not null"`
	SealTest string `gorm:"column:seal_test;not null"` // a known text, sealed
	HashTest string `gorm:"column:hash_test;not null"` // a known text, hashed
}

// TableName names the single-row table.
func (Meta) TableName() string { return "catalog_meta" }

// ConnectionStateRow is a connection's published state. State holds the exact register; the
// columns beside it are what SQL and people need. There is no foreign key on purpose: a
// workflow may outlive its connection, and the row of a removed connection stays as a
// tombstone with a newer era, which ends that workflow and outranks it when the id returns.
type ConnectionStateRow struct {
	ConnectionID   string `gorm:"column:connection_id;primaryKey"`
	ProviderID     string `gorm:"column:provider_id;not null"`
	Era            int64  `gorm:"column:era;not null"`
	Version        int64  `gorm:"column:version;not null"`
	Phase          string `gorm:"column:phase;not null"`
	Reason         string `gorm:"column:reason;not null"`
	Status         int    `gorm:"column:status;not null"`
	Level          int    `gorm:"column:level;not null"`
	UntilAt        int64  `gorm:"column:until_at;not null"` // 0 = no deadline
	AppliedThrough int64  `gorm:"column:applied_through;not null"`
	State          string `gorm:"column:state;type:text;not null"` // JSON of RegisterState
	UpdatedAt      int64  `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// TableName names the table of published connection states.
func (ConnectionStateRow) TableName() string { return TableConnectionStates }

// CircuitBreakerRow is a provider's published opening and the lease of its half-open probe.
type CircuitBreakerRow struct {
	Name            string `gorm:"column:name;primaryKey"` // the provider's id
	Era             int64  `gorm:"column:era;not null"`
	Version         int64  `gorm:"column:version;not null"`
	State           string `gorm:"column:state;not null"`
	FailureCount    int    `gorm:"column:failure_count;not null"`
	LastFailureTime int64  `gorm:"column:last_failure_time;not null"`
	Cycle           int    `gorm:"column:cycle;not null"`
	UntilAt         int64  `gorm:"column:until_at;not null"`
	AppliedThrough  int64  `gorm:"column:applied_through;not null"`
	Opening         string `gorm:"column:opening;type:text;not null"` // JSON of OpeningState
	ProbeOwner      string `gorm:"column:probe_owner;not null"`
	ProbeUntil      int64  `gorm:"column:probe_until;not null"`
	UpdatedAt       int64  `gorm:"column:updated_at;autoUpdateTime:false;not null"`
}

// TableName names the guide's breaker table (guide section 1).
func (CircuitBreakerRow) TableName() string { return TableCircuitBreakers }

// RegisterState and OpeningState are the exact published values. Milliseconds are for SQL;
// merging compares instants, and a rounded instant would not equal itself.
type (
	RegisterState struct {
		resilience.Connection
		AppliedThrough time.Time `json:"appliedThrough,omitzero"`
	}
	OpeningState struct {
		resilience.Provider
		AppliedThrough time.Time `json:"appliedThrough,omitzero"`
	}
)

// RequestRow is one finished request.
type RequestRow struct {
	ID           string `gorm:"column:id;primaryKey"`
	ClientID     string `gorm:"column:client_request_id;not null"` // empty when the client has none
	KeyID        string `gorm:"column:key_id;not null"`
	Asked        string `gorm:"column:asked;not null"`
	Served       string `gorm:"column:served;not null"`
	ConnectionID string `gorm:"column:connection_id;not null"`
	Attempts     int    `gorm:"column:attempts;not null"`
	Status       int    `gorm:"column:status;not null"`
	Reason       string `gorm:"column:reason;not null"`
	Stream       bool   `gorm:"column:stream;not null"`
	InputTokens  int64  `gorm:"column:input_tokens;not null"`
	OutputTokens int64  `gorm:"column:output_tokens;not null"`
	StartedAt    int64  `gorm:"column:started_at;not null"`
	FirstTokenMs int64  `gorm:"column:first_token_ms;not null"` // 0 = no content came
	TotalMs      int64  `gorm:"column:total_ms;not null"`
}

// TableName names the request log.
func (RequestRow) TableName() string { return "requests" }
