package admin

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/gorilla/mux"

	"omniroute/models"
	"omniroute/models/catalog"
)

// mostRequests bounds the answer to an id that a client gives to every request.
const mostRequests = 100

// Requests returns the records of the finished requests of an id: ours, or the client's own
// x-request-id, which several may share. The newest come first.
func (s *Service) Requests(ctx context.Context, id models.RequestID) ([]catalog.RequestRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	records, err := s.o.Store.Requests(ctx, id, mostRequests)
	if err != nil {
		return nil, databaseError(err)
	}
	if len(records) == 0 {
		return nil, models.Errorf(models.CodeNotFound, "There is no record of request %q; records appear about a second after the request's end.", id)
	}
	return records, nil
}

// requestDocument is a record as JSON.
type requestDocument struct {
	ID           models.RequestID    `json:"id"`
	ClientID     string              `json:"clientRequestId,omitempty"`
	Key          models.APIKeyID     `json:"apiKey"`
	Asked        string              `json:"modelAsked"`
	Served       string              `json:"modelServed,omitempty"`
	Connection   models.ConnectionID `json:"connection,omitempty"`
	Attempts     int                 `json:"attempts"`
	Status       int                 `json:"status"`
	Reason       models.Reason       `json:"reason,omitempty"`
	Stream       bool                `json:"stream"`
	InputTokens  int64               `json:"inputTokens"`
	OutputTokens int64               `json:"outputTokens"`
	StartedAt    time.Time           `json:"startedAt"`
	FirstTokenMs *int64              `json:"firstTokenMs"` // null when no content came
	TotalMs      int64               `json:"totalMs"`
}

// requestList is what an id finds that a client gave to several requests.
type requestList struct {
	Requests []requestDocument `json:"requests"`
}

// serveRequest is GET /api/requests/{id}: one record, or {"requests": [...]} where several
// share the client's id.
func (s *Service) serveRequest(w http.ResponseWriter, r *http.Request, _ principal) error {
	id, err := url.PathUnescape(mux.Vars(r)["id"])
	if err != nil {
		return models.Errorf(models.CodeInvalidRequest, "The id is not a valid path segment.")
	}
	records, err := s.Requests(r.Context(), models.RequestID(id))
	if err != nil {
		return err
	}
	list := requestList{make([]requestDocument, len(records))}
	for i, record := range records {
		list.Requests[i] = describeRequest(record)
	}
	if len(records) == 1 {
		answer(w, http.StatusOK, list.Requests[0])
		return nil
	}
	answer(w, http.StatusOK, list)
	return nil
}

func describeRequest(record catalog.RequestRecord) requestDocument {
	document := requestDocument{
		ID: record.ID, ClientID: record.ClientID, Key: record.Key, Asked: record.Asked, Served: record.Served,
		Connection: record.Connection, Attempts: record.Attempts, Status: record.Status,
		Reason: record.Reason, Stream: record.Stream,
		InputTokens: record.InputTokens, OutputTokens: record.OutputTokens,
		StartedAt: record.StartedAt.UTC(), TotalMs: record.Total.Milliseconds(),
	}
	if record.FirstToken > 0 {
		ms := record.FirstToken.Milliseconds()
		document.FirstTokenMs = &ms
	}
	return document
}
