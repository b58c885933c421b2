package relay_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/gateway/relay"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
)

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

var endingScripts = map[string]http.HandlerFunc{
	"healthy":       healthy(3),
	"refused":       refuse(400, `{}`),
	"rate limited":  refuse(429, `{}`),
	"broken":        refuse(500, `{}`),
	"reset":         func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"hangs":         hang,
	"cut early":     cut(0, false),
	"cut late":      cut(4, false),
	"ends early":    cut(4, true),
	"hangs late":    func(w http.ResponseWriter, r *http.Request) { openStream(w); say(w, tokenEvent(0)); hang(w, r) },
	"finishes only": cut(2, true, finishEvent),
	"garbage":       func(w http.ResponseWriter, _ *http.Request) { openStream(w); say(w, "{{") },
}

// Whatever upstreams and clients do, every attempt is settled exactly once, every request is
// booked exactly once, and nothing runs on.
func TestEveryAttemptIsSettledOnceAndEveryRequestBookedOnce(t *testing.T) {
	names := make([]string, 0, len(endingScripts))
	for name := range endingScripts {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(rt *rapid.T) {
		scripts := map[models.ConnectionID]string{}
		for _, c := range []models.ConnectionID{"c1", "c2", "c3", "d1"} {
			scripts[c] = rapid.SampledFrom(names).Draw(rt, string(c))
		}
		type request struct {
			model  string
			stream bool
			leaves time.Duration
		}
		requests := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) request {
			return request{
				rapid.SampledFrom([]string{"p/m", "best", "stubborn", "q/n", "nope"}).Draw(rt, "model"), rapid.Bool().Draw(rt, "stream"),
				time.Duration(rapid.SampledFrom([]int{0, 1, 5_000, 15_000, 3_600_000}).Draw(rt, "leaves after ms")) * time.Millisecond,
			}
		}), 1, 6).Draw(rt, "requests")

		inBubble(t, func(t *testing.T, w *world) {
			for c, name := range scripts {
				w.script(c, endingScripts[name])
			}
			done := make(chan struct{}, len(requests))
			for _, r := range requests {
				go func() {
					defer func() { done <- struct{}{} }()
					ctx, cancel := context.WithTimeout(t.Context(), r.leaves)
					defer cancel()
					resp, err := w.send(ctx, r.model, r.stream, "")
					if err != nil {
						return
					}
					defer resp.Body.Close()
					for read := make([]byte, 1<<10); err == nil; {
						_, err = resp.Body.Read(read)
					}
				}()
			}
			for range requests {
				<-done
			}
			synctest.Wait()
			w.health.requireSettled(t)
			w.ledger.mu.Lock()
			defer w.ledger.mu.Unlock()
			require.LessOrEqual(t, len(w.ledger.rows), len(requests))
			attempts := 0
			for _, row := range w.ledger.rows {
				attempts += row.Attempts
			}
			require.Equal(t, len(w.health.passes), attempts, "the books and the passes agree")
			require.Zero(t, testutil.ToFloat64(w.relay.InFlight()))
		})
	})
}

func TestAPanicInTheMiddleIsAnsweredAndBlamesNobody(t *testing.T) {
	for name, committed := range map[string]bool{"before the commit": false, "after the commit": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", healthy(3))
				w.relay.SetUpstream(&panicking{committed: committed})
				got := w.chat("p/m", true)
				require.NotContains(t, got.body, "the secret inside")
				if committed {
					require.Equal(t, token(0), got.text())
					require.Equal(t, "internal_error", got.lastError(t).Error.Code)
				} else {
					require.Equal(t, 500, got.status)
					require.Equal(t, "internal_error", got.problem(t).Error.Code)
				}
				require.Equal(t, []string{"abandoned"}, w.health.endings("c1"))
				require.Equal(t, 500, w.ledger.last(t).Status)
			})
		})
	}
}

// panicking is an upstream with a defect.
type panicking struct{ committed bool }

func (p *panicking) Do(context.Context, *catalog.ConnectionView, []byte, bool) (*http.Response, *failure.Signal) {
	if !p.committed {
		panic("the secret inside")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &panickingBody{}}, nil
}

type panickingBody struct{ reads int }

func (b *panickingBody) Read(p []byte) (int, error) {
	if b.reads++; b.reads > 1 {
		panic("the secret inside")
	}
	return copy(p, "data: "+tokenEvent(0)+"\n\n"), nil
}

func (b *panickingBody) Close() error { return nil }

var _ relay.Upstream = (*panicking)(nil)
