package live_test

import (
	"fmt"
	"testing"
	"time"

	"omniroute/models"
	"omniroute/models/failure"
)

// BenchmarkHealthyAttempt is what health adds to a request when everything is well: one look
// while planning, one pass, one success.
func BenchmarkHealthyAttempt(b *testing.B) {
	r := newReplica(b, "a", nil, newCatalog(3))
	conn, ctx, now := r.conn(1), b.Context(), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r.Check(conn, gpt, true, now)
			pass, _ := r.Admit(ctx, conn, gpt, true, now)
			pass.Succeeded(now)
		}
	})
}

// BenchmarkFailedAttempt is a failure that changes something, while so many models are out.
func BenchmarkFailedAttempt(b *testing.B) {
	for name, verdict := range map[string]func() failure.Verdict{
		"model":      func() failure.Verdict { return locked(models.LockExact, time.Millisecond) },
		"family":     func() failure.Verdict { return locked(models.LockModel, time.Millisecond) },
		"connection": func() failure.Verdict { return rateLimited(time.Millisecond) },
	} {
		for _, out := range []int{0, 100} {
			b.Run(fmt.Sprintf("%s/%d", name, out), func(b *testing.B) {
				r := newReplica(b, "a", nil, newCatalog(3))
				now := time.Now()
				for i := range out {
					pass, _ := r.Admit(b.Context(), r.conn(1), models.ModelRef{Provider: openai, Model: fmt.Sprint("m", i)}, false, now)
					pass.Failed(locked(models.LockExact, 24*time.Hour), now)
				}
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(3 * time.Millisecond)
					pass, _ := r.Admit(b.Context(), r.conn(1), gpt, false, now)
					if pass == nil {
						b.Fatal("out")
					}
					pass.Failed(verdict(), now)
				}
			})
		}
	}
}

// BenchmarkReadAllStates is a complete read of ten thousand rows, a thousand of which cool down.
func BenchmarkReadAllStates(b *testing.B) {
	rows := allRows(10_000, 1_000, time.Now())
	r := newReplica(b, "a", nil, newCatalog(10_000))
	b.ReportAllocs()
	for b.Loop() {
		for i := range rows {
			rows[i].Version++
		}
		r.resync(rows...)
	}
}
