// Package models holds the words of the domain: named ids, coded errors, and the
// enums whose strings reach the log, the metric, the API and the dashboard alike.
// It imports the standard library only.
package models

import "strings"

// ProviderID names an upstream service, such as "openai".
type ProviderID string

// ConnectionID names one account or key at a provider, such as "openai-1".
type ConnectionID string

// APIKeyID names a key that clients of the gateway present. It is never the key itself.
type APIKeyID string

// RequestID identifies one client request; it is the value of x-request-id.
type RequestID string

// ModelRef is a model at a provider, written "provider/model". The model part is the
// provider's own id and may contain slashes and colons.
type ModelRef struct {
	Provider ProviderID
	Model    string
}

// String returns "provider/model".
func (r ModelRef) String() string { return string(r.Provider) + "/" + r.Model }

// ParseModelRef splits s at its first slash. It reports false when either side is empty.
func ParseModelRef(s string) (ModelRef, bool) {
	provider, model, found := strings.Cut(s, "/")
	if !found || provider == "" || model == "" {
		return ModelRef{}, false
	}
	return ModelRef{Provider: ProviderID(provider), Model: model}, true
}

// Target is one leg of a plan: a model through one connection.
type Target struct {
	Connection ConnectionID
	Model      ModelRef
}
