package admin

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// cooldownFilter selects cooldowns or lockouts. As the body of a DELETE it names something, or
// says that all are meant.
type cooldownFilter struct {
	Provider   models.ProviderID   `json:"provider"`
	Connection models.ConnectionID `json:"connection"`
	All        bool                `json:"all"`
}

type lockoutFilter struct {
	cooldownFilter
	Model string `json:"model"`
}

// lockoutItem is one model, or one family of models, that is out on one connection.
type lockoutItem struct {
	Provider     models.ProviderID   `json:"provider"`
	Connection   models.ConnectionID `json:"connection"`
	Model        string              `json:"model,omitempty"`
	Family       string              `json:"family,omitempty"`
	Scope        models.LockScope    `json:"scope"`
	Reason       models.Reason       `json:"reason"`
	Status       int                 `json:"status,omitempty"` // the upstream's; absent when no answer came
	FailureCount int                 `json:"failureCount"`
	RemainingMs  int64               `json:"remainingMs"`
	SecondsLeft  int                 `json:"secondsLeft"` // rounded up
	Until        time.Time           `json:"until"`
	LockedAt     time.Time           `json:"lockedAt"`
	Durable      bool                `json:"durable"` // shared by all replicas; else only this one knows
}

// cooldownItem is one connection that is out.
type cooldownItem struct {
	Provider    models.ProviderID   `json:"provider"`
	Connection  models.ConnectionID `json:"connection"`
	Phase       models.Phase        `json:"phase"`
	Reason      models.Reason       `json:"reason"`
	Status      int                 `json:"status,omitempty"`
	Level       int                 `json:"level,omitempty"`
	RemainingMs int64               `json:"remainingMs,omitempty"` // absent of a terminal state, which does not end by itself
	SecondsLeft int                 `json:"secondsLeft,omitempty"`
	Until       time.Time           `json:"until,omitzero"`
	Durable     bool                `json:"durable"`
	Workflow    Workflow            `json:"workflow"`
}

type itemList[T any] struct {
	Items []T `json:"items"`
}

// Lockouts lists the models that are out, those that are longest first.
func (s *Service) Lockouts(filter lockoutFilter, now time.Time) []lockoutItem {
	items := []lockoutItem{}
	for _, l := range s.o.Live.Report(now).Lockouts {
		if !filter.selects(l.Provider, l.Connection) || filter.Model != "" && !s.means(filter.Model, l) {
			continue
		}
		name := nameOf(l.Connection, resilience.LockKey{Scope: l.Scope, Name: l.Model})
		items = append(items, lockoutItem{
			Provider: l.Provider, Connection: l.Connection, Model: name.Model, Family: name.Family, Scope: l.Scope,
			Reason: l.Reason, Status: l.Status, FailureCount: l.Level,
			RemainingMs: remaining(l.Until, now), SecondsLeft: l.SecondsLeft, Until: l.Until, LockedAt: l.SetAt, Durable: l.Durable,
		})
	}
	slices.SortStableFunc(items, func(a, b lockoutItem) int { return cmp.Compare(b.RemainingMs, a.RemainingMs) })
	return items
}

// Cooldowns lists the connections that are out, terminal ones first, then those that are
// longest.
func (s *Service) Cooldowns(filter cooldownFilter, now time.Time) []cooldownItem {
	items := []cooldownItem{}
	for _, c := range s.o.Live.Report(now).Connections {
		if c.Phase == models.PhaseReady || !filter.selects(c.Provider, c.Connection) {
			continue
		}
		items = append(items, cooldownItem{
			Provider: c.Provider, Connection: c.Connection, Phase: c.Phase, Reason: c.Reason, Status: c.Status, Level: c.Level,
			RemainingMs: remaining(c.Until, now), SecondsLeft: c.SecondsLeft, Until: c.Until, Durable: c.Durable,
			Workflow: s.workflow(contract.ConnectionWorkflowID(c.Connection)),
		})
	}
	slices.SortStableFunc(items, func(a, b cooldownItem) int {
		if x, y := a.Phase.Terminal(), b.Phase.Terminal(); x != y {
			if x {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.RemainingMs, a.RemainingMs)
	})
	return items
}

func (f cooldownFilter) selects(provider models.ProviderID, connection models.ConnectionID) bool {
	return (f.Provider == "" || f.Provider == provider) && (f.Connection == "" || f.Connection == connection)
}

func remaining(until, now time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return max(0, until.Sub(now).Milliseconds())
}

// serveLockouts is GET /api/resilience/model-cooldowns?provider=&connection=&model=.
func (s *Service) serveLockouts(w http.ResponseWriter, r *http.Request, _ principal) error {
	query, err := queryOf(r, "provider", "connection", "model")
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, itemList[lockoutItem]{s.Lockouts(lockoutQuery(query), time.Now())})
	return nil
}

// serveCooldowns is GET /api/resilience/cooldowns?provider=&connection=.
func (s *Service) serveCooldowns(w http.ResponseWriter, r *http.Request, _ principal) error {
	query, err := queryOf(r, "provider", "connection")
	if err != nil {
		return err
	}
	answer(w, http.StatusOK, itemList[cooldownItem]{s.Cooldowns(lockoutQuery(query).cooldownFilter, time.Now())})
	return nil
}

