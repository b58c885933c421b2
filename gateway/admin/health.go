package admin

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"omniroute/gateway/live"
	"omniroute/workflows/contract"
)

// Overall states. A gateway that can answer this at all serves clients, so it is never "down".
const (
	statusOK       = "ok"
	statusDegraded = "degraded"
)

// publishPatience is how long a change may take through its workflow and back. Beyond it the
// likeliest cause is that no worker runs, which neither Temporal nor the outbox can tell.
const publishPatience = 5 * time.Second

// Summary is what anybody may know.
type Summary struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

// Health is what an operator may know, of this replica.
type Health struct {
	Summary
	Replica       string    `json:"replica"`
	Time          time.Time `json:"time"`
	UptimeSeconds int64     `json:"uptimeSeconds"`

	Database PartHealth     `json:"database"`
	Temporal TemporalHealth `json:"temporal"`
	Catalog  CatalogHealth  `json:"catalog"`
	Feed     FeedHealth     `json:"feed"`
	Outbox   OutboxHealth   `json:"outbox"`
	Ledger   LedgerHealth   `json:"ledger"`
	// Unpublished is what no other replica knows yet.
	Unpublished live.UnpublishedReport `json:"unpublished"`

	Providers   []ProviderHealth   `json:"providers"`
	Connections []ConnectionHealth `json:"connections"`
	// Lockouts are models that are out on one connection.
	Lockouts []live.LockoutReport `json:"lockouts"`
}

// PartHealth is something the gateway leans on.
type PartHealth struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// TemporalHealth is the cluster and where people look at it.
type TemporalHealth struct {
	PartHealth
	Namespace string `json:"namespace"`
	UI        string `json:"ui,omitempty"`
}

// CatalogHealth is the snapshot that is served from.
type CatalogHealth struct {
	Revision    int64 `json:"revision"`
	Providers   int   `json:"providers"`
	Connections int   `json:"connections"`
	Models      int   `json:"models"`
	Combos      int   `json:"combos"`
	APIKeys     int   `json:"apiKeys"`
	// Warnings are about what is allowed and probably not meant, such as a target that no model fits.
	Warnings []string `json:"warnings,omitempty"`
}

// FeedHealth says whether changes reach this replica. LagSeconds is how long they have not.
type FeedHealth struct {
	live.FeedReport
	LagSeconds int64 `json:"lagSeconds"`
}

// OutboxHealth says whether changes leave this replica.
type OutboxHealth struct {
	Pending       int     `json:"pending"`
	OldestSeconds float64 `json:"oldestSeconds"`
	Degraded      bool    `json:"degraded"`
}

// LedgerHealth says how many request records wait to be written.
type LedgerHealth struct {
	Pending int `json:"pending"`
}

// ProviderHealth is a provider's breaker and its workflow.
type ProviderHealth struct {
	live.ProviderReport
	Workflow Workflow `json:"workflow"`
}

// ConnectionHealth is a connection's standing, the models that are out on it and its workflow.
type ConnectionHealth struct {
	live.ConnectionReport
	Lockouts []live.LockoutReport `json:"lockouts,omitempty"` // models that are out on it
	Workflow Workflow             `json:"workflow"`
}

// Workflow is where the durable state lives; it runs only while there is something to keep.
type Workflow struct {
	ID  string `json:"id"`
	URL string `json:"url,omitempty"`
}

// summaryFresh is how long a summary is shown without looking again. Anybody may ask for it, and
// it takes a look at every connection.
const summaryFresh = time.Second

// Summary says in one word how this replica does.
func (s *Service) Summary() Summary {
	found := s.parts.look()
	s.summing.Lock()
	defer s.summing.Unlock()
	if now := time.Now(); now.Sub(s.summed) >= summaryFresh {
		s.summary, s.summed = s.summarize(found, s.o.Live.Report(now)), now
	}
	return s.summary
}

// summarize is degraded while a part is away or changes do not flow. A provider that is out
// is not our degradation: routing around it is what the gateway is for.
func (s *Service) summarize(found finding, report live.Report) Summary {
	summary := Summary{Status: statusOK, Version: s.o.Version}
	stuck := report.Unpublished.OldestSeconds > publishPatience.Seconds()
	if found.database != nil || found.temporal != nil || !report.Feed.OK || s.o.Outbox().Degraded || stuck {
		summary.Status = statusDegraded
	}
	return summary
}

// Health says everything.
func (s *Service) Health() Health {
	found := s.parts.look()
	now := time.Now()
	report, snapshot, out := s.o.Live.Report(now), s.o.Live.Snapshot(), s.o.Outbox()
	health := Health{
		Summary:       s.summarize(found, report),
		Replica:       s.o.Replica,
		Time:          now.UTC(),
		UptimeSeconds: int64(now.Sub(s.started) / time.Second),
		Database:      partHealth(found.database),
		Temporal:      TemporalHealth{partHealth(found.temporal), s.o.Namespace, s.o.TemporalUI},
		Catalog: CatalogHealth{
			Revision: snapshot.Revision, Providers: len(snapshot.Providers), Connections: len(snapshot.Connections),
			Models: len(snapshot.Models), Combos: len(snapshot.Combos), APIKeys: len(snapshot.Keys),
			Warnings: snapshot.Warnings,
		},
		Feed:     FeedHealth{FeedReport: report.Feed},
		Outbox:   OutboxHealth{Pending: out.Pending, OldestSeconds: out.OldestAge.Seconds(), Degraded: out.Degraded},
		Ledger:   LedgerHealth{Pending: s.o.Ledger()},
		Lockouts: report.Lockouts, Unpublished: report.Unpublished,
	}
	if !report.Feed.OK && !report.Feed.Since.IsZero() {
		health.Feed.LagSeconds = int64(now.Sub(report.Feed.Since) / time.Second)
	}
	health.Providers = make([]ProviderHealth, len(report.Providers))
	for i, p := range report.Providers {
		health.Providers[i] = ProviderHealth{p, s.workflow(contract.ProviderWorkflowID(p.Provider))}
	}
	lockouts := lockoutsByConnection(report.Lockouts)
	health.Connections = make([]ConnectionHealth, len(report.Connections))
	for i, c := range report.Connections {
		health.Connections[i] = ConnectionHealth{c, lockouts[c.Connection], s.workflow(contract.ConnectionWorkflowID(c.Connection))}
	}
	return health
}

func partHealth(err error) PartHealth {
	if err == nil {
		return PartHealth{OK: true}
	}
	return PartHealth{Error: err.Error()}
}

// workflow names a workflow and links to it where people can look at it.
func (s *Service) workflow(id string) Workflow {
	w := Workflow{ID: id}
	if s.o.TemporalUI != "" {
		w.URL = strings.TrimSuffix(s.o.TemporalUI, "/") + "/namespaces/" + url.PathEscape(s.o.Namespace) + "/workflows/" + url.PathEscape(id)
	}
	return w
}

// serveHealth is GET /api/monitoring/health: always 200, with detail for those who manage.
func (s *Service) serveHealth(w http.ResponseWriter, r *http.Request) {
	if s.authenticate(r).manage {
		answer(w, http.StatusOK, s.Health())
		return
	}
	answer(w, http.StatusOK, s.Summary())
}
