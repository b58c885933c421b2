package access

import (
	"net/http"
	"strings"
)

// Methods lists the methods that a request's path takes, as the header Allow wants them (RFC
// 9110 15.5.6); takes says whether there is a route for a request.
func Methods(r *http.Request, takes func(*http.Request) bool) string {
	var methods []string
	other := r.Clone(r.Context())
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if other.Method = method; takes(other) {
			methods = append(methods, method)
		}
	}
	return strings.Join(methods, ", ")
}
