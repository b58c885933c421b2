package routing

// ResetAwareTuning weighs the windows of a quota against each other.
type ResetAwareTuning struct{}
