package harness

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Lockout is one item of GET /api/resilience/model-cooldowns.
type Lockout struct {
	Provider     string    `json:"provider"`
	Connection   string    `json:"connection"`
	Model        string    `json:"model"`
	Family       string    `json:"family"`
	Scope        string    `json:"scope"`
	Reason       string    `json:"reason"`
	Status       int       `json:"status"`
	FailureCount int       `json:"failureCount"`
	RemainingMs  int64     `json:"remainingMs"`
	Until        time.Time `json:"until"`
	Durable      bool      `json:"durable"`
}

// Lockouts are the models and families that are out on a connection, those that are longest
// first. An empty name means all connections.
func (g *Gateway) Lockouts(t testing.TB, connection string) []Lockout {
	t.Helper()
	status, body := g.Admin(t, http.MethodGet, "/api/resilience/model-cooldowns?connection="+connection, "")
	require.Equal(t, http.StatusOK, status, body)
	var list struct {
		Items []Lockout `json:"items"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	return list.Items
}
