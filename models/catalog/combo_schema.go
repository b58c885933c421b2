package catalog

import (
	"slices"

	"omniroute/models/resilience"
)

//go:generate go test . -run TestTheDocumentOfCombosIsThatOfTheSchema -write

// ComboSetting is one value of a combo's configuration. Defaults, validation and the document
// take what they say of it from here.
type ComboSetting struct {
	Path string // such as fusionTuning.minPanel
	Kind ComboKind
	Unit string // of a number; empty where it has none
	// Default is an int64, a float64, a bool, a string or a []string; nil where nothing is in force
	// unless it is set.
	Default  any
	Min, Max float64  // bounds of a number, of the length of a text, or of the length of a list
	Words    []string // that a word, or each entry of a list, may be; nil = any text
	Scope    ComboScope
	Meaning  string // one sentence
}

// ComboKind is what a value of the configuration looks like.
type ComboKind string

// Kinds of values.
const (
	ComboInteger ComboKind = "integer"
	ComboNumber  ComboKind = "number"
	ComboSwitch  ComboKind = "boolean"
	ComboWord    ComboKind = "word"
	ComboText    ComboKind = "text"
	ComboTexts   ComboKind = "list of texts"
	ComboTiers   ComboKind = "tiers"
)

// ComboScope says where a value may be set beside a combo itself.
type ComboScope int

// Scopes, the widest first.
const (
	ScopeTarget   ComboScope = iota // in settings.providerOverrides and settings.comboDefaults
	ScopeDefaults                   // in settings.comboDefaults
	ScopeCombo                      // nowhere else
)

// Words of the configuration.
const (
	NestedFlatten = "flatten" // the targets of a nested combo take its place
	NestedExecute = "execute" // a nested combo is run as one target

	ContextStrict  = "strict"  // a context window that is not known does not do
	ContextLenient = "lenient" // it does

	BudgetCheapest = "cheapest" // when nothing is affordable, the cheapest serves
	BudgetStrict   = "strict"   // the request is refused
)

const (
	longestDelay = 60_000
	longestText  = 200
)

// ComboSchema lists every value of a combo's configuration, in the order of the document.
func ComboSchema() []ComboSetting { return slices.Clone(comboSchema) }

