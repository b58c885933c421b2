package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"omniroute/models"
)

const (
	resetWidth = 8               // entities at a time
	resetRetry = 5 * time.Second // what a caller is told to wait while Temporal is away
)

// ResetTarget says what becomes healthy: everything that the filters select of the layers that
// are named, or of all. Without layers a provider means its breaker and cooldowns, a connection
// all of its state, a model its lockouts, and nothing at all every provider's breaker (guide
// section 1).
type ResetTarget struct {
	Connection models.ConnectionID `json:"connection"`
	Provider   models.ProviderID   `json:"provider"`
	Model      string              `json:"model"`
	Layers     []Layer             `json:"layers"`
	All        bool                `json:"all"`
}

// ResetResult says what was reset.
type ResetResult struct {
	OK          bool                  `json:"ok"`
	Count       int                   `json:"resetCount"`
	Connections []models.ConnectionID `json:"connections,omitempty"`
	Providers   []models.ProviderID   `json:"providers,omitempty"`
	Lockouts    []lockoutName         `json:"lockouts,omitempty"`
	Message     string                `json:"message"`
}

// Reset makes healthy what the target selects.
func (s *Service) Reset(ctx context.Context, actor string, target ResetTarget) (ResetResult, error) {
	sel, err := target.selection()
	if err != nil {
		return ResetResult{}, err
	}
	done, err := s.clear(ctx, actor, sel)
	if err != nil {
		return ResetResult{}, err
	}
	result := ResetResult{
		OK: true, Count: len(done.connections) + len(done.providers) + len(done.lockouts),
		Connections: slices.Compact(done.connections), Providers: done.providers, Lockouts: done.lockouts,
		Message: fmt.Sprintf("Reset %d connections, %d providers and %d model lockouts.", len(done.connections), len(done.providers), len(done.lockouts)),
	}
	if target.empty() {
		result.Message += ` Connections stay as they are: name one, or send {"all":true}.`
	}
	return result, nil
}

func (t ResetTarget) empty() bool {
	return t.Connection == "" && t.Provider == "" && t.Model == "" && len(t.Layers) == 0 && !t.All
}

// selection works out the layers and refuses those that a filter leaves nothing of.
func (t ResetTarget) selection() (selection, error) {
	ofProvider := []Layer{LayerBreaker, LayerProviderCooldown}
	ofConnection := []Layer{LayerCooldown, LayerTerminal, LayerLockout}
	usual, possible := []Layer{LayerBreaker}, append(ofProvider, ofConnection...)
	subject := ""
	switch {
	case t.Model != "":
		usual, possible, subject = []Layer{LayerLockout}, []Layer{LayerLockout}, "model"
	case t.Connection != "":
		usual, possible, subject = ofConnection, ofConnection, "connection"
	case t.Provider != "":
		usual = ofProvider
	}
	layers, err := resolve(t.Layers, t.All, usual)
	if err != nil {
		return selection{}, err
	}
	if t.All {
		layers = possible
	}
	for i, layer := range layers {
		if !slices.Contains(possible, layer) {
			return selection{}, models.Errorf(models.CodeInvalidRequest, "The state of a %s has no layer %q; it has %v.", subject, layer, possible).
				WithParam(fmt.Sprintf("layers[%d]", i))
		}
	}
	return selection{provider: t.Provider, connection: t.Connection, model: t.Model, layers: layers}, nil
}

// serveReset is POST /api/resilience/reset.
func (s *Service) serveReset(w http.ResponseWriter, r *http.Request, who principal) error {
	var target ResetTarget
	if err := decode(w, r, &target); err != nil {
		return err
	}
	result, err := s.Reset(r.Context(), who.actor, target)
	if err != nil {
		return err
	}
	s.o.Log.WithField("actor", who.actor).WithField("connections", result.Connections).
		WithField("providers", result.Providers).WithField("lockouts", len(result.Lockouts)).Info("resilience state reset")
	answer(w, http.StatusOK, result)
	return nil
}
