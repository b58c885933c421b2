package routing

import (
	"cmp"
	"slices"
)

// Priority walks the legs in the order they are configured, and inside a leg the connections
// by their priority. It is the strategy of a plain model and the default of a combo.
const Priority = "priority"

// compare says which of two candidates of one leg a strategy prefers. Health comes first and
// is not the strategy's business.
type compare func(a, b Candidate) int

// strategies is the one table of strategies that exist.
var strategies = map[string]compare{
	Priority: byPriority,
}

// Strategies lists the names of the strategies that exist, sorted.
func Strategies() []string {
	names := make([]string, 0, len(strategies))
	for name := range strategies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Order makes the walk of one request: the candidates that no gate excludes, leg by leg,
// degraded ones behind their siblings of the same leg and those on trial behind every leg; the
// excluded ones stay in catalog order.
// An unknown strategy orders by priority; the catalog refuses one before it gets here. The
// given slice is not changed.
func Order(strategy string, cands []Candidate) Plan {
	prefer, known := strategies[strategy]
	if !known {
		prefer = byPriority
	}
	excluded := 0
	for i := range cands {
		if cands[i].Exclusion != nil {
			excluded++
		}
	}
	plan := Plan{Order: make([]Candidate, 0, len(cands)-excluded)}
	for _, c := range cands {
		if c.Exclusion != nil {
			plan.Excluded = append(plan.Excluded, c)
			continue
		}
		plan.Order = append(plan.Order, c)
	}
	slices.SortStableFunc(plan.Order, func(a, b Candidate) int {
		return cmp.Or(
			compareBool(a.Rank == RankTrial, b.Rank == RankTrial),
			cmp.Compare(a.Leg, b.Leg), cmp.Compare(a.Rank, b.Rank), prefer(a, b),
		)
	})
	return plan
}

// byPriority breaks ties by id, so that every replica walks the same way.
func byPriority(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Target.Connection, b.Target.Connection),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
