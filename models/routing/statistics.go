package routing

import (
	"math"
	"time"
)

// HalfLife is how long it takes until evidence about a target counts half. It is short enough
// that an account which recovered is believed again within the hour, and long enough that a quiet
// one is still remembered.
const HalfLife = 10 * time.Minute

// Classes of the histogram of times to the first content: a fifth apart, from 10 ms to more than
// four minutes. A percentile is that far off at most.
const (
	latencyClasses = 56
	leastLatency   = 10e-3 // seconds, the upper bound of the class before the first
	classFactor    = 1.2
)

// landmarkAge is how old the landmark of Statistics may grow before it is moved: weights relative
// to it stay below 2^16, so that single precision suffices for the histogram.
const landmarkAge = 16 * HalfLife

// Statistics are what attempts have shown of one model through one connection, decaying by
// HalfLife. The zero value knows nothing. Sums are weighted by when their evidence came relative
// to a landmark ("forward decay"), so that evidence that comes costs the fields it concerns, and
// only a reading scales. It is a value without a lock.
type Statistics struct {
	landmark time.Time // of weight 1

	attempts  float64 // that ended for the upstream's sake, well or not
	successes float64
	answers   float64 // that began, whole or not
	usable    float64

	// Times to the first content, in seconds.
	timed, sum, squares float64
	histogram           [latencyClasses]float32
	slowest             int // the last class that may not be empty
}

// Succeeded takes in an attempt whose answer was whole.
func (s *Statistics) Succeeded(now time.Time) {
	w := s.weight(now)
	s.attempts += w
	s.successes += w
	s.answers += w
	s.usable += w
}

// Failed takes in an attempt that failed for the upstream's sake; answered says that there was an
// answer, which was of no use.
func (s *Statistics) Failed(answered bool, now time.Time) {
	w := s.weight(now)
	s.attempts += w
	if answered {
		s.answers += w
	}
}

// Began takes in how long an attempt took to its first content; of an answer in one piece that is
// all of it.
func (s *Statistics) Began(after time.Duration, now time.Time) {
	w, t := s.weight(now), max(0, after.Seconds())
	s.timed += w
	s.sum += w * t
	s.squares += w * t * t
	class := classOf(t)
	s.histogram[class] += float32(w)
	s.slowest = max(s.slowest, class)
}

// weight is what evidence of now weighs beside that of before. It moves the landmark along, at
// once where nothing is known yet.
func (s *Statistics) weight(now time.Time) float64 {
	age := now.Sub(s.landmark)
	switch {
	case s.Empty() || age > landmarkAge:
		s.moveTo(now)
		return 1
	case age < 0: // the clock was set back: what is known is as of now
		s.landmark = now
		return 1
	}
	return math.Exp2(float64(age) / float64(HalfLife))
}

// moveTo makes an instant the landmark.
func (s *Statistics) moveTo(at time.Time) {
	if !s.Empty() {
		s.scale(math.Exp2(-float64(at.Sub(s.landmark)) / float64(HalfLife)))
	}
	s.landmark = at
}

func (s *Statistics) scale(by float64) {
	for _, sum := range []*float64{&s.attempts, &s.successes, &s.answers, &s.usable, &s.timed, &s.sum, &s.squares} {
		*sum *= by
	}
	for i := range s.histogram {
		s.histogram[i] *= float32(by)
	}
}

// Empty reports whether nothing is known.
func (s *Statistics) Empty() bool { return s.attempts == 0 && s.timed == 0 }

// Join adds what somebody else has seen. Whoever joins the same twice counts it twice.
func (s *Statistics) Join(o *Statistics) {
	switch {
	case o.Empty():
		return
	case s.Empty():
		*s = *o
		return
	case o.landmark.After(s.landmark):
		s.moveTo(o.landmark)
	}
	by := math.Exp2(-float64(s.landmark.Sub(o.landmark)) / float64(HalfLife))
	s.attempts += by * o.attempts
	s.successes += by * o.successes
	s.answers += by * o.answers
	s.usable += by * o.usable
	s.timed += by * o.timed
	s.sum += by * o.sum
	s.squares += by * o.squares
	for i := range s.histogram {
		s.histogram[i] += float32(by) * o.histogram[i]
	}
	s.slowest = max(s.slowest, o.slowest)
}

// Weight is how much evidence there is at now, in attempts. A clock that was set back makes it no
// larger than it was.
func (s *Statistics) Weight(now time.Time) float64 {
	if s.attempts == 0 {
		return 0
	}
	return s.attempts * math.Exp2(-max(0, float64(now.Sub(s.landmark)))/float64(HalfLife))
}

// Fill tells what is known at now. Only the amount of evidence decays: the rates are those that
// were last seen, however long ago, until there is other evidence.
func (s *Statistics) Fill(f *Facts, now time.Time) {
	f.Samples, f.SuccessRate, f.Quality = s.Weight(now), 0, -1
	f.Latency, f.LatencyP95, f.Deviation = 0, 0, 0
	if s.attempts > 0 {
		f.SuccessRate = s.successes / s.attempts
	}
	if s.answers > 0 {
		f.Quality = s.usable / s.answers
	}
	if s.timed > 0 {
		mean := s.sum / s.timed
		f.Latency, f.LatencyP95 = duration(mean), duration(s.percentile95())
		f.Deviation = duration(math.Sqrt(max(0, s.squares/s.timed-mean*mean)))
	}
}

// percentile95 is the time that 95 of 100 do not exceed, as if those of a class lay evenly.
func (s *Statistics) percentile95() float64 {
	above := float32(0.05 * s.timed)
	for i := s.slowest; i > 0; i-- {
		count := s.histogram[i]
		if count > above {
			return upperBounds[i] - (upperBounds[i]-upperBounds[i-1])*float64(above/count)
		}
		above -= count
	}
	return upperBounds[0]
}

var upperBounds = func() (bounds [latencyClasses]float64) {
	for i := range bounds {
		bounds[i] = leastLatency * math.Pow(classFactor, float64(i))
	}
	return bounds
}()

// classOf is the class of a time in seconds: the first whose upper bound is not below it.
func classOf(t float64) int {
	if t <= leastLatency {
		return 0
	}
	return min(latencyClasses-1, int(math.Ceil(math.Log(t/leastLatency)/math.Log(classFactor))))
}

func duration(seconds float64) time.Duration {
	return time.Duration(min(seconds, math.MaxInt64/2e9) * float64(time.Second))
}
