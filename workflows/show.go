package workflows

import (
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"omniroute/workflows/contract"
)

var (
	keyProvider   = temporal.NewSearchAttributeKeyKeyword(contract.AttributeProvider)
	keyConnection = temporal.NewSearchAttributeKeyKeyword(contract.AttributeConnection)
	keyPhase      = temporal.NewSearchAttributeKeyKeyword(contract.AttributePhase)
	keyReason     = temporal.NewSearchAttributeKeyKeyword(contract.AttributeReason)
	keyModels     = temporal.NewSearchAttributeKeyKeywordList(contract.AttributeModel)
	keyUntil      = temporal.NewSearchAttributeKeyTime(contract.AttributeUntil)
)

// shown is what the Web UI lists of a workflow: the search attributes as last set.
type shown struct {
	provider, connection string
	contract.Listing
}

// alreadyShown reads what the start or an earlier run has set.
func alreadyShown(ctx workflow.Context) shown {
	have := workflow.GetTypedSearchAttributes(ctx)
	var s shown
	s.provider, _ = have.GetKeyword(keyProvider)
	s.connection, _ = have.GetKeyword(keyConnection)
	s.Phase, _ = have.GetKeyword(keyPhase)
	s.Reason, _ = have.GetKeyword(keyReason)
	s.Until, _ = have.GetTime(keyUntil)
	s.Models, _ = have.GetKeywordList(keyModels)
	return s
}

// show keeps the sentence current and upserts the attributes that differ, all in one event.
func (s *shown) show(ctx workflow.Context, id contract.Entity, now standing) error {
	workflow.SetCurrentDetails(ctx, now.sentence)
	var updates []temporal.SearchAttributeUpdate
	keyword := func(key temporal.SearchAttributeKeyKeyword, have *string, want string) {
		switch {
		case *have == want:
			return
		case want == "":
			updates = append(updates, key.ValueUnset())
		default:
			updates = append(updates, key.ValueSet(want))
		}
		*have = want
	}
	keyword(keyProvider, &s.provider, string(id.Provider))
	keyword(keyConnection, &s.connection, string(id.Connection))
	keyword(keyPhase, &s.Phase, now.Phase)
	keyword(keyReason, &s.Reason, now.Reason)
	if !s.Until.Equal(now.Until) {
		if s.Until = now.Until; now.Until.IsZero() {
			updates = append(updates, keyUntil.ValueUnset())
		} else {
			updates = append(updates, keyUntil.ValueSet(now.Until))
		}
	}
	if !slices.Equal(s.Models, now.Models) {
		if s.Models = now.Models; len(now.Models) == 0 {
			updates = append(updates, keyModels.ValueUnset())
		} else {
			updates = append(updates, keyModels.ValueSet(now.Models))
		}
	}
	if len(updates) == 0 {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, updates...)
}
