package ingress

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"omniroute/gateway/access"
	"omniroute/models"
)

// routes is every route there is. What a router does not find, or not with this method, is
// answered in the same envelope as everything else; so is a path that could be put right, since
// many clients turn a redirected POST into a GET or do not follow it.
func (e *edge) routes() http.Handler {
	router := mux.NewRouter().UseEncodedPath().SkipClean(true)

	// The client API.
	router.HandleFunc("/v1/chat/completions", e.chatCompletions).Methods(http.MethodPost)
	router.HandleFunc("/v1/models", e.listModels).Methods(http.MethodGet)
	router.HandleFunc("/v1/models/{id:.+}", e.getModel).Methods(http.MethodGet)

	// For whoever runs the process.
	router.HandleFunc("/healthz", e.alive).Methods(http.MethodGet, http.MethodHead)
	router.HandleFunc("/readyz", e.ready).Methods(http.MethodGet, http.MethodHead)
	if e.Metrics != nil {
		router.Handle("/metrics", e.Metrics).Methods(http.MethodGet)
	}
	if e.Status != nil {
		router.Handle("/", e.Status).Methods(http.MethodGet, http.MethodHead)
	}

	// The management API authenticates, routes and answers by itself.
	if e.Admin != nil {
		router.PathPrefix("/api/").Handler(e.Admin)
	}

	router.NotFoundHandler = http.HandlerFunc(e.notFound)
	router.MethodNotAllowedHandler = e.methodNotAllowed(router)
	return router
}

func (e *edge) notFound(w http.ResponseWriter, r *http.Request) {
	hint := ""
	if strings.Contains(r.URL.Path, "//") {
		hint = " The base URL that the client was given ends in a slash too many."
	}
	e.refuse(w, r, nil, models.Errorf(models.CodeNotFound, "There is nothing at %s %s.%s", clip(r.Method), clip(r.URL.Path), hint))
}

// methodNotAllowed names the methods that the path does have (RFC 9110 15.5.6).
func (e *edge) methodNotAllowed(router *mux.Router) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allow := access.Methods(r, func(other *http.Request) bool {
			match := mux.RouteMatch{}
			return router.Match(other, &match) && match.MatchErr == nil
		})
		w.Header().Set("Allow", allow)
		e.refuse(w, r, nil, models.Errorf(models.CodeMethodNotAllowed, "%s is not possible at %s; use %s.", clip(r.Method), clip(r.URL.Path), allow))
	})
}

// clip bounds what is repeated of a client's own text.
func clip(s string) string { return s[:min(len(s), 200)] }
