package admin

import (
	_ "embed"
	"html/template"
	"net/http"
)

//go:embed status.html
var statusHTML string

var statusPage = template.Must(template.New("status").Parse(statusHTML))

// statusData is what the page shows: nothing that needs a token.
type statusData struct {
	Summary
	Serving    bool
	TemporalUI string
}

// StatusPage is the page at /: whether this replica serves, and where to look further.
func (s *Service) StatusPage(ready func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		_ = statusPage.Execute(w, statusData{s.Summary(), ready() == nil, s.o.TemporalUI}) // the client left
	})
}
