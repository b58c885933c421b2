package routing

// AutoTuning is how the strategy auto scores.
type AutoTuning struct{}

// AutoRequest is what one request asks of the strategy auto.
type AutoRequest struct{}

// Task is what a request seems to be about.
type Task string

// Tier is how much an account pays for.
type Tier string
