package relay

import (
	"context"
	"net/http"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/routing"
)

// Health is this replica's view of what may be called, satisfied by gateway/live.
type Health interface {
	// Snapshot is the current catalog; it never returns nil.
	Snapshot() *catalog.Snapshot
	// Check says why a target is out now, or how far behind it goes. combo says that the request
	// is to a combo, which heeds the provider cooldown as well.
	Check(conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (*routing.Exclusion, routing.Rank)
	// Admit asks for one attempt on a target. It re-checks, takes the breaker's ticket (and, at
	// half-open, the shared probe) and the connection's slot. A nil pass comes with the reason.
	Admit(ctx context.Context, conn *catalog.ConnectionView, model models.ModelRef, combo bool, now time.Time) (Pass, *routing.Exclusion)
}

// Pass is the right to one attempt. Exactly one of its endings is called exactly once. It is
// an alias, so that gateway/live, which may not import this package, can return the same type.
type Pass = interface {
	// Connection is the connection as it is now: the plan's may have other credentials.
	Connection() *catalog.ConnectionView
	// FirstContent tells how long the attempt took from being sent to the first content of its
	// answer. It is no ending, and may come before or after one.
	FirstContent(after time.Duration, now time.Time)
	// Heard takes in what the headers of an answer, of whatever status, say of limits.
	Heard(h http.Header, now time.Time)
	// Used tells how many tokens the answer took, in and out.
	Used(tokens int64, now time.Time)
	Succeeded(now time.Time)
	Failed(v failure.Verdict, now time.Time)
	// Abandoned ends an attempt that says nothing about the target: the client left, or we did.
	Abandoned(now time.Time)
}

// Upstream sends one attempt, satisfied by gateway/upstream.
type Upstream interface {
	// Do sends body (already translated) and returns when response headers arrived. A failure
	// is returned as *failure.Signal, never as a bare error. The caller closes the body.
	Do(ctx context.Context, conn *catalog.ConnectionView, body []byte, stream bool) (*http.Response, *failure.Signal)
}

// Ledger takes the record of a finished request; it never blocks.
type Ledger interface {
	Offer(r catalog.RequestRecord)
}
