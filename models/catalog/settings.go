package catalog

import (
	"slices"
	"time"

	"omniroute/models"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// Settings is the operator's settings as they are in force.
type Settings struct {
	Resilience resilience.Settings
	Timeouts   TimeoutSettings
	Limits     LimitSettings
	// The rules of each provider, by its id or its kind (guide section 7).
	ProviderErrorRules map[string][]failure.OperatorRule
	StatusRestatements map[string][]failure.Restatement
	ResponsePredicates map[string][]failure.Predicate
	// CustomBannedSignals are texts in an error that ban a connection, beside the built-in ones
	// (guide section 2).
	CustomBannedSignals []string

	ComboDefaults     ComboConfig             // what every combo begins with
	ProviderOverrides map[string]TargetConfig // what targets at a provider begin with then
	ModelMappings     []ModelMapping          // the first that fits a name decides
	EmergencyFallback EmergencySettings
}

// Rules are what a provider's answers are held against: the operator's rules for its id, then
// those for its kind, then the built-in ones.
func (s *Settings) Rules(provider models.ProviderID, kind string) *failure.Rules {
	return failure.NewRules(kind,
		rulesOf(s.ProviderErrorRules, provider, kind),
		rulesOf(s.StatusRestatements, provider, kind),
		rulesOf(s.ResponsePredicates, provider, kind),
		s.CustomBannedSignals)
}

func rulesOf[T any](rules map[string][]T, provider models.ProviderID, kind string) []T {
	if kind == string(provider) {
		return rules[kind]
	}
	return slices.Concat(rules[string(provider)], rules[kind])
}

// EffectiveSettings are the settings with every value set, for people to read.
type EffectiveSettings struct {
	Resilience          resilience.Settings               `json:"resilience"`
	Timeouts            TimeoutSettings                   `json:"timeouts"`
	Limits              LimitSettings                     `json:"limits"`
	ProviderErrorRules  map[string][]failure.OperatorRule `json:"providerErrorRules"`
	StatusRestatements  map[string][]failure.Restatement  `json:"statusRestatements"`
	ResponsePredicates  map[string][]failure.Predicate    `json:"responsePredicates"`
	CustomBannedSignals []string                          `json:"customBannedSignals"`
	ComboDefaults       ComboConfig                       `json:"comboDefaults"`
	ProviderOverrides   map[string]TargetConfig           `json:"providerOverrides"`
	ModelMappings       []ModelMapping                    `json:"modelMappings"`
	EmergencyFallback   EmergencySettings                 `json:"emergencyFallback"`
}

// Effective fills in what is not set.
func (s Settings) Effective() EffectiveSettings {
	ms := func(d time.Duration) *int64 { n := d.Milliseconds(); return &n }
	timeouts, limits := s.Timeouts.Over(TimeoutSettings{}), s.Limits.Effective()
	return EffectiveSettings{
		Resilience: s.Resilience.Effective(),
		Timeouts: TimeoutSettings{
			ConnectMs: ms(timeouts.Connect), HeadersMs: ms(timeouts.Headers), FirstContentMs: ms(timeouts.FirstContent),
			IdleMs: ms(timeouts.Idle), TotalMs: ms(timeouts.Total),
		},
		Limits: LimitSettings{
			MaxBodyBytes: &limits.MaxBodyBytes, MaxEventBytes: &limits.MaxEventBytes, MaxAttempts: &limits.MaxAttempts,
		},
		ProviderErrorRules:  orEmpty(s.ProviderErrorRules),
		StatusRestatements:  orEmpty(s.StatusRestatements),
		ResponsePredicates:  orEmpty(s.ResponsePredicates),
		CustomBannedSignals: append([]string{}, s.CustomBannedSignals...),
		ComboDefaults:       s.ComboDefaults.Effective(),
		ProviderOverrides:   orEmpty(s.ProviderOverrides),
		ModelMappings:       append([]ModelMapping{}, s.ModelMappings...),
		EmergencyFallback:   s.EmergencyFallback.effective(),
	}
}

func orEmpty[T any](values map[string]T) map[string]T {
	if values == nil {
		return map[string]T{}
	}
	return values
}

// TimeoutSettings bound the phases of one attempt, in milliseconds. Nil means default;
// a provider may override each.
type TimeoutSettings struct {
	ConnectMs      *int64 `json:"connectMs,omitempty" yaml:"connectMs,omitempty"`           // default 10 s
	HeadersMs      *int64 `json:"headersMs,omitempty" yaml:"headersMs,omitempty"`           // default 120 s; a non-streaming answer starts late
	FirstContentMs *int64 `json:"firstContentMs,omitempty" yaml:"firstContentMs,omitempty"` // default 30 s, from headers to the first meaningful event
	IdleMs         *int64 `json:"idleMs,omitempty" yaml:"idleMs,omitempty"`                 // default 300 s without a byte
	TotalMs        *int64 `json:"totalMs,omitempty" yaml:"totalMs,omitempty"`               // default 600 s for the whole attempt
}

// LimitSettings bound what the gateway buffers.
type LimitSettings struct {
	MaxBodyBytes  *int64 `json:"maxBodyBytes,omitempty" yaml:"maxBodyBytes,omitempty"`   // request body, default 32 MiB
	MaxEventBytes *int64 `json:"maxEventBytes,omitempty" yaml:"maxEventBytes,omitempty"` // one SSE event, default 16 MiB
	MaxAttempts   *int   `json:"maxAttempts,omitempty" yaml:"maxAttempts,omitempty"`     // upstream tries of one request, default 12
}

// Timeouts are the effective limits of one attempt.
type Timeouts struct {
	Connect      time.Duration
	Headers      time.Duration
	FirstContent time.Duration
	Idle         time.Duration
	Total        time.Duration
}

// Default limits of one attempt and of what is buffered.
const (
	DefaultConnectTimeout      = 10 * time.Second
	DefaultHeadersTimeout      = 120 * time.Second
	DefaultFirstContentTimeout = 30 * time.Second
	DefaultIdleTimeout         = 300 * time.Second
	DefaultTotalTimeout        = 600 * time.Second

	DefaultMaxBodyBytes  = 32 << 20
	DefaultMaxEventBytes = 16 << 20
	DefaultMaxAttempts   = 12
)

// Over returns the effective limits of an attempt: a value of t where it is set, else the
// wider setting's, else the default. A provider's settings go over the operator's.
func (t TimeoutSettings) Over(wider TimeoutSettings) Timeouts {
	pick := func(own, outer *int64, fallback time.Duration) time.Duration {
		switch {
		case own != nil:
			return time.Duration(*own) * time.Millisecond
		case outer != nil:
			return time.Duration(*outer) * time.Millisecond
		default:
			return fallback
		}
	}
	return Timeouts{
		Connect:      pick(t.ConnectMs, wider.ConnectMs, DefaultConnectTimeout),
		Headers:      pick(t.HeadersMs, wider.HeadersMs, DefaultHeadersTimeout),
		FirstContent: pick(t.FirstContentMs, wider.FirstContentMs, DefaultFirstContentTimeout),
		Idle:         pick(t.IdleMs, wider.IdleMs, DefaultIdleTimeout),
		Total:        pick(t.TotalMs, wider.TotalMs, DefaultTotalTimeout),
	}
}

// Limits are the effective bounds of what the gateway buffers and tries.
type Limits struct {
	MaxBodyBytes  int64
	MaxEventBytes int64
	MaxAttempts   int
}

// Effective returns the limits with defaults filled in.
func (l LimitSettings) Effective() Limits {
	limits := Limits{DefaultMaxBodyBytes, DefaultMaxEventBytes, DefaultMaxAttempts}
	if l.MaxBodyBytes != nil {
		limits.MaxBodyBytes = *l.MaxBodyBytes
	}
	if l.MaxEventBytes != nil {
		limits.MaxEventBytes = *l.MaxEventBytes
	}
	if l.MaxAttempts != nil {
		limits.MaxAttempts = *l.MaxAttempts
	}
	return limits
}
