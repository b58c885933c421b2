package catalog

import (
	"fmt"
	"time"
)

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

const (
	maxPlanWindows  = 10
	maxPlanLimit    = 1_000_000_000_000_000
	longestWindowMs = int64(366 * 24 * time.Hour / time.Millisecond)
)

// planTiers are the tiers of plans, the most generous first.
var planTiers = []string{"ultra", "pro", "standard", "free"}

// windowLengths are those that their names stand for.
var windowLengths = map[string]time.Duration{
	windowSession: 5 * time.Hour, windowWeekly: 7 * 24 * time.Hour, windowMonthly: 30 * 24 * time.Hour,
}

// view is the plan with every length in force; nil when none was entered.
func (p *DocPlan) view() *QuotaPlan {
	if p == nil {
		return nil
	}
	plan := &QuotaPlan{Tier: p.Tier}
	for _, w := range p.Windows {
		length := windowLengths[w.Name]
		if w.LengthMs != 0 {
			length = time.Duration(w.LengthMs) * time.Millisecond
		}
		plan.Windows = append(plan.Windows, QuotaPlanWindow{Name: w.Name, Length: length, Unit: w.Unit, Limit: w.Limit})
	}
	return plan
}

func (c *checker) plan(at string, p *DocPlan) {
	if p.Tier != "" {
		c.oneOf(at+".tier", p.Tier, planTiers)
	}
	c.count(at+".windows", len(p.Windows), 0, maxPlanWindows)
	seen := map[string]string{}
	for i, w := range p.Windows {
		path := fmt.Sprintf("%s.windows[%d]", at, i)
		if c.required(path+".name", w.Name) {
			if problem := badName(w.Name, longestText); problem != "" {
				c.bad(path+".name", "%s", problem)
			}
			c.once(path, w.Name+" of "+w.Unit, seen)
		}
		c.oneOf(path+".unit", w.Unit, []string{UnitRequests, UnitTokens})
		c.between(path+".limit", w.Limit, 1, maxPlanLimit)
		switch _, known := windowLengths[w.Name]; {
		case w.LengthMs != 0:
			c.between(path+".lengthMs", w.LengthMs, 1_000, longestWindowMs)
		case !known && w.Name != "" && c.decoded(path+".lengthMs"):
			c.bad(path+".lengthMs", "is required for a window that is not session, weekly or monthly, from %d to %d", 1_000, longestWindowMs)
		}
	}
}
