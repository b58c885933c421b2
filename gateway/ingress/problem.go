package ingress

import (
	"net/http"
	"strconv"

	"omniroute/gateway/dialect/openai"
	"omniroute/models"
)

// writeProblem answers with an error in OpenAI's envelope, so that the official clients
// raise their proper exception.
func writeProblem(w http.ResponseWriter, e *models.Error) {
	header := w.Header()
	if seconds := e.RetryAfterSeconds(); seconds > 0 {
		header.Set("Retry-After", strconv.Itoa(seconds))
	}
	if e.Status() == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="omniroute"`) // RFC 9110 15.5.2
	}
	writeJSON(w, e.Status(), openai.ErrorBody(e))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that left does not want it
}
