// Package access is what every door of the gateway does alike: it finds out who calls, which
// methods a path takes, and tells an operator of those who were turned away.
package access

import (
	"net/http"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
)

// Presented is the key that a request presents, as "Authorization: Bearer" or x-api-key;
// empty when there is none.
func Presented(r *http.Request) string {
	const scheme = "bearer "
	if values := r.Header["Authorization"]; len(values) > 0 {
		if value := values[0]; len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
			return strings.TrimSpace(value[len(scheme):])
		}
	}
	if values := r.Header["X-Api-Key"]; len(values) > 0 {
		return strings.TrimSpace(values[0])
	}
	return ""
}

// Identify finds the key of the catalog that a request presents. An unknown key and an expired
// one are told apart from no key at all, never from each other's names; the expired one comes
// with its refusal, so that it can be named in the books.
func Identify(r *http.Request, snapshot *catalog.Snapshot, hashKey func(clear string) [32]byte) (*catalog.KeyView, *models.Error) {
	presented := Presented(r)
	if presented == "" {
		return nil, models.Errorf(models.CodeInvalidAPIKey, "An API key is required, as \"Authorization: Bearer KEY\" or \"x-api-key: KEY\".")
	}
	key := snapshot.Keys[hashKey(presented)]
	if key == nil {
		return nil, models.Errorf(models.CodeInvalidAPIKey, "The API key is not known.")
	}
	if !key.Valid(time.Now()) {
		return key, models.Errorf(models.CodeInvalidAPIKey, "The API key has expired.")
	}
	return key, nil
}
