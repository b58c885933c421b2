package ingress

import (
	"net/http"

	"omniroute/models"
)

// alive answers as long as the process does.
func (e *edge) alive(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, []byte(`{"status":"alive"}`))
}

// ready answers whether requests can be served.
func (e *edge) ready(w http.ResponseWriter, _ *http.Request) {
	if err := e.notReady(); err != nil {
		writeProblem(w, models.Errorf(models.CodeCatalogUnavailable, "The gateway is not ready.").WithCause(err))
		return
	}
	writeJSON(w, http.StatusOK, []byte(`{"status":"ready"}`))
}

func (e *edge) notReady() error {
	if e.Ready == nil {
		return nil
	}
	return e.Ready()
}
