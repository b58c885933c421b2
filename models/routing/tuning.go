package routing

// Tuning is the part of a combo's configuration that strategies heed, with every value in force.
// The catalog works it out; its limits and defaults are in the catalog's schema of combos.
type Tuning struct {
	StickyRoundRobin int // requests that a target serves before round-robin moves on; at least 1
	StickyWeighted   int // successes that a drawn target keeps; at least 1
	ResetAware       ResetAwareTuning
	ResetWindow      ResetWindowTuning
	Auto             AutoTuning
}