var comboSchema = slices.Concat(
	[]ComboSetting{
		count("maxRetries", ScopeTarget, 1, 0, 10, "How often the same target is tried again after a failure that may pass at once."),
		millis("retryDelayMs", ScopeTarget, 2_000, 0, longestDelay, "Wait before the same target is tried again."),
		millis("fallbackDelayMs", ScopeTarget, 0, 0, longestDelay, "Wait before the next target after a 502, 503 or 504; never longer than the failed target cools."),
		millis("targetTimeoutMs", ScopeTarget, 120_000, 0, maxTimeoutMs, "Longest time of one attempt, of a stream until its headers; 0 leaves it to the timeouts of the provider, which bound it in any case."),
		count("concurrencyPerModel", ScopeTarget, 3, 1, 20, "Requests of round-robin and quota-share that one target serves at once, where its connection has no maxConcurrent."),
		millis("queueTimeoutMs", ScopeTarget, 30_000, 1_000, 120_000, "Longest wait of such a request for its turn at a target."),
		count("queueDepth", ScopeTarget, 20, 0, 100, "Requests that wait for their turn at a target; 0 lets none wait."),

		count("maxSetRetries", ScopeDefaults, 0, 0, 10, "How often all targets are gone through again when each has failed."),
		millis("setRetryDelayMs", ScopeDefaults, 2_000, 0, longestDelay, "Wait before all targets are gone through again."),
		count("maxGlobalAttempts", ScopeDefaults, 30, 1, 200, "Attempts of one request together, nested combos included."),
		millis("comboTimeoutMs", ScopeDefaults, 0, 0, maxTimeoutMs, "Longest time of one request until its answer begins; 0 sets no limit."),
		toggle("failoverBeforeRetry", ScopeDefaults, false, "Whether other targets are tried before the same one again."),
		toggle("hedging", ScopeDefaults, false, "Whether the next target is tried as well when the first takes long; the first answer serves."),
		millis("hedgeDelayMs", ScopeDefaults, 500, 0, longestDelay, "How long the first target may take before the next is tried as well."),
		millis("predictiveTtftMs", ScopeDefaults, 0, 0, 300_000, "Targets whose first content took longer than this on average are passed over at first; 0 passes over none."),

		toggle("compatFilterFailOpen", ScopeDefaults, false, "Whether targets that cannot serve a request, as far as is known of their models, are tried when there are no others."),
		count("contextRequirements.minContextWindow", ScopeDefaults, 0, 0, 10_000_000, "Tokens that the context window of a target has at least."),
		toggle("contextRequirements.preferLargeContext", ScopeDefaults, false, "Whether targets with larger context windows go first."),
		word("contextRequirements.contextFilterMode", ScopeDefaults, ContextLenient, []string{ContextLenient, ContextStrict}, "Whether a target with an unknown context window meets minContextWindow (lenient) or does not (strict)."),

		count("stickyRoundRobinLimit", ScopeDefaults, 1, 0, 1_000, "Requests that a target of round-robin serves before it is the next one's turn; 0 is taken as 1."),
		count("stickyWeightedLimit", ScopeDefaults, 1, 0, 1_000, "Successes for which a target that weighted has drawn is kept; 0 is taken as 1."),
		toggle("disableSessionStickiness", ScopeDefaults, false, "Whether a conversation is not kept at the connection that served it last."),

		count("maxComboDepth", ScopeDefaults, 3, 1, 10, "Levels of nested combos below a combo."),
		word("nestedComboMode", ScopeDefaults, NestedFlatten, []string{NestedFlatten, NestedExecute}, "Whether the targets of a nested combo take its place (flatten) or it is run as one target by its own strategy (execute)."),
		{Path: "compositeTiers", Kind: ComboTiers, Scope: ScopeCombo, Meaning: "Named tiers of one target each: the walk begins with defaultTier and follows fallbackTier; other targets come after it."},

		share("resetAwareSessionWeight", 0.35, 0, 100, "What the session window counts for in reset-aware, beside resetAwareWeeklyWeight."),
		share("resetAwareWeeklyWeight", 0.65, 0, 100, "What the weekly window counts for in reset-aware."),
		share("resetAwareTieBandPercent", 5, 0, 100, "Targets of reset-aware that score this close to the best take turns, in percent of a full score."),
		share("resetAwareExhaustionGuardPercent", 10, 0, 100, "Percent left of the session window below which reset-aware spares a target."),
		texts("resetWindowWindows", ScopeDefaults, []string{windowWeekly}, 3, windowNames, "Windows whose resets reset-window goes by."),
		toggle("resetWindowIncludeSession", ScopeDefaults, false, "Whether reset-window goes by the session window too."),
		millis("resetWindowTieBandMs", ScopeDefaults, 60_000, 0, 86_400_000, "Targets of reset-window whose resets are this close to the first take turns."),

		texts("candidatePool", ScopeDefaults, nil, 100, nil, "What auto chooses from: providers, and models as provider/model with * for any text; empty is all targets."),
		word("modePack", ScopeDefaults, "", append([]string{""}, modePacks...), "Weights that auto begins with; empty is the balanced ones."),
	},
	weights("quota", "health", "costInv", "latencyInv", "taskFit", "stability", "tierPriority", "tierAffinity", "specificityMatch",
		"contextAffinity", "sessionAvailability", "connectionDensity", "cacheAffinity", "resetWindowAffinity", "quality", "reliability"),
	[]ComboSetting{
		word("routerStrategy", ScopeDefaults, "rules", []string{"rules", "score", "cost", "eco", "latency", "fast", "sla-aware", "sla", "lkgp"}, "How auto picks the first target: by its scores and rules, or by cost, latency, service levels, or the one that was good last."),
		share("explorationRate", 0.05, 0, 1, "Share of requests for which auto picks any target, to learn of it."),
		{Path: "budgetCap", Kind: ComboNumber, Unit: "currency units", Min: 0.000001, Max: 1_000_000, Scope: ScopeDefaults, Meaning: "Most that one request of auto may be expected to cost."},
		word("budgetFallback", ScopeDefaults, BudgetCheapest, []string{BudgetCheapest, BudgetStrict}, "What auto does when no target is within budgetCap: take the cheapest, or refuse the request (strict)."),
		millis("slaTargetP95Ms", ScopeDefaults, 2_000, 1, 300_000, "Time to the first content that sla-aware wants to keep in 95 of 100 requests."),
		share("slaMaxErrorRate", 0.05, 0, 1, "Share of failures that sla-aware tolerates."),
		{Path: "slaMaxCostPer1MTokens", Kind: ComboNumber, Unit: "currency units", Min: 0.000001, Max: 1_000_000, Scope: ScopeDefaults, Meaning: "Price of a million tokens that sla-aware tolerates."},
		toggle("slaHardConstraints", ScopeDefaults, false, "Whether sla-aware puts every target that misses a level behind all that keep them."),

		{Path: "judgeModel", Kind: ComboText, Default: "", Max: maxModelLength, Scope: ScopeDefaults, Meaning: "Model or combo that makes one answer of a panel's in fusion; empty is the first of the panel."},
		count("fusionTuning.minPanel", ScopeDefaults, 2, 1, 50, "Answers of a panel that suffice; never more than it has members."),
		count("fusionTuning.maxPanel", ScopeDefaults, maxTargets, 1, maxTargets, "Members of a panel at most, the first of the targets."),
		millis("fusionTuning.stragglerGraceMs", ScopeDefaults, 8_000, 0, 120_000, "How long the others of a panel may still take when minPanel have answered."),
		millis("fusionTuning.panelHardTimeoutMs", ScopeDefaults, 90_000, 1_000, 600_000, "Longest time of a panel."),

		share("handoffThreshold", 0.85, 0.5, 0.94, "Share of an account's quota whose use makes context-relay write a summary for the next account."),
		{Path: "handoffModel", Kind: ComboText, Default: "", Max: longestText, Scope: ScopeDefaults, Meaning: "Model that writes the summaries of context-relay; empty is the one that served."},
		texts("handoffProviders", ScopeDefaults, []string{"codex"}, 10, nil, "Providers, or kinds of them, for whose accounts context-relay writes summaries."),
		count("maxMessagesForSummary", ScopeDefaults, 30, 5, 100, "Latest messages that a summary of context-relay is made of."),
	},
)