// lockoutsCleared is the answer to a DELETE of lockouts.
type lockoutsCleared struct {
	OK         bool          `json:"ok"`
	ClearedAll bool          `json:"clearedAll,omitempty"`
	Removed    int           `json:"removed"`
	Lockouts   []lockoutName `json:"lockouts"`
}

// serveEnable is DELETE /api/resilience/model-cooldowns: the filters in the body or the query.
func (s *Service) serveEnable(w http.ResponseWriter, r *http.Request, who principal) error {
	var filter lockoutFilter
	if err := decodeFilter(w, r, &filter, "provider", "connection", "model", "all"); err != nil {
		return err
	}
	if err := filter.names(filter.Model); err != nil {
		return err
	}
	done, err := s.clear(r.Context(), who.actor, selection{
		provider: filter.Provider, connection: filter.Connection, model: filter.Model, layers: []Layer{LayerLockout},
	})
	if err != nil {
		return err
	}
	s.o.Log.WithField("actor", who.actor).WithField("lockouts", len(done.lockouts)).Info("model lockouts ended")
	answer(w, http.StatusOK, lockoutsCleared{
		OK: true, ClearedAll: filter.All, Removed: len(done.lockouts), Lockouts: append([]lockoutName{}, done.lockouts...),
	})
	return nil
}

// cooldownsCleared is the answer to a DELETE of cooldowns.
type cooldownsCleared struct {
	OK              bool                  `json:"ok"`
	Cleared         int                   `json:"cleared"` // connections whose cooldown was cleared
	LockoutsCleared int                   `json:"lockoutsCleared"`
	Unchanged       int                   `json:"unchanged"`
	SkippedTerminal int                   `json:"skippedTerminal"` // a reset is what leaves a terminal state
	Connections     []models.ConnectionID `json:"connections"`
}

// serveClear is DELETE /api/resilience/cooldowns: the filters in the body or the query. It ends
// cooldowns and lockouts; terminal states stay.
func (s *Service) serveClear(w http.ResponseWriter, r *http.Request, who principal) error {
	var filter cooldownFilter
	if err := decodeFilter(w, r, &filter, "provider", "connection", "all"); err != nil {
		return err
	}
	if err := filter.names(""); err != nil {
		return err
	}
	done, err := s.clear(r.Context(), who.actor, selection{
		provider: filter.Provider, connection: filter.Connection, layers: []Layer{LayerCooldown, LayerLockout},
	})
	if err != nil {
		return err
	}
	s.o.Log.WithField("actor", who.actor).WithField("connections", done.connections).
		WithField("lockouts", len(done.lockouts)).Info("cooldowns cleared")
	answer(w, http.StatusOK, cooldownsCleared{
		OK: true, Cleared: len(done.connections), LockoutsCleared: len(done.lockouts), Unchanged: done.unchanged,
		SkippedTerminal: done.skippedTerminal, Connections: append([]models.ConnectionID{}, done.connections...),
	})
	return nil
}

// names refuses a filter that names nothing: everything is cleared only on request.
func (f cooldownFilter) names(model string) error {
	given := f.Provider != "" || f.Connection != "" || model != ""
	switch {
	case f.All && given:
		return models.Errorf(models.CodeInvalidRequest, `Send filters or {"all":true}, not both.`).WithParam("all")
	case !f.All && !given:
		return models.Errorf(models.CodeInvalidRequest, `Name a provider, a connection or a model, or send {"all":true}.`)
	}
	return nil
}

// decodeFilter reads a filter from the body or, where there is none, from the query: not every
// client can send a body with DELETE.
func decodeFilter(w http.ResponseWriter, r *http.Request, filter any, names ...string) error {
	query, err := queryOf(r, names...)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	if len(query) == 0 {
		return decodeStrict(body, filter)
	}
	if len(body) > 0 {
		return models.Errorf(models.CodeInvalidRequest, "Send the filters in the body or in the query, not in both.")
	}
	found := lockoutQuery(query)
	if err := queryFlag(r, "all", &found.All); err != nil {
		return err
	}
	switch into := filter.(type) {
	case *lockoutFilter:
		*into = found
	case *cooldownFilter:
		*into = found.cooldownFilter
	}
	return nil
}

func lockoutQuery(query map[string]string) lockoutFilter {
	return lockoutFilter{
		cooldownFilter{Provider: models.ProviderID(query["provider"]), Connection: models.ConnectionID(query["connection"])},
		query["model"],
	}
}

// queryOf reads the query's parameters, each once, and refuses those it does not know.
func queryOf(r *http.Request, known ...string) (map[string]string, error) {
	query := map[string]string{}
	for name, values := range r.URL.Query() {
		if !slices.Contains(known, name) {
			return nil, models.Errorf(models.CodeInvalidRequest, "There is no parameter %q; there are %s.", name, strings.Join(known, ", ")).WithParam(name)
		}
		if len(values) > 1 {
			return nil, models.Errorf(models.CodeInvalidRequest, "%s is given twice.", name).WithParam(name)
		}
		query[name] = values[0]
	}
	return query, nil
}
