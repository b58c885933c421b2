package main

import (
	"fmt"
	"io"
	"time"

	"omniroute/deployments/dev/demo"
)

// banner says where everything is and gives a call to paste.
func (s *system) banner(w io.Writer, took time.Duration) {
	model := demo.Model
	if s.cmd.NoDemo {
		model = "PROVIDER/MODEL"
	}
	ui := s.temporal.UIURL()
	if ui == "" {
		ui = "off"
	}
	_, _ = fmt.Fprintf(w, `
OmniRoute is up (%[1]s)

  API          %[2]s/v1
  API key      %[3]s
  Status page  %[2]s/
  Password     %[4]s   (the admin token, as Bearer for %[2]s/api/monitoring/health)
  Temporal UI  %[5]s
  Temporal     %[6]s
  Data         %[7]s   (the same in %[7]s/%[8]s)

`, took.Round(10*time.Millisecond), s.access.url, s.access.apiKey, s.access.adminToken, ui, s.temporal.Address(), relative(s.data.path), accessFile)
	_, _ = fmt.Fprintf(w, `  curl -N %s/v1/chat/completions \
    -H 'Authorization: Bearer %s' \
    -d '{"model":"%s","stream":true,"messages":[{"role":"user","content":"Hello"}]}'

`, s.access.url, s.access.apiKey, model)
	if !s.cmd.NoDemo {
		_, _ = fmt.Fprintf(w, `  The first call finds its first key rate limited and is answered by the second. Watch
  the key cool down for 30 s in the Temporal UI (workflow connection/limited-1).
  Other models: healthy/chat, slow/chat, limited/chat, failing/chat, rescue.

`)
	}
	_, _ = fmt.Fprintln(w, "  Ctrl-C stops. A second start finds its data.")
}
