package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

var requestTests = map[string]func(*testing.T, *world){
	"ARecordComesBackAndARepeatedBatchChangesNothing": func(t *testing.T, w *world) {
		record := catalog.RequestRecord{
			ID: "r-1", ClientID: "mine", Key: "key-1", Asked: "best", Served: "openai/gpt-x", Connection: "openai-1", Attempts: 2,
			Status: 200, Reason: models.ReasonTimeout, Stream: true, InputTokens: 11, OutputTokens: 60,
			StartedAt:  time.UnixMilli(time.Now().UnixMilli()).UTC(),
			FirstToken: 120 * time.Millisecond, Total: 2 * time.Second,
		}
		require.NoError(t, w.store.InsertRequests(t.Context(), []catalog.RequestRecord{record}))
		again := record
		again.Status = 500
		require.NoError(t, w.store.InsertRequests(t.Context(), []catalog.RequestRecord{again, {ID: "r-2", StartedAt: record.StartedAt}, {ID: "r-2", StartedAt: record.StartedAt}}))

		stored := w.requests(t, "r-1")

		require.Equal(t, []catalog.RequestRecord{record}, stored)
		require.Equal(t, 2, w.count(t, "requests"))
		require.Empty(t, w.requests(t, "r-3"))
	},

	"AClientsIDFindsEveryRequestThatItGaveItTo": func(t *testing.T, w *world) {
		now := time.Now()
		require.NoError(t, w.store.InsertRequests(t.Context(), []catalog.RequestRecord{
			{ID: "r-1", ClientID: "trace-7", StartedAt: now.Add(-time.Minute)},
			{ID: "r-2", ClientID: "trace-7", StartedAt: now},
			{ID: "r-3", StartedAt: now},
			{ID: "r-4", ClientID: "r-3", StartedAt: now.Add(-time.Hour)}, // whatever a client thinks of
		}))
		ids := func(id models.RequestID) (all []models.RequestID) {
			for _, r := range w.requests(t, id) {
				all = append(all, r.ID)
			}
			return all
		}

		require.Equal(t, []models.RequestID{"r-2", "r-1"}, ids("trace-7"), "the newest first")
		require.Equal(t, []models.RequestID{"r-1"}, ids("r-1"))
		require.Equal(t, []models.RequestID{"r-3", "r-4"}, ids("r-3"))
		require.Empty(t, ids(""), "no id is no client's id")
		some, err := w.store.Requests(t.Context(), "trace-7", 1)
		require.NoError(t, err)
		require.Len(t, some, 1)
	},

	"WhatAClientSendsAsAModelNameCannotKeepABatchOut": func(t *testing.T, w *world) {
		records := []catalog.RequestRecord{
			{ID: "nul", Asked: "a\x00b", StartedAt: time.Now()},
			{ID: "broken", Asked: "a\xff\xfeb", StartedAt: time.Now()},
			{ID: "long", Asked: strings.Repeat("界", 1000), StartedAt: time.Now()},
			{ID: "i\x00d", ClientID: "c\x00", Asked: "x", StartedAt: time.Now()},
		}

		require.NoError(t, w.store.InsertRequests(t.Context(), records))

		require.Equal(t, len(records), w.count(t, "requests"))
		require.Equal(t, "a\uFFFDb", w.requests(t, "nul")[0].Asked)
		require.Len(t, w.requests(t, "i\x00d"), 1)
		require.Len(t, w.requests(t, "c\x00"), 1)
	},

	"ALargeBatchIsOneOutcome": func(t *testing.T, w *world) {
		records := make([]catalog.RequestRecord, 1200)
		for i := range records {
			records[i] = catalog.RequestRecord{ID: models.RequestID(fmt.Sprint("r-", i)), StartedAt: time.Now()}
		}
		records[1100].Attempts = -1 // refused by the table

		require.Error(t, w.store.InsertRequests(t.Context(), records))
		require.Zero(t, w.count(t, "requests"))

		records[1100].Attempts = 1
		require.NoError(t, w.store.InsertRequests(t.Context(), records))
		require.Equal(t, len(records), w.count(t, "requests"))
	},

	"RetentionDeletesTheOldestInChunks": func(t *testing.T, w *world) {
		start := time.Now().Add(-48 * time.Hour)
		var records []catalog.RequestRecord
		for i := range 10 {
			records = append(records, catalog.RequestRecord{ID: models.RequestID(fmt.Sprint("r-", i)), StartedAt: start.Add(time.Duration(i) * 6 * time.Hour)})
		}
		require.NoError(t, w.store.InsertRequests(t.Context(), records))
		cutoff := start.Add(30*time.Hour - time.Minute)

		first, err := w.store.DeleteRequestsBefore(t.Context(), cutoff, 3)
		require.NoError(t, err)
		second, err := w.store.DeleteRequestsBefore(t.Context(), cutoff, 3)
		require.NoError(t, err)

		require.EqualValues(t, 3, first)
		require.EqualValues(t, 2, second)
		require.Len(t, w.requests(t, "r-5"), 1)
		require.Equal(t, 5, w.count(t, "requests"))
	},
}

// requests are those that an id finds.
func (w *world) requests(t *testing.T, id models.RequestID) []catalog.RequestRecord {
	t.Helper()
	found, err := w.store.Requests(t.Context(), id, 100)
	require.NoError(t, err)
	return found
}
