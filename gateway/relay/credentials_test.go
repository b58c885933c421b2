package relay_test

import (
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

// A request may run for minutes and meet a catalog that is newer than its plan.
func TestAFailoverIsSentWithTheCredentialsOfNowAndNotOfThePlan(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, _ *http.Request) {
			renewed := *w.health.Snapshot()
			renewed.Connections = maps.Clone(renewed.Connections)
			c2 := *renewed.Connections["c2"]
			c2.APIKey = catalog.NewSecret("sk-renewed")
			renewed.Connections["c2"] = &c2
			w.health.replace(&renewed)
			rw.WriteHeader(http.StatusServiceUnavailable)
		})
		got := w.chat("p/m", false)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, []models.ConnectionID{"c1", "renewed"}, w.attempts())
		require.Equal(t, "c2", got.header.Get("X-OmniRoute-Connection"))
	})
}
