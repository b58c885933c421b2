package store

import (
	"context"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"omniroute/models"
	"omniroute/models/catalog"
)

// sqliteBatch keeps a statement below SQLite's limit of parameters.
const sqliteBatch = 500

// maxLoggedName bounds what a client's text takes in the request log, in bytes.
const maxLoggedName = 300

// InsertRequests adds finished requests to the log, all or none. A request that is there
// already stays: a batch may be repeated after an unknown outcome.
func (s *Store) InsertRequests(ctx context.Context, records []catalog.RequestRecord) error {
	if len(records) == 0 {
		return nil
	}
	rows := make([]catalog.RequestRow, len(records))
	for i := range records {
		rows[i] = requestRow(&records[i])
	}
	if s.dialect == Postgres {
		return s.fail("log requests", s.insertColumns(ctx, rows))
	}
	// Several statements are one outcome only inside a transaction.
	return s.fail("log requests", s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return tx.Clauses(clause.OnConflict{DoNothing: true}).CreateInBatches(rows, sqliteBatch).Error
	}))
}

// Requests finds the finished requests of an id: ours, or the client's own, which several may
// share. The newest come first, at most limit of them.
func (s *Store) Requests(ctx context.Context, id models.RequestID, limit int) ([]catalog.RequestRecord, error) {
	text := storable(string(id))
	if text == "" {
		return nil, nil // the client's own id of all those that have none
	}
	var rows []catalog.RequestRow
	// The second condition on the client's id lets the partial index serve.
	err := s.db.WithContext(ctx).Where("id = ? OR (client_request_id = ? AND client_request_id <> '')", text, text).
		Order("started_at DESC, id").Limit(limit).Find(&rows).Error
	if err != nil {
		return nil, s.fail("read the request", err)
	}
	records := make([]catalog.RequestRecord, len(rows))
	for i, r := range rows {
		records[i] = catalog.RequestRecord{
			ID: models.RequestID(r.ID), ClientID: r.ClientID, Key: models.APIKeyID(r.KeyID), Asked: r.Asked, Served: r.Served,
			Connection: models.ConnectionID(r.ConnectionID), Attempts: r.Attempts, Status: r.Status,
			Reason: models.Reason(r.Reason), Stream: r.Stream, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens,
			StartedAt:  time.UnixMilli(r.StartedAt).UTC(),
			FirstToken: time.Duration(r.FirstTokenMs) * time.Millisecond,
			Total:      time.Duration(r.TotalMs) * time.Millisecond,
		}
	}
	return records, nil
}

// DeleteRequestsBefore deletes up to limit requests that started before t, oldest first, and
// returns how many. Retention calls it until it returns less than the limit, so that no
// statement holds its locks for long.
func (s *Store) DeleteRequestsBefore(ctx context.Context, t time.Time, limit int) (int64, error) {
	done := s.db.WithContext(ctx).Exec(
		"DELETE FROM requests WHERE id IN (SELECT id FROM requests WHERE started_at < ? ORDER BY started_at LIMIT ?)",
		t.UnixMilli(), limit)
	return done.RowsAffected, s.fail("delete old requests", done.Error)
}

func requestRow(r *catalog.RequestRecord) catalog.RequestRow {
	return catalog.RequestRow{
		ID: storable(string(r.ID)), ClientID: storable(r.ClientID), KeyID: string(r.Key), Asked: storable(r.Asked), Served: storable(r.Served),
		ConnectionID: string(r.Connection), Attempts: r.Attempts, Status: r.Status, Reason: string(r.Reason),
		Stream: r.Stream, InputTokens: r.InputTokens, OutputTokens: r.OutputTokens,
		StartedAt: r.StartedAt.UnixMilli(), FirstTokenMs: wholeMillis(r.FirstToken), TotalMs: wholeMillis(r.Total),
	}
}

// storable makes text from a client fit a text column: Postgres refuses NUL and invalid
// UTF-8, and one such name would keep its whole batch out.
func storable(text string) string {
	if len(text) > maxLoggedName {
		text = text[:maxLoggedName]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// wholeMillis rounds up, so that something that happened never reads 0.
func wholeMillis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}
