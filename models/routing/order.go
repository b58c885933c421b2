package routing

import (
	"cmp"
	"slices"
)

// Priority walks the legs in the order they are configured, and inside a leg the connections
// by their priority. It is the strategy of a plain model and the default of a combo.
const Priority = "priority"

// strategy is how one strategy orders what no gate keeps out. Exactly one of its functions is
// set. Health comes after it and is not its business.
type strategy struct {
	// legs orders the legs of a combo, and may reorder the candidates inside each. They come in
	// configured order, their candidates by priority.
	legs func(q *Query, legs []Leg)
	// candidates orders candidates whatever leg they are of. They come by leg and priority.
	candidates func(q *Query, in []Candidate)
}

// Leg is one target of a combo with its candidates that are in.
type Leg struct {
	Index      int
	Key        string // the target's execution key
	Weight     float64
	Candidates []Candidate // never empty
}

// strategies is the one table of strategies that exist.
var strategies = map[string]strategy{
	Priority: {legs: byPriority},
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

// Order makes the walk of one request: the candidates that no gate excludes in the order of the
// strategy; the excluded ones stay in catalog order. Where the strategy orders legs, candidates
// of a lower rank go behind their siblings of the same leg, else behind all others; those on
// trial go behind every leg. An unknown strategy orders by priority; the catalog refuses one
// before it gets here. The given candidates are not changed.
func Order(q *Query) Plan {
	excluded := 0
	for i := range q.Candidates {
		if q.Candidates[i].Exclusion != nil {
			excluded++
		}
	}
	plan := Plan{Order: make([]Candidate, 0, len(q.Candidates)-excluded)}
	for _, c := range q.Candidates {
		if c.Exclusion != nil {
			plan.Excluded = append(plan.Excluded, c)
			continue
		}
		plan.Order = append(plan.Order, c)
	}
	// Whatever order they arrived in, every replica begins with the same one.
	slices.SortStableFunc(plan.Order, byCatalog)
	s, known := strategies[q.Strategy]
	if !known {
		s = strategies[Priority]
	}
	if s.candidates != nil {
		s.candidates(q, plan.Order)
		slices.SortStableFunc(plan.Order, byRank)
		return plan
	}
	plan.Order = s.byLeg(q, plan.Order)
	slices.SortStableFunc(plan.Order, func(a, b Candidate) int {
		return compareBool(a.Rank == RankTrial, b.Rank == RankTrial)
	})
	return plan
}

// byLeg has the strategy order the legs and puts candidates of a lower rank last in each.
func (s strategy) byLeg(q *Query, in []Candidate) []Candidate {
	legs := make([]Leg, 0, 8)
	for i, c := range in {
		if i == 0 || c.Leg != in[i-1].Leg {
			legs = append(legs, Leg{Index: c.Leg, Key: c.Key, Weight: c.Weight})
		}
		leg := &legs[len(legs)-1]
		first := i - len(leg.Candidates)
		leg.Candidates = in[first : i+1 : i+1]
	}
	s.legs(q, legs)
	out := make([]Candidate, 0, len(in))
	for _, leg := range legs {
		first := len(out)
		out = append(out, leg.Candidates...)
		slices.SortStableFunc(out[first:], byRank)
	}
	return out
}

// byPriority leaves everything as it is configured.
func byPriority(*Query, []Leg) {}

// byCatalog breaks ties by id, so that every replica walks the same way.
func byCatalog(a, b Candidate) int {
	return cmp.Or(
		cmp.Compare(a.Leg, b.Leg), cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Target.Connection, b.Target.Connection),
	)
}

func byRank(a, b Candidate) int { return cmp.Compare(a.Rank, b.Rank) }

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
