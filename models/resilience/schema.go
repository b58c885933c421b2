package resilience

import (
	"fmt"
	"slices"
	"time"
)

// Setting is one value of the resilience settings. Defaults, clamps, validation, the
// management API and the documents take what they say of a setting from here.
type Setting struct {
	Path string // such as providerBreaker.apikey.failureThreshold
	Kind Kind
	Unit string // of an integer
	// Default is the built-in one, an int64, a bool or an []int; nil where it follows from other
	// settings (see derived).
	Default any
	// Min and Max bound an integer, or each entry of a list. Other settings may narrow them (see
	// bounds).
	Min, Max int64
	Env      string // variable that replaces the default; empty when none does
	Meaning  string // one sentence
}

// Kind is what a setting's value looks like.
type Kind string

// Kinds of settings.
const (
	KindInteger Kind = "integer"
	KindSwitch  Kind = "boolean"
	KindCodes   Kind = "list of integers"
)

// Units of integers.
const (
	Milliseconds = "ms"
	Seconds      = "s"
	Count        = "count"
	HTTPStatus   = "HTTP status"
)

const (
	longest   = 24 * time.Hour
	longestMs = int64(longest / time.Millisecond)
	hourMs    = int64(time.Hour / time.Millisecond)
	// longestWaitMs is as long as any client can be expected to hold its line.
	longestWaitMs = 300_000
)

// maxCodes bounds the list of statuses.
const maxCodes = 100

// Schema lists every setting of the resilience section, in the order of the document.
func Schema() []Setting { return slices.Clone(schema) }

