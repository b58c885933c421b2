package failure

import (
	"net/http"
	"time"

	"omniroute/models"
)

// quotaFor is the longest guess at the wait for a quota whose end nobody declared. Too short a
// guess costs one request that fails elsewhere, too long a one costs an account.
const quotaFor = time.Hour

// dailyReset is the hour of the day, in UTC, at which kinds of providers begin a new day's
// quota, as their documentation says. Google's is midnight in California, by its winter.
var dailyReset = map[string]int{"cloudflare-ai": 0, "openrouter": 0, "moonshot": 16, "gemini": 8}

// soonestQuota is the shortest wait for a used-up quota: with less than that declared, a 429 is
// a rate limit, whatever its text says.
const soonestQuota = time.Hour

// orMoment makes a rate limit of a quota that is back in a moment. What was asked for counts:
// days are no moment, however little of them is believed.
func orMoment(f *facts, v *Verdict) {
	if f.status == http.StatusTooManyRequests && f.hint > 0 && f.asked < soonestQuota {
		v.Reason, v.Fixed, v.Message = models.ReasonRateLimited, 0, sayRate
	}
}

// awaitDay sets the wait for a quota of a period. What the answer declares counts first, then
// the day's end by the provider's documentation; else it is a guess, for a day's quota until
// midnight in UTC where that comes first.
func awaitDay(f *facts, v *Verdict) {
	v.Fixed = quotaFor
	if f.hint > 0 {
		orMoment(f, v)
		return
	}
	if !f.said.containsAny(dailyNames) {
		return
	}
	if f.Rules != nil {
		if hour, known := dailyReset[f.Rules.kind]; known {
			v.Hint = untilHour(f.now, hour)
			return
		}
	}
	v.Fixed = max(time.Minute, min(quotaFor, untilHour(f.now, 0)))
}

// untilHour is how long it is until the hour strikes next in UTC: more than nothing, a day at most.
func untilHour(now time.Time, hour int) time.Duration {
	now = now.UTC()
	next := time.Date(now.Year(), now.Month(), now.Day(), hour, 0, 0, 0, time.UTC)
	if !next.After(now) {
		next = next.AddDate(0, 0, 1)
	}
	return next.Sub(now)
}
