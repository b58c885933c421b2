// Package load measures what the gateway costs, beside a tuned httputil.ReverseProxy in the
// same run against the same upstream. "make bench" runs it.
//
// Upstream, proxy and gateway are processes of their own, so that the CPU time the kernel
// counts for each is its own; the gateway is the production assembly with authentication,
// routing, resilience, metrics, log and ledger on. Rounds of proxy and gateway alternate and
// the best of each counts, since everything that disturbs a round makes it slower. A figure
// above its bound fails the benchmark.
package load