var schema = slices.Concat(
	eachClass("connectionCooldown",
		row{
			"baseCooldownMs", Milliseconds, of(5000, 3000, 2000), 0, longestMs, "",
			"First cooldown of a connection whose upstream does not say how long to stay away; 0 is taken as 1000.",
		},
		row{
			"maxBackoffSteps", Count, of(8, 5, 3), 0, 32, "",
			"How often the first cooldown doubles while episodes of failures follow each other.",
		},
		row{
			"maxCooldownMs", Milliseconds, same(1_800_000), 1, longestMs, "",
			"Longest cooldown that is guessed, and longest lockout of a model by a rule where modelLockout does not apply; what an upstream asks for may exceed it. Never below baseCooldownMs.",
		},
		row{
			"useUpstreamRetryHints", "", same(true), 0, 0, "",
			"Whether Retry-After and its kind, in headers and bodies, decide how long a connection cools.",
		},
	),
	eachClass("providerBreaker",
		row{
			"failureThreshold", Count, of(8, 12, 2), 1, 1000, "OMNIROUTE_CIRCUIT_BREAKER_%s_THRESHOLD",
			"Failures within windowMs that open the breaker.",
		},
		row{
			"degradationThreshold", Count, of(5, 7, nil), 1, 1000, "OMNIROUTE_PROVIDER_BREAKER_%s_DEGRADATION_THRESHOLD",
			"Failures within windowMs that rank the provider last; below failureThreshold. Local: 60 % of failureThreshold, rounded up.",
		},
		row{
			"resetTimeoutMs", Milliseconds, of(60_000, 30_000, 15_000), 1000, longestMs, "OMNIROUTE_CIRCUIT_BREAKER_%s_RESET_MS",
			"How long an open breaker stays open before one request probes the provider.",
		},
		row{
			"windowMs", Milliseconds, same(120_000), 1000, longestMs, "",
			"How long a failure counts.",
		},
		row{
			"probeTimeoutMs", Milliseconds, same(nil), 1000, longestMs, "",
			"How long a probe may take before another is let through; as long as resetTimeoutMs.",
		},
		row{
			"maxBackoffMultiplier", Count, of(8, 4, 16), 1, 1000, "OMNIROUTE_PROVIDER_BREAKER_%s_MAX_BACKOFF_MULTIPLIER",
			"How many times resetTimeoutMs the breaker stays open at most when probes go on failing.",
		},
		row{
			"backoffEscalationCount", Count, of(2, 3, 3), 0, 100, "OMNIROUTE_PROVIDER_BREAKER_%s_BACKOFF_ESCALATION_COUNT",
			"Failed probes in a row before the time open begins to double.",
		},
	),
	[]Setting{
		{
			"providerCooldown.enabled", KindSwitch, "", false, 0, 0, "PROVIDER_COOLDOWN_ENABLED",
			"Whether a provider that fails too often is left out of combos for a while.",
		},
		{
			"providerCooldown.minRetryCooldownMs", KindInteger, Milliseconds, int64(5000), 0, hourMs, "PROVIDER_COOLDOWN_MIN_MS",
			"First pause of a single connection under the provider cooldown; doubles with each failure.",
		},
		{
			"providerCooldown.maxRetryCooldownMs", KindInteger, Milliseconds, int64(300_000), 0, longestMs, "PROVIDER_COOLDOWN_MAX_MS",
			"Longest pause of a single connection under the provider cooldown; never below minRetryCooldownMs.",
		},
	},
	eachClass("providerCooldown",
		row{
			"failureThreshold", Count, of(10, 15, 2), 1, 1000, "OMNIROUTE_PROVIDER_BREAKER_%s_FAILURE_THRESHOLD",
			"Failures of the provider within failureWindowMs that set its cooldown.",
		},
		row{
			"failureWindowMs", Milliseconds, of(900_000, 1_800_000, 300_000), 1000, longestMs, "OMNIROUTE_PROVIDER_BREAKER_%s_FAILURE_WINDOW_MS",
			"How long a failure counts towards the provider cooldown.",
		},
		row{
			"cooldownMs", Milliseconds, of(300_000, 600_000, 60_000), 1000, longestMs, "OMNIROUTE_PROVIDER_BREAKER_%s_COOLDOWN_MS",
			"How long combos then leave the provider alone.",
		},
	),
	[]Setting{
		{
			"modelLockout.enabled", KindSwitch, "", false, 0, 0, "",
			"Whether failures with one of errorCodes lock the model out by this policy, shared by all replicas, instead of by the connection's cooldown.",
		},
		{
			"modelLockout.errorCodes", KindCodes, HTTPStatus,
			[]int{403, 404, 429, 502, 503, 504},
			100, 599, "",
			"Upstream statuses that lock a model out by this policy; an empty list is the default.",
		},
		{
			"modelLockout.baseCooldownMs", KindInteger, Milliseconds, int64(120_000), 5000, 600_000, "",
			"First lockout of a model.",
		},
		{
			"modelLockout.useExponentialBackoff", KindSwitch, "", true, 0, 0, "",
			"Whether lockouts that follow each other double; otherwise each lasts baseCooldownMs.",
		},
		{
			"modelLockout.maxBackoffSteps", KindInteger, Count, int64(10), 0, 20, "",
			"How often the first lockout doubles.",
		},
		{
			"modelLockout.maxCooldownMs", KindInteger, Milliseconds, int64(1_800_000), 5000, hourMs, "",
			"Longest lockout that is guessed or set by a rule; a reset that the provider declares may exceed it. Never below baseCooldownMs.",
		},
		{
			"modelLockout.escalationWindowMs", KindInteger, Milliseconds, int64(1_800_000), 0, hourMs, "",
			"How long after the end of a lockout another failure still doubles it; 0 forgets one doubling for every longest lockout of quiet.",
		},

		{
			"expiredRetry.maxRetries", KindInteger, Count, int64(3), 0, 10, "",
			"Retries of expired credentials before the connection is expired until it is reset or gets new ones.",
		},
		{
			"expiredRetry.baseDelayMs", KindInteger, Milliseconds, int64(300_000), 1000, longestMs, "",
			"Wait before the first retry of expired credentials; doubles for each.",
		},

		{
			"comboCooldownWait.enabled", KindSwitch, "", false, 0, 0, "",
			"Whether a request to a combo whose targets are all out waits for one that is soon back.",
		},
		{
			"comboCooldownWait.maxWaitMs", KindInteger, Milliseconds, int64(90_000), 0, longestWaitMs, "",
			"Longest single wait; 0 does not wait.",
		},
		{
			"comboCooldownWait.maxAttempts", KindInteger, Count, int64(5), 0, 10, "",
			"Waits of one request; 0 does not wait.",
		},
		{
			"comboCooldownWait.budgetMs", KindInteger, Milliseconds, int64(longestWaitMs), 0, longestWaitMs, "",
			"All waits of one request together; never below maxWaitMs.",
		},

		{
			"waitForCooldown.enabled", KindSwitch, "", false, 0, 0, "",
			"Whether a request to a plain model that is out everywhere waits for a connection that is soon back.",
		},
		{
			"waitForCooldown.maxRetries", KindInteger, Count, int64(5), 0, 10, "",
			"Waits of one request; 0 does not wait.",
		},
		{
			"waitForCooldown.maxRetryWaitSec", KindInteger, Seconds, int64(90), 0, longestWaitMs / 1000, "",
			"Longest single wait; 0 does not wait.",
		},
		{
			"waitForCooldown.budgetMs", KindInteger, Milliseconds, int64(longestWaitMs), 0, longestWaitMs, "",
			"All waits of one request together; never below maxRetryWaitSec.",
		},
	},
)

