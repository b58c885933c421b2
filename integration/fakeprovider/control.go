package fakeprovider

import (
	"encoding/json"
	"net/http"
)

// Log is what GET /__log answers.
type Log struct {
	Attempts    []Attempt   `json:"attempts"`
	Dropped     int64       `json:"dropped"` // attempts that the bound pushed out
	Concurrency Concurrency `json:"concurrency"`
}

func (p *Provider) getLog(w http.ResponseWriter, _ *http.Request) {
	attempts := p.log.all()
	for i := range attempts {
		attempts[i].Header = attempts[i].Header.Clone()
		for _, name := range []string{"Authorization", "X-Api-Key"} {
			if attempts[i].Header.Get(name) != "" {
				attempts[i].Header.Set(name, "[redacted]")
			}
		}
	}
	p.log.mu.Lock()
	dropped := p.log.dropped
	p.log.mu.Unlock()
	writeJSON(w, Log{Attempts: attempts, Dropped: dropped, Concurrency: p.Concurrency(Any, Any)})
}

func (p *Provider) deleteLog(w http.ResponseWriter, _ *http.Request) {
	p.Forget()
	w.WriteHeader(http.StatusNoContent)
}

func (p *Provider) getScript(w http.ResponseWriter, _ *http.Request) {
	script := p.scripts.current()
	for i := range script.Rules {
		if script.Rules[i].Key != Any {
			script.Rules[i].Key = KeyHash(script.Rules[i].Key)
		}
	}
	writeJSON(w, script)
}

func (p *Provider) putScript(w http.ResponseWriter, r *http.Request) {
	script, err := ParseScript(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.scripts.replace(script)
	w.WriteHeader(http.StatusNoContent)
}

func (p *Provider) postRelease(w http.ResponseWriter, _ *http.Request) {
	p.Release()
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
