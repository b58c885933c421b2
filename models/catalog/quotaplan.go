package catalog

import "time"

// QuotaPlan is what an operator has entered of a connection's plan at its provider, for providers
// that do not say in their answers how much is left.
type QuotaPlan struct {
	Tier    string // ultra, pro, standard, free; empty = unknown
	Windows []QuotaPlanWindow
}

// QuotaPlanWindow is one quota of a plan: so many units in a sliding window.
type QuotaPlanWindow struct {
	Name   string // session, weekly, monthly, or another
	Length time.Duration
	Unit   string // requests or tokens
	Limit  int64  // at least 1
}

// Units of the windows of a plan.
const (
	UnitRequests = "requests"
	UnitTokens   = "tokens"
)
