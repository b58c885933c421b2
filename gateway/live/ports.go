package live

import (
	"context"
	"net/http"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
)

// Pass is the right to one attempt, the relay's type of this name. Exactly one of its endings
// is called exactly once.
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

// ProbeClaimer makes a half-open breaker's probe exclusive across replicas by a
// compare-and-set on the provider's row. Satisfied by models/store.
type ProbeClaimer interface {
	// ClaimProbe takes the probe of this opening for the lease. When another owner holds it,
	// heldFor says for how long.
	ClaimProbe(ctx context.Context, provider models.ProviderID, owner string, o resilience.Opening, lease time.Duration) (won bool, heldFor time.Duration, err error)
	// ReleaseProbe frees the probe if owner holds it.
	ReleaseProbe(ctx context.Context, provider models.ProviderID, owner string) error
}
