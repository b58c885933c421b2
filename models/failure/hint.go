package failure

import (
	"net/http"
	"time"
)

// hintSource says where an upstream's own wait was found.
type hintSource string

// Sources of a hint, best first. hintNone comes with a wait of zero.
const (
	hintNone      hintSource = ""
	hintHeader    hintSource = "header"
	hintRetryInfo hintSource = "google_rpc_retry_info"
	hintBody      hintSource = "body"
)

// Caps on what an upstream may ask for (design decision 3).
const (
	declaredCap    = 24 * time.Hour   // from a header or RetryInfo
	proseCap       = 30 * time.Minute // from other fields of the body, or prose
	serverErrorCap = 5 * time.Minute  // with any 5xx
)

// hintOf finds how long the upstream asks to stay away: in headers first, then in fields of the
// JSON body, then in the words of its message, which said holds. A wait that is zero, past or
// nonsense is absent, and the next source is asked. The wait is capped by its source and by the
// status, and asked is what it was before; both are 0 when there is none.
func hintOf(status int, h http.Header, root []byte, said string, now time.Time) (wait, asked time.Duration, source hintSource) {
	asked, source = firstHint(status, h, root, said, now)
	if asked <= 0 {
		return 0, 0, hintNone
	}
	most := proseCap
	if source == hintHeader || source == hintRetryInfo {
		most = declaredCap
	}
	if status >= 500 {
		most = min(most, serverErrorCap)
	}
	return min(asked, most), asked, source
}

func firstHint(status int, h http.Header, root []byte, said string, now time.Time) (time.Duration, hintSource) {
	if wait := headerHint(status, h, now); wait > 0 {
		return wait, hintHeader
	}
	if wait, source := fieldHint(root, now); wait > 0 {
		return wait, source
	}
	return proseHint(said, now), hintBody
}
