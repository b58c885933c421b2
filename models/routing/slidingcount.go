package routing

import "time"

// SlidingCount counts what was used in a sliding window from two buckets as long as the window:
// the part of the one before that still lies in the window, as if it had been used evenly, and all
// of the one that runs. Buckets begin at multiples of their length since the epoch, so that counts
// of several replicas add up. The zero value has counted nothing. The length is an argument, and
// always the same.
type SlidingCount struct {
	Bucket   int64   `json:"bucket"` // which one runs
	Previous float64 `json:"previous,omitempty"`
	Current  float64 `json:"current,omitempty"`
}

// Add counts n units at now.
func (c *SlidingCount) Add(n float64, now time.Time, length time.Duration) {
	*c = c.at(now.UnixNano() / int64(length))
	c.Current += n
}

// Used is how much was used in the window that ends at now.
func (c SlidingCount) Used(now time.Time, length time.Duration) float64 {
	bucket := now.UnixNano() / int64(length)
	c = c.at(bucket)
	elapsed := float64(now.UnixNano()-bucket*int64(length)) / float64(length)
	return c.Previous*(1-elapsed) + c.Current
}

// Join adds what somebody else has counted with the same length.
func (c SlidingCount) Join(o SlidingCount) SlidingCount {
	bucket := max(c.Bucket, o.Bucket)
	c, o = c.at(bucket), o.at(bucket)
	return SlidingCount{Bucket: bucket, Previous: c.Previous + o.Previous, Current: c.Current + o.Current}
}

// at moves on to a bucket. A clock that was set back counts on in the one that ran.
func (c SlidingCount) at(bucket int64) SlidingCount {
	switch {
	case bucket <= c.Bucket:
		return c
	case bucket == c.Bucket+1:
		return SlidingCount{Bucket: bucket, Previous: c.Current}
	default:
		return SlidingCount{Bucket: bucket}
	}
}
