package live_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/gateway/live"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// Ten thousand connections, each with a row, of which a thousand cool down and have two models
// out: what a replica holds of them and how long it takes to read them all.
func TestTenThousandConnectionsAreReadFastAndHeldInLittleMemory(t *testing.T) {
	const connections, cooling = 10_000, 1_000
	r, snapshot := newReplica(t, "a", nil, newCatalog(1)), newCatalog(connections)
	before := heap()
	rows := allRows(connections, cooling, time.Now())
	swapped := took(func() { r.CatalogChanged(snapshot) })
	read := took(func() { r.resync(rows...) })
	held := heap() - before // the rows are not held any more
	var report live.Report
	reported := took(func() { report = r.Report(time.Now()) })

	out := 0
	for _, c := range report.Connections {
		if c.Phase == models.PhaseCooling {
			out++
		}
	}
	require.Equal(t, cooling, out)
	require.Len(t, report.Lockouts, 2*cooling)
	t.Logf("catalog %v, states %v, report %v, %.1f MB", swapped, read, reported, float64(held)/1e6)
	require.Less(t, held, int64(30e6))
	for _, d := range []time.Duration{swapped, read, reported} {
		require.Less(t, d, 5*time.Second, "by far, also on a machine that is busy with other things")
	}
}

func took(run func()) time.Duration {
	begin := time.Now()
	run()
	return time.Since(begin)
}

// allRows are the rows of so many connections, the first of which cool down.
func allRows(connections, cooling int, now time.Time) []catalog.ConnectionState {
	rows := make([]catalog.ConnectionState, 0, connections)
	for i := range connections {
		state := resilience.Connection{}.Enter(1, now.Add(-time.Hour))
		if i < cooling {
			f := resilience.Failure{At: now, Reason: models.ReasonRateLimited, Status: 429, Hint: time.Hour, Fixed: time.Hour}
			policy := resilience.ConnectionPolicy{Cooldown: rules.CooldownPolicy(models.ClassAPIKey)}
			state, _ = state.Fail(f, policy)
			for _, model := range []string{"m1", "m2"} {
				state, _ = state.FailModel(resilience.KeyOf(models.LockModel, model, ""), f, policy.Cooldown)
			}
		}
		rows = append(rows, publishedWhole(models.ConnectionID(fmt.Sprintf("openai-%d", i+1)), 1, state))
	}
	return rows
}

// heap is what is in use after a collection, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap of a test is as large
}
