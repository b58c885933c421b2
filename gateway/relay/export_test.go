package relay

import "github.com/prometheus/client_golang/prometheus"

// SetUpstream replaces the upstream of a relay under test.
func (r *Relay) SetUpstream(u Upstream) { r.upstream = u }

// InFlight is the gauge of running requests.
func (r *Relay) InFlight() prometheus.Gauge { return r.metrics.inFlight }

// SetSeats says how many requests may wait.
func (r *Relay) SetSeats(n int64) { r.seats = n }

// SetRenewals gives a relay under test a way to renew credentials.
func (r *Relay) SetRenewals(n *Renewals) { r.renewals = n }
