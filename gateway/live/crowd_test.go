package live_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/live"
	"omniroute/models/failure"
)

// Whoever comes first, second or hundredth, through a combo or to a plain model: each waits for
// those before it, and all of them are one episode of whatever it was.
func TestACrowdThatFailsAtTheSameMomentIsOneEpisode(t *testing.T) {
	for name, c := range map[string]struct {
		verdict failure.Verdict
		waits   []time.Duration
	}{
		"limited without a declared wait": {rateLimited(0), []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second}},
		"limited with one":                {rateLimited(time.Minute), []time.Duration{time.Minute, time.Minute, time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, 1)
				for i, wait := range c.waits {
					var crowd []live.Pass
					for n := range map[bool]int{true: 100, false: 1}[i == 0] { // after a cooldown one goes first
						pass, out := r.Admit(t.Context(), r.conn(1), gpt, n%2 == 0, time.Now())
						require.Nil(t, out)
						crowd = append(crowd, pass)
					}
					time.Sleep(time.Second)
					seen := time.Now()
					var failing sync.WaitGroup
					for _, pass := range crowd {
						failing.Go(func() { pass.Failed(c.verdict, time.Now()) })
					}
					failing.Wait()

					state := r.connection(1)
					require.Equal(t, i+1, state.Level)
					require.Zero(t, state.InFlight)
					require.WithinDuration(t, seen.Add(wait), state.Until, 100*time.Millisecond, "failures of one instant are told apart by a millisecond")
					time.Sleep(time.Until(state.Until))
				}
			})
		})
	}
}