// Names of the windows of a quota that strategies know.
const (
	windowSession = "session"
	windowWeekly  = "weekly"
	windowMonthly = "monthly"
)

var windowNames = []string{windowWeekly, windowSession, windowMonthly}

// Packs of weights of the strategy auto.
const (
	packFast     = "ship-fast"
	packCheap    = "cost-saver"
	packReliable = "reliability-first"
)

var modePacks = []string{packFast, packCheap, "quality-first", "offline-friendly", packReliable, "chaos-mode"}

func count(path string, scope ComboScope, standard, low, high int64, meaning string) ComboSetting {
	return ComboSetting{
		Path: path, Kind: ComboInteger, Default: standard, Min: float64(low), Max: float64(high), Scope: scope, Meaning: meaning,
	}
}

func millis(path string, scope ComboScope, standard, low, high int64, meaning string) ComboSetting {
	s := count(path, scope, standard, low, high, meaning)
	s.Unit = resilience.Milliseconds
	return s
}

func share(path string, standard, low, high float64, meaning string) ComboSetting {
	return ComboSetting{Path: path, Kind: ComboNumber, Default: standard, Min: low, Max: high, Scope: ScopeDefaults, Meaning: meaning}
}

func toggle(path string, scope ComboScope, standard bool, meaning string) ComboSetting {
	return ComboSetting{Path: path, Kind: ComboSwitch, Default: standard, Scope: scope, Meaning: meaning}
}

func word(path string, scope ComboScope, standard string, words []string, meaning string) ComboSetting {
	return ComboSetting{Path: path, Kind: ComboWord, Default: standard, Words: words, Scope: scope, Meaning: meaning}
}

func texts(path string, scope ComboScope, standard []string, most float64, words []string, meaning string) ComboSetting {
	return ComboSetting{Path: path, Kind: ComboTexts, Default: standard, Max: most, Words: words, Scope: scope, Meaning: meaning}
}

func weights(factors ...string) []ComboSetting {
	rows := make([]ComboSetting, len(factors))
	for i, factor := range factors {
		rows[i] = ComboSetting{
			Path: "weights." + factor, Kind: ComboNumber, Max: 1, Scope: ScopeDefaults,
			Meaning: "Weight of the factor " + factor + " in the scores of auto; not set, it is that of modePack.",
		}
	}
	return rows
}
