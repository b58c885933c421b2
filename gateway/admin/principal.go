package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"

	"omniroute/gateway/access"
	"omniroute/models"
	"omniroute/models/catalog"
)

// principal is who calls: an operator with the admin token, or an API key.
type principal struct {
	// actor goes into the audit log; empty for nobody.
	actor  string
	manage bool
}

// authenticate looks at "Authorization: Bearer" and "x-api-key". Nobody is not an error:
// what a caller may see is decided by the operation.
func (s *Service) authenticate(r *http.Request) principal {
	if token := s.o.AdminToken; token != "" && sameSecret(access.Presented(r), token) {
		return principal{actor: "api:admin-token", manage: true}
	}
	key, refusal := access.Identify(r, s.o.Live.Snapshot(), s.o.HashKey)
	if refusal != nil {
		return principal{}
	}
	return principal{actor: "api:key " + key.Name, manage: key.Scopes[catalog.ScopeManage]}
}

// sameSecret compares digests, so that neither content nor length shows in the time taken.
func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// mayManage is the error of a caller that may not, or nil.
func (p principal) mayManage() *models.Error {
	switch {
	case p.manage:
		return nil
	case p.actor == "":
		return models.Errorf(models.CodeInvalidAPIKey, "The management API needs the admin token, or an API key with scope manage, as 'Authorization: Bearer ...'.")
	default:
		return models.Errorf(models.CodeForbidden, "This API key does not have the scope manage.")
	}
}
