package harness

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Health is what tests read of GET /api/monitoring/health.
type Health struct {
	Status   string `json:"status"`
	Database Part   `json:"database"`
	Temporal Part   `json:"temporal"`
	Outbox   struct {
		Pending  int  `json:"pending"`
		Degraded bool `json:"degraded"`
	} `json:"outbox"`
	Unpublished struct {
		Entities      int     `json:"entities"`
		OldestSeconds float64 `json:"oldestSeconds"`
	} `json:"unpublished"`
	Providers   []ProviderHealth   `json:"providers"`
	Connections []ConnectionHealth `json:"connections"`
	Lockouts    []LockoutHealth    `json:"lockouts"`
}

// Part is something the gateway leans on.
type Part struct {
	OK bool `json:"ok"`
}

// ProviderHealth is a breaker.
type ProviderHealth struct {
	Provider    string    `json:"provider"`
	Breaker     string    `json:"breaker"`
	Failures    int       `json:"failures"`
	Cycle       int       `json:"cycle"`
	Until       time.Time `json:"until"`
	SecondsLeft int       `json:"secondsLeft"`
}

// ConnectionHealth is a connection's standing.
type ConnectionHealth struct {
	Connection  string    `json:"connection"`
	Phase       string    `json:"phase"`
	Reason      string    `json:"reason"`
	Status      int       `json:"status"`
	Level       int       `json:"level"`
	Until       time.Time `json:"until"`
	SecondsLeft int       `json:"secondsLeft"`
	Durable     bool      `json:"durable"`
	InFlight    int       `json:"inFlight"`
}

// LockoutHealth is a model, or a family of models, that is out on one connection.
type LockoutHealth struct {
	Connection  string `json:"connection"`
	Provider    string `json:"provider"`
	Scope       string `json:"scope"`
	Model       string `json:"model"` // its id at the provider, or the family's name
	Reason      string `json:"reason"`
	SecondsLeft int    `json:"secondsLeft"`
	Durable     bool   `json:"durable"`
}

// Health asks the gateway how it does.
func (g *Gateway) Health(t testing.TB) Health {
	t.Helper()
	status, body := g.Admin(t, http.MethodGet, "/api/monitoring/health", "")
	require.Equal(t, http.StatusOK, status, body)
	var h Health
	require.NoError(t, json.Unmarshal([]byte(body), &h), body)
	return h
}

// Connection is one connection's part of the health.
func (g *Gateway) Connection(t testing.TB, id string) ConnectionHealth {
	t.Helper()
	for _, c := range g.Health(t).Connections {
		if c.Connection == id {
			return c
		}
	}
	require.Failf(t, "no such connection", "%s", id)
	return ConnectionHealth{}
}

// Breaker is one provider's part of the health.
func (g *Gateway) Breaker(t testing.TB, provider string) ProviderHealth {
	t.Helper()
	for _, p := range g.Health(t).Providers {
		if p.Provider == provider {
			return p
		}
	}
	require.Failf(t, "no such provider", "%s", provider)
	return ProviderHealth{}
}
