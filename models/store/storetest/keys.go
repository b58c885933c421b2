package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/store"
)

var keyTests = map[string]func(*testing.T, *world){
	"AMadeKeyIsFoundByItsHashUntilItIsRevoked": func(t *testing.T, w *world) {
		w.apply(t, basic)
		expires := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()

		info, clear, err := w.store.CreateKey(t.Context(), store.NewKey{
			Name: "laptop", Scopes: []string{catalog.ScopeManage}, AllowedModels: []string{"gpt-x"},
			AllowedConnections: []models.ConnectionID{"openai-1"}, ExpiresAt: expires, Actor: "me",
		})
		require.NoError(t, err)
		require.Regexp(t, `^omr_[A-Za-z0-9_-]{43}$`, clear)
		listed, err := w.store.ListKeys(t.Context())
		require.NoError(t, err)
		require.Len(t, listed, 2)
		require.Equal(t, info, listed[1])
		require.Equal(t, expires, info.ExpiresAt)
		require.EqualValues(t, 2, w.revision(t))
		view := w.keyView(t, clear)
		require.NotNil(t, view)
		require.Equal(t, info.ID, view.ID)
		require.Equal(t, map[string]bool{"gpt-x": true, "openai/gpt-x": true}, view.Models, "by every name of the model")

		revoked, err := w.store.RevokeKey(t.Context(), string(info.ID), "me")

		require.NoError(t, err)
		require.Equal(t, "laptop", revoked.Name)
		require.Nil(t, w.keyView(t, clear))
		require.EqualValues(t, 3, w.revision(t))
	},

	"ABadKeyIsRefusedAsInAFile": func(t *testing.T, w *world) {
		w.apply(t, basic)
		for want, key := range map[string]store.NewKey{
			"is required":                  {},
			"there is already a key named": {Name: "ci"},
			"did you mean \"manage\"":      {Name: "k", Scopes: []string{"mange"}},
			"there is no connection":       {Name: "k", AllowedConnections: []models.ConnectionID{"nobody"}},
			"there is no model or combo":   {Name: "k", AllowedModels: []string{"nothing-like-it"}},
		} {
			_, clear, err := w.store.CreateKey(t.Context(), key)
			require.ErrorContains(t, err, want)
			require.Empty(t, clear)
		}
		require.EqualValues(t, 1, w.revision(t))
	},

	"RevokingAKeyThatIsNotThereSaysSo": func(t *testing.T, w *world) {
		_, err := w.store.RevokeKey(t.Context(), "nobody", "me")

		var coded *models.Error
		require.ErrorAs(t, err, &coded)
		require.Equal(t, models.CodeNotFound, coded.Code)
		require.Zero(t, w.revision(t))
	},
}

func (w *world) keyView(t *testing.T, clear string) *catalog.KeyView {
	t.Helper()
	return w.snapshot(t).Keys[w.ring(t).HashKey(clear)]
}
