package store

import (
	"context"
	"fmt"
	"strings"

	"omniroute/models/catalog"
)

// insertColumns adds rows to the request log of Postgres. Every column travels as one array:
// the statement is the same for any number of rows, so it is prepared once, and has 15
// parameters instead of 15 for each row, whose handling costs more than the rows. The ledger
// writes a row for every request.
func (s *Store) insertColumns(ctx context.Context, rows []catalog.RequestRow) error {
	arrays := make([]any, len(requestColumns))
	for i, column := range requestColumns {
		arrays[i] = column.of(rows)
	}
	_, err := s.pool.ExecContext(ctx, insertRequests, arrays...)
	return err
}

// requestColumns are the columns of the request log: their name, the type of their array,
// and their values.
var requestColumns = []struct {
	name, array string
	of          func([]catalog.RequestRow) any
}{
	{"id", "text[]", each(func(r *catalog.RequestRow) string { return r.ID })},
	{"client_request_id", "text[]", each(func(r *catalog.RequestRow) string { return r.ClientID })},
	{"key_id", "text[]", each(func(r *catalog.RequestRow) string { return r.KeyID })},
	{"asked", "text[]", each(func(r *catalog.RequestRow) string { return r.Asked })},
	{"served", "text[]", each(func(r *catalog.RequestRow) string { return r.Served })},
	{"connection_id", "text[]", each(func(r *catalog.RequestRow) string { return r.ConnectionID })},
	{"attempts", "bigint[]", each(func(r *catalog.RequestRow) int64 { return int64(r.Attempts) })},
	{"status", "bigint[]", each(func(r *catalog.RequestRow) int64 { return int64(r.Status) })},
	{"reason", "text[]", each(func(r *catalog.RequestRow) string { return r.Reason })},
	{"stream", "boolean[]", each(func(r *catalog.RequestRow) bool { return r.Stream })},
	{"input_tokens", "bigint[]", each(func(r *catalog.RequestRow) int64 { return r.InputTokens })},
	{"output_tokens", "bigint[]", each(func(r *catalog.RequestRow) int64 { return r.OutputTokens })},
	{"started_at", "bigint[]", each(func(r *catalog.RequestRow) int64 { return r.StartedAt })},
	{"first_token_ms", "bigint[]", each(func(r *catalog.RequestRow) int64 { return r.FirstTokenMs })},
	{"total_ms", "bigint[]", each(func(r *catalog.RequestRow) int64 { return r.TotalMs })},
}

// each turns the way to one row's value into the way to the whole column.
func each[T any](value func(*catalog.RequestRow) T) func([]catalog.RequestRow) any {
	return func(rows []catalog.RequestRow) any {
		column := make([]T, len(rows))
		for i := range rows {
			column[i] = value(&rows[i])
		}
		return column
	}
}

var insertRequests = func() string {
	var names, arrays []string
	for i, column := range requestColumns {
		names = append(names, column.name)
		arrays = append(arrays, fmt.Sprintf("$%d::%s", i+1, column.array))
	}
	return fmt.Sprintf("INSERT INTO requests (%s) SELECT * FROM unnest(%s) ON CONFLICT DO NOTHING",
		strings.Join(names, ", "), strings.Join(arrays, ", "))
}()
