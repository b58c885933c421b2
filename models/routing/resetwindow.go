package routing

// ResetWindowTuning says which windows of a quota count.
type ResetWindowTuning struct{}
