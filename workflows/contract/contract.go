// Package contract is what the gateway and the durable side agree on: names, ids, messages
// and activity handles. It is plain Go: no SDK, no behaviour beyond building and merging.
package contract

import "omniroute/models"

// Task queues. State work touches the database only and is fast; io work probes, refreshes
// and waits for the outside.
const (
	TaskQueueState = "omniroute-state"
	TaskQueueIO    = "omniroute-io"
)

// Workflow types.
const (
	WorkflowConnection = "Connection"
	WorkflowProvider   = "Provider"
)

// Messages of an entity workflow. Signals are facts in the past tense, updates are requests
// with an answer, the query reads without changing.
const (
	SignalFailureObserved    = "FailureObserved"
	SignalRecoveryObserved   = "RecoveryObserved"
	SignalCredentialsChanged = "CredentialsChanged"
	UpdateReset              = "Reset"
	QueryState               = "State"
)

// Requests that only a connection's workflow takes.
const (
	UpdateEnableModel        = "EnableModel"
	UpdateClearCooldown      = "ClearCooldown"
	UpdateRefreshCredentials = "RefreshCredentials"
)

// Search attributes of every entity workflow. All are keywords except OmniModel, a list of
// them, and OmniUntil, a datetime.
const (
	AttributeProvider   = "OmniProvider"
	AttributeConnection = "OmniConnection"
	AttributeModel      = "OmniModel" // models and families that are locked out now
	AttributePhase      = "OmniPhase"
	AttributeReason     = "OmniReason"
	AttributeUntil      = "OmniUntil"
)

// ConnectionWorkflowID is the id of a connection's workflow.
func ConnectionWorkflowID(id models.ConnectionID) string { return "connection/" + string(id) }

// ProviderWorkflowID is the id of a provider's workflow.
func ProviderWorkflowID(id models.ProviderID) string { return "provider/" + string(id) }