// row is a setting of a section that has one value for each class.
type row struct {
	name, unit string
	defaults   [3]any
	min, max   int64
	env        string // %s stands for the class
	meaning    string
}

// classes are the classes of providers as settings and variables write them.
var classes = [3]struct{ name, env string }{{"oauth", "OAUTH"}, {"apikey", "API_KEY"}, {"local", "LOCAL"}}

// of are the defaults for oauth, apikey and local.
func of(defaults ...any) [3]any { return [3]any(defaults) }

func same(value any) [3]any { return [3]any{value, value, value} }

func eachClass(section string, rows ...row) []Setting {
	var settings []Setting
	for i, class := range classes {
		for _, r := range rows {
			s := Setting{
				Path: section + "." + class.name + "." + r.name, Kind: KindInteger, Unit: r.unit,
				Min: r.min, Max: r.max, Meaning: r.meaning,
			}
			switch value := r.defaults[i].(type) {
			case int:
				s.Default = int64(value)
			case bool:
				s.Kind, s.Default = KindSwitch, value
			}
			if r.env != "" {
				s.Env = fmt.Sprintf(r.env, class.env)
			}
			settings = append(settings, s)
		}
	}
	return settings
}

// bounds are what a setting may be, beside the values of the others.
func (s *Settings) bounds(f *field) (low, high int64) {
	low, high = f.Min, f.Max
	switch {
	case f.name == "degradationThreshold":
		high = max(low, s.integer(f.parent+"failureThreshold")-1)
	case f.name == "maxCooldownMs":
		low = max(low, s.integer(f.parent+"baseCooldownMs"))
	case f.name == "maxRetryCooldownMs":
		low = max(low, s.integer(f.parent+"minRetryCooldownMs"))
	case f.Path == "comboCooldownWait.budgetMs":
		low = s.integer("comboCooldownWait.maxWaitMs")
	case f.Path == "waitForCooldown.budgetMs":
		low = 1000 * s.integer("waitForCooldown.maxRetryWaitSec")
	}
	return low, high
}

// derived is the default of a setting that follows from others.
func (s *Settings) derived(f *field) any {
	if f.name == "degradationThreshold" {
		return (s.integer(f.parent+"failureThreshold")*3 + 4) / 5 // 60 %, rounded up
	}
	return s.integer(f.parent + "resetTimeoutMs") // of probeTimeoutMs
}
