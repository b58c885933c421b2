package assembly

import (
	"net/http"

	"omniroute/activities"
	"omniroute/worker"
)

// startWorker begins to work in the background: Temporal may come after us, and a gateway in
// this process must not wait for it.
func (a *Assembly) startWorker(cluster temporalClient) {
	options := worker.Options{
		Client: cluster.Client, Namespace: cluster.namespace, // the SDK takes its own client only
		States: activities.States{Store: a.store}, Log: a.log.WithField("part", "worker"),
	}
	if a.ring != nil {
		options.Credentials = activities.NewCredentials(a.store)
	} else {
		a.log.Warn("without encryption keys this worker refreshes no OAuth tokens; others must")
	}
	a.worker = worker.New(options)
	a.worker.Start()
	a.cleanups.add("worker", worker.StopLimit, a.worker.Stop)
}

// workerHandler is the whole HTTP surface of a process that only works. It is ready while it
// polls, so that a roll-out waits for it.
func (a *Assembly) workerHandler() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "alive") })
	routes.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case a.draining.Load():
			plain(w, http.StatusServiceUnavailable, errDraining.Error())
		case !a.worker.Running():
			plain(w, http.StatusServiceUnavailable, "waiting for Temporal")
		default:
			plain(w, http.StatusOK, "ready")
		}
	})
	routes.Handle("GET /metrics", a.metricsHandler())
	return routes
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the prober left
}
