package routing

import (
	"errors"
	"math"
	"time"
)

// StatisticsState is the form in which Statistics are kept and told to others: the sums as of one
// moment, which goes beside it.
type StatisticsState struct {
	Attempts  float64 `json:"attempts"`
	Successes float64 `json:"successes"`
	Answers   float64 `json:"answers"`
	Usable    float64 `json:"usable"`
	Timed     float64 `json:"timed,omitempty"`
	Sum       float64 `json:"sum,omitempty"`
	Squares   float64 `json:"squares,omitempty"`
	// Classes are those of the histogram from First on.
	First   int       `json:"first,omitempty"`
	Classes []float32 `json:"classes,omitempty"`
}

// State is what is known at now.
func (s *Statistics) State(now time.Time) StatisticsState {
	aged := *s
	if now.After(aged.landmark) {
		aged.moveTo(now)
	}
	state := StatisticsState{
		Attempts: aged.attempts, Successes: aged.successes, Answers: aged.answers, Usable: aged.usable,
		Timed: aged.timed, Sum: aged.sum, Squares: aged.squares,
	}
	first, end := 0, latencyClasses
	for first < end && aged.histogram[first] == 0 {
		first++
	}
	for end > first && aged.histogram[end-1] == 0 {
		end--
	}
	if first < end {
		state.First = first
		state.Classes = append(state.Classes, aged.histogram[first:end]...)
	}
	return state
}

// errStatistics says that what was read are no statistics that any attempts could have shown.
var errStatistics = errors.New("routing: these are no statistics")

// Restore makes statistics of their state as of a moment. It refuses what no attempts can have
// shown, such as numbers that are negative or infinite.
func (s StatisticsState) Restore(at time.Time) (Statistics, error) {
	sums := [...]float64{s.Attempts, s.Successes, s.Answers, s.Usable, s.Timed, s.Sum, s.Squares}
	for _, sum := range sums {
		if !(sum >= 0 && sum <= math.MaxFloat32) {
			return Statistics{}, errStatistics
		}
	}
	const slack = 1 + 1e-6
	if s.Successes > s.Attempts*slack || s.Usable > s.Answers*slack || s.First < 0 || s.First > latencyClasses-len(s.Classes) {
		return Statistics{}, errStatistics
	}
	restored := Statistics{
		landmark: at,
		attempts: s.Attempts, successes: min(s.Successes, s.Attempts), answers: s.Answers, usable: min(s.Usable, s.Answers),
		timed: s.Timed, sum: s.Sum, squares: s.Squares,
		slowest: max(0, s.First+len(s.Classes)-1),
	}
	for i, count := range s.Classes {
		if !(count >= 0 && count <= math.MaxFloat32) {
			return Statistics{}, errStatistics
		}
		restored.histogram[s.First+i] = count
	}
	return restored, nil
}
