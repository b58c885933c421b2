package routing

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models"
)

func candidate(conn models.ConnectionID, leg, priority int) Candidate {
	return Candidate{
		Target: models.Target{Connection: conn, Model: models.ModelRef{Provider: "p", Model: "m"}},
		Leg:    leg, Priority: priority, Weight: 1,
	}
}

// order asks for a plan with nothing but a strategy and candidates.
func order(strategy string, cands []Candidate) Plan {
	return Order(&Query{Strategy: strategy, Tuning: &Tuning{}, Candidates: cands})
}

func ranked(c Candidate, rank Rank) Candidate {
	c.Rank = rank
	return c
}

func excluded(c Candidate, reason models.Reason) Candidate {
	c.Exclusion = &Exclusion{Reason: reason, Until: time.Unix(1, 0)}
	return c
}

func walk(candidates []Candidate) []models.ConnectionID {
	var ids []models.ConnectionID
	for _, c := range candidates {
		ids = append(ids, c.Target.Connection)
	}
	return ids
}

func TestPriorityWalksLegsInOrderAndConnectionsByPriorityThenID(t *testing.T) {
	plan := order(Priority, []Candidate{
		candidate("b2", 1, 1), candidate("a3", 0, 2), candidate("a2", 0, 1), candidate("b1", 1, 0), candidate("a1", 0, 1),
	})
	require.Equal(t, []models.ConnectionID{"a1", "a2", "a3", "b1", "b2"}, walk(plan.Order))
	require.Empty(t, plan.Excluded)
}

func TestADegradedCandidateGoesBehindItsSiblingsButBeforeTheNextLeg(t *testing.T) {
	plan := order(Priority, []Candidate{
		ranked(candidate("a1", 0, 0), RankDegraded), candidate("a2", 0, 9), candidate("a3", 0, 5),
		ranked(candidate("a0", 0, 7), RankDegraded), candidate("b1", 1, 0),
	})
	require.Equal(t, []models.ConnectionID{"a3", "a2", "a1", "a0", "b1"}, walk(plan.Order))
}

func TestACandidateOnTrialGoesBehindEveryLegAndTheRestKeepsItsOrder(t *testing.T) {
	plan := order(Priority, []Candidate{
		ranked(candidate("a1", 0, 0), RankTrial), candidate("b2", 1, 9), ranked(candidate("b1", 1, 0), RankDegraded),
		ranked(candidate("c1", 2, 0), RankTrial), candidate("c2", 2, 0),
	})
	require.Equal(t, []models.ConnectionID{"b2", "b1", "c2", "a1", "c1"}, walk(plan.Order))
}

func TestExcludedCandidatesStayOutInCatalogOrder(t *testing.T) {
	plan := order(Priority, []Candidate{
		excluded(candidate("a2", 0, 2), models.ReasonConnCooldown), candidate("a1", 0, 9), excluded(candidate("a0", 0, 0), models.ReasonCircuitOpen),
	})
	require.Equal(t, []models.ConnectionID{"a1"}, walk(plan.Order))
	require.Equal(t, []models.ConnectionID{"a2", "a0"}, walk(plan.Excluded))
	require.Equal(t, models.ReasonConnCooldown, plan.Excluded[0].Exclusion.Reason)

	plan = order(Priority, nil)
	require.Empty(t, plan.Order)
	require.Empty(t, plan.Excluded)
}

func TestAnUnknownStrategyOrdersByPriority(t *testing.T) {
	cands := []Candidate{candidate("a2", 0, 2), candidate("a1", 0, 1)}
	require.Equal(t, order(Priority, cands), order("", cands))
	require.Equal(t, []string{Priority}, Strategies())
}

// Whatever the gates say, every candidate is in the plan once, and the order does not depend
// on how the candidates arrived.
func TestAPlanIsAPermutationThatAnyReplicaWouldMake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cands []Candidate
		for i := range rapid.IntRange(0, 12).Draw(t, "candidates") {
			c := candidate(models.ConnectionID(rune('a'+i)), rapid.IntRange(0, 2).Draw(t, "leg"), rapid.IntRange(0, 2).Draw(t, "priority"))
			c.Rank = Rank(rapid.IntRange(int(RankFull), int(RankTrial)).Draw(t, "rank"))
			if rapid.IntRange(0, 3).Draw(t, "out") == 0 {
				c = excluded(c, models.ReasonConcurrency)
			}
			cands = append(cands, c)
		}
		given := slices.Clone(cands)
		plan := order(Priority, cands)
		require.Equal(t, given, cands, "the candidates are the caller's")
		require.ElementsMatch(t, walk(cands), append(walk(plan.Order), walk(plan.Excluded)...))
		for i, c := range plan.Order {
			require.Nil(t, c.Exclusion)
			if i == 0 {
				continue
			}
			before := plan.Order[i-1]
			if before.Rank == RankTrial || c.Rank == RankTrial {
				require.Equal(t, RankTrial, c.Rank, "nothing follows a trial but a trial")
			}
			if (before.Rank == RankTrial) == (c.Rank == RankTrial) {
				require.LessOrEqual(t, before.Leg, c.Leg)
			}
			if before.Leg == c.Leg {
				require.LessOrEqual(t, before.Rank, c.Rank)
			}
			if before.Leg == c.Leg && before.Rank == c.Rank {
				require.LessOrEqual(t, before.Priority, c.Priority)
			}
		}
		shuffled := rapid.Permutation(cands).Draw(t, "arrived")
		require.Equal(t, plan.Order, order(Priority, shuffled).Order)
	})
}
