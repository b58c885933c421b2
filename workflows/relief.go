package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// longestModel is as long as a model's id can be in a catalog.
const longestModel = 300

func checkEnable(request contract.EnableModelRequest) error {
	switch n := len(request.Keys) + len(request.Models); {
	case n == 0:
		return refusal(contract.ErrorInvalidRequest, `name models, as in {"models": ["gpt-x"]}, or keys, as in {"keys": [{"scope": "family", "name": "spark"}]}`)
	case n > resilience.MaxLockouts:
		return refusal(contract.ErrorInvalidRequest, "%d keys and models are more than %d", n, resilience.MaxLockouts)
	}
	for i, key := range request.Keys {
		if key.Scope != models.LockExact && key.Scope != models.LockModel && key.Scope != models.LockFamily {
			return refusal(contract.ErrorInvalidRequest, "keys[%d].scope is %q, not one of exact, model, family", i, clip(string(key.Scope), shownName))
		}
		if err := checkModel("keys", i, key.Name); err != nil {
			return err
		}
	}
	for i, name := range request.Models {
		if err := checkModel("models", i, name); err != nil {
			return err
		}
	}
	return nil
}

func checkModel(field string, i int, name string) error {
	if name == "" || len(name) > longestModel {
		return refusal(contract.ErrorInvalidRequest, "%s[%d] must have 1 to %d characters, this one has %d", field, i, longestModel, len(name))
	}
	return nil
}

// enableModel ends lockouts. It is remembered, so that evidence from before that is still under
// way changes nothing.
func (c *connection) enableModel(ctx workflow.Context, request contract.EnableModelRequest) (contract.Answer, error) {
	keys := request.Keys
	for _, name := range request.Models { // of a model or of a family
		keys = append(keys, resilience.KeysOf(name, name)...)
	}
	return c.change(ctx, contract.UpdateEnableModel, request.Asked, func(now time.Time) error {
		c.state, _ = c.state.Enable(keys, now)
		return nil
	})
}

// clearCooldown ends the cooldown and forgets what is counted.
func (c *connection) clearCooldown(ctx workflow.Context, request contract.ClearCooldownRequest) (contract.Answer, error) {
	return c.change(ctx, contract.UpdateClearCooldown, request.Asked, func(now time.Time) error {
		if terminal := c.state.Cooldown.Terminal; terminal != "" {
			return refusal(contract.ErrorTerminal, "%s is %s, which ends by a reset or by new credentials only", c.name(), terminal)
		}
		c.state, _ = c.state.ClearCooldown(now)
		return nil
	})
}
