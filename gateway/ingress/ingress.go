// Package ingress is the HTTP edge: it authenticates, checks and bounds what a client sends,
// hands it to the relay, and answers in the client's dialect.
package ingress

import (
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"omniroute/gateway/access"
	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
)

// Options are what the HTTP edge is made of.
type Options struct {
	Relay  *relay.Relay
	Health relay.Health
	// Admin is mounted under /api/ and authenticates by itself; nil means no management API.
	Admin http.Handler
	// Metrics is mounted at /metrics; nil means no metrics.
	Metrics http.Handler
	// Status is the page at / for a person with a browser; nil means none.
	Status http.Handler
	// Ready says why the process cannot serve yet; nil means that it always can.
	Ready func() error
	// HashKey turns the key a client presents into the one the catalog is indexed by.
	HashKey func(clear string) [32]byte
	// Ledger takes the records of requests that were refused here; the relay books the others.
	Ledger   relay.Ledger
	Refusals *access.Refusals
	Log      *logrus.Entry
}

// New builds the handler of every route.
func New(o Options) http.Handler {
	e := &edge{o}
	return e.guard(e.routes())
}

// edge is the HTTP edge.
type edge struct{ Options }

// principal finds the key that a client presents and makes sure that it may use the client
// API. A key that is known but not good comes with its refusal.
func (e *edge) principal(r *http.Request, snapshot *catalog.Snapshot) (*catalog.KeyView, *models.Error) {
	key, refusal := access.Identify(r, snapshot, e.HashKey)
	if refusal == nil && !key.Scopes[catalog.ScopeInference] {
		refusal = models.Errorf(models.CodeForbidden, "The API key lacks the scope %q.", catalog.ScopeInference)
	}
	return key, refusal
}

// refuse answers a request that never reached the relay. Nobody is known when key is nil;
// otherwise the refusal is booked too, so that its owner can be told what went wrong.
func (e *edge) refuse(w http.ResponseWriter, r *http.Request, key *catalog.KeyView, refusal *models.Error) {
	x := exchangeOf(w)
	noted := access.Refusal{Request: string(x.id), ClientRequest: x.clientID, Err: refusal}
	if key != nil {
		noted.Who = string(key.ID)
		e.Ledger.Offer(catalog.RequestRecord{
			ID: x.id, ClientID: x.clientID, Key: key.ID, Status: refusal.Status(), Reason: reasonOf(refusal),
			StartedAt: x.started, Total: time.Since(x.started),
		})
	}
	e.Refusals.Note(r, noted)
	writeProblem(w, refusal)
}

func reasonOf(refusal *models.Error) models.Reason {
	switch refusal.Code {
	case models.CodeInvalidAPIKey, models.CodeForbidden:
		return models.ReasonNotAllowed
	case models.CodeModelNotFound, models.CodeNotFound:
		return models.ReasonNotFound
	default:
		return models.ReasonInvalidRequest
	}
}
