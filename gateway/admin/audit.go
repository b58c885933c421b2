package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
)

// Actions of the audit log that are no changes of the catalog.
const (
	auditReset         = "reset"
	auditClearCooldown = "clear_cooldown"
	auditEnableModels  = "enable_models"
)

const (
	auditPage    = 100
	maxAuditPage = 1000
)

// audit writes what was done. It has happened, so a caller that left, or a database that is
// away, does not undo it: then the log is what tells.
func (s *Service) audit(ctx context.Context, entries []catalog.Audit) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseTimeout)
	defer cancel()
	if err := s.o.Store.Audit(ctx, entries); err != nil {
		for _, e := range entries {
			s.o.Log.WithError(models.Root(err)).WithField("actor", e.Actor).WithField("action", e.Action).
				WithField(e.Kind, e.Entity).WithField("detail", e.Detail).Error("the audit log could not be written")
		}
	}
}

// auditEntry is one administrative change.
type auditEntry struct {
	ID     int64     `json:"id"`
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"`
	Kind   string    `json:"kind"`
	Entity string    `json:"entity"`
	Detail string    `json:"detail"`
}

// auditList is one page, the newest first. Next is the before of the page that follows; absent
// on the last.
type auditList struct {
	Items []auditEntry `json:"items"`
	Next  int64        `json:"next,omitempty"`
}

// serveAudit is GET /api/audit?limit=&before=.
func (s *Service) serveAudit(w http.ResponseWriter, r *http.Request, _ principal) error {
	query, err := queryOf(r, "limit", "before")
	if err != nil {
		return err
	}
	limit, err := queryNumber(query, "limit", auditPage, 1, maxAuditPage)
	if err != nil {
		return err
	}
	before, err := queryNumber(query, "before", 0, 1, 1<<62)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), databaseTimeout)
	defer cancel()
	rows, err := s.o.Store.AuditLog(ctx, int(limit), before)
	if err != nil {
		return databaseError(err)
	}
	list := auditList{Items: make([]auditEntry, len(rows))}
	for i, row := range rows {
		list.Items[i] = auditEntry{row.ID, time.UnixMilli(row.At).UTC(), row.Actor, row.Action, row.Kind, row.Entity, row.Detail}
	}
	if len(rows) == int(limit) {
		list.Next = rows[len(rows)-1].ID
	}
	answer(w, http.StatusOK, list)
	return nil
}

// queryNumber reads a number of the query.
func queryNumber(query map[string]string, name string, standard, low, high int64) (int64, error) {
	text := query[name]
	if text == "" {
		return standard, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < low || value > high {
		return 0, models.Errorf(models.CodeInvalidRequest, "%s is a number from %d to %d.", name, low, high).WithParam(name)
	}
	return value, nil
}
