package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// hungAt are upstreams that stop at every point of an attempt, with the limit that ends
// each, before the commit.
var hungAt = map[string]struct {
	script http.HandlerFunc
	stream bool
	after  time.Duration
	code   string
}{
	"response headers, stream": {hang, true, limits.Headers, "upstream_header_timeout"},
	"response headers":         {hang, false, limits.Headers, "upstream_header_timeout"},
	"first content": {func(w http.ResponseWriter, r *http.Request) {
		openStream(w)
		say(w, roleEvent)
		hang(w, r)
	}, true, limits.FirstContent, "stream_readiness_timeout"},
	"first content, with pings": {func(w http.ResponseWriter, r *http.Request) {
		openStream(w)
		for r.Context().Err() == nil {
			rest(r, time.Second)
			fmt.Fprint(w, ": ping\n\n")
			say(w, roleEvent, `{"choices":[],"usage":{"prompt_tokens":1}}`)
		}
	}, true, limits.FirstContent, "stream_readiness_timeout"},
	"the body of an answer": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[`)
		say(w)
		hang(w, r)
	}, false, limits.Idle, "stream_idle_timeout"},
	"an answer that drips for ever": {func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for r.Context().Err() == nil {
			fmt.Fprint(w, ` `)
			http.NewResponseController(w).Flush() //nolint:errcheck // the gateway may be gone
			rest(r, 10*time.Second)
		}
	}, false, limits.Total, "upstream_total_timeout"},
}

func TestAHangBeforeTheCommitEndsAtItsOwnLimitAndFailsOver(t *testing.T) {
	for name, c := range hungAt {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", c.script)
				got := w.chat("best", c.stream)
				require.Equal(t, tokenText(5), got.text())
				require.InDelta(t, c.after.Seconds(), got.took.Seconds(), 0.1*c.after.Seconds())
				require.EqualValues(t, c.code, w.health.verdict(t, "c1").Code)
				require.Equal(t, models.ConnectionID("c1"), <-w.hungUp, "the upstream is hung up on")
			})
		})
	}
}

func TestAHangWithNobodyElseToAskIsAnsweredWithItsOwnCode(t *testing.T) {
	for name, c := range hungAt {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("d1", c.script)
				got := w.chat("q/n", c.stream)
				require.Equal(t, 504, got.status)
				require.Equal(t, c.code, got.problem(t).Error.Code)
				require.InDelta(t, c.after.Seconds(), got.took.Seconds(), 0.1*c.after.Seconds())
			})
		})
	}
}

func TestSilenceAfterTheCommitEndsWithOneErrorEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, roleEvent, tokenEvent(0))
			hang(rw, r)
		})
		got := w.chat("best", true)
		require.Equal(t, token(0), got.text())
		require.Equal(t, "stream_idle_timeout", got.lastError(t).Error.Code)
		require.InDelta(t, limits.Idle.Seconds(), got.took.Seconds(), 0.1*limits.Idle.Seconds())
		require.Equal(t, []string{"failed"}, w.health.endings("c1"))
	})
}

func TestBytesKeepAStreamAliveUntilTheLimitOfTheWholeAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			for i := 0; r.Context().Err() == nil; i++ {
				say(rw, tokenEvent(i))
				rest(r, limits.Idle-time.Second)
			}
		})
		got := w.chat("best", true)
		require.Equal(t, "upstream_total_timeout", got.lastError(t).Error.Code)
		require.InDelta(t, limits.Total.Seconds(), got.took.Seconds(), 1)
	})
}

func TestAHangAfterTheFinishReasonIsASuccessSoonerThanSilenceWouldBe(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, roleEvent, tokenEvent(0), finishEvent, usageEvent)
			for r.Context().Err() == nil {
				rest(r, time.Second)
				fmt.Fprint(rw, ": ping\n\n")
				say(rw)
			}
		})
		got := w.chat("best", true)
		require.Equal(t, 1, got.count("[DONE]"))
		require.InDelta(t, 10, got.took.Seconds(), 1)
		require.Equal(t, []string{"succeeded"}, w.health.endings("c1"))
		require.EqualValues(t, 60, w.ledger.last(t).OutputTokens)
	})
}

// The status and the wait of a refusal are known from its head: that a limit of ours strikes
// while its body is read takes nothing away from them.
func TestALimitDoesNotRewriteAnAnswerThatHadArrived(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			rest(r, limits.Headers-time.Second)
			rw.Header().Set("Retry-After", "42")
			rw.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(rw, `{"error":`)
			say(rw)
			hang(rw, r)
		})
		require.Equal(t, 200, w.chat("best", false).status)
		verdict := w.health.verdict(t, "c1")
		require.Equal(t, models.ReasonRateLimited, verdict.Reason)
		require.Equal(t, 429, verdict.UpstreamStatus)
		require.Equal(t, 42*time.Second, verdict.Hint)
	})
}

// With n > 1 some upstreams send one choice after the other: the end of the first is not the
// end of the stream.
func TestAChoiceThatBeginsWhenAllOthersHaveEndedIsNotCutShort(t *testing.T) {
	choice := func(index int, delta, finish string) string {
		return fmt.Sprintf(`{"choices":[{"index":%d,"delta":%s,"finish_reason":%s}]}`, index, delta, finish)
	}
	slowly := func(between time.Duration) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			for i := range 3 {
				say(rw, choice(i, `{"content":"one "}`, "null"))
				rest(r, between)
				say(rw, choice(i, `{"content":"two "}`, "null"))
				rest(r, between)
				say(rw, choice(i, `{}`, `"stop"`))
			}
			say(rw, usageEvent, "[DONE]")
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", slowly(limits.Idle-time.Second))
		// The client asked for two; a third one that begins all the same is let through.
		got := w.chatWith("p/m", true, `,"n":2`)
		require.Equal(t, strings.Repeat("one two ", 3), got.text())
		require.Equal(t, 1, got.count("[DONE]"))
		require.Equal(t, []string{"succeeded"}, w.health.endings("c1"))
	})
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, choice(0, `{"content":"one "}`, "null"), choice(0, `{}`, `"stop"`))
		})
		got := w.chatWith("p/m", true, `,"n":2`)
		require.Equal(t, "stream_cut", got.lastError(t).Error.Code, "one of two, and no end marker")
		require.Zero(t, got.count("[DONE]"))
	})
}

func TestAnEndedStreamIsOverAtOnceThoughTheUpstreamKeepsItOpen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			healthy(2)(rw, r)
			hang(rw, r)
		})
		got := w.chat("p/m", true)
		require.Equal(t, 1, got.count("[DONE]"))
		require.Less(t, got.took, time.Second)
	})
}

// A client that leaves takes its attempt with it, and blames nobody.
func TestAClientThatLeavesEndsTheAttemptAtOnce(t *testing.T) {
	points := map[string]struct {
		stream bool
		script http.HandlerFunc
	}{
		"before the headers":         {false, hang},
		"before a stream's headers":  {true, hang},
		"before the first token":     {true, func(w http.ResponseWriter, r *http.Request) { openStream(w); say(w, roleEvent); hang(w, r) }},
		"in the middle of an answer": {false, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"choices":`); say(w); hang(w, r) }},
		"after three tokens": {true, func(w http.ResponseWriter, r *http.Request) {
			openStream(w)
			say(w, roleEvent, tokenEvent(0), tokenEvent(1), tokenEvent(2))
			hang(w, r)
		}},
	}
	for name, point := range points {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", point.script)
				ctx, leave := context.WithCancel(t.Context())
				left := make(chan struct{})
				go func() {
					defer close(left)
					resp, err := w.send(ctx, "best", point.stream, "")
					if err == nil {
						defer resp.Body.Close()
						for read := make([]byte, 1<<10); err == nil; {
							_, err = resp.Body.Read(read)
						}
					}
				}()
				synctest.Wait()
				at := time.Now()
				leave()
				require.Equal(t, models.ConnectionID("c1"), <-w.hungUp)
				require.Less(t, time.Since(at), time.Second)
				<-left
				synctest.Wait()
				require.Equal(t, []models.ConnectionID{"c1"}, w.attempts(), "no further target is tried")
				require.Equal(t, []string{"abandoned"}, w.health.endings("c1"))
				row := w.ledger.last(t)
				require.Equal(t, 499, row.Status)
				require.Equal(t, models.ReasonClientGone, row.Reason)
			})
		})
	}
}

func TestAClientThatLeavesOnTheEndMarkerIsBookedAsServed(t *testing.T) {
	for range 50 {
		inBubble(t, func(t *testing.T, w *world) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := w.send(ctx, "p/m", true, "")
			require.NoError(t, err)
			for got, read := "", make([]byte, 1<<10); ; {
				n, err := resp.Body.Read(read)
				got += string(read[:n])
				if len(got) > 0 && (err != nil || got[len(got)-len("[DONE]\n\n"):] == "[DONE]\n\n") {
					break
				}
			}
			leave()
			resp.Body.Close()
			synctest.Wait()
			row := w.ledger.last(t)
			require.Equal(t, 200, row.Status)
			require.EqualValues(t, 60, row.OutputTokens)
			require.Equal(t, []string{"succeeded"}, w.health.endings("c1"))
		})
	}
}

// A client that stops reading but stays connected does not hold the upstream for ever.
func TestAClientThatStopsReadingIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			for i := 0; r.Context().Err() == nil && i < 1_000_000; i++ {
				say(rw, tokenEvent(i))
			}
		})
		resp, err := w.send(t.Context(), "p/m", true, "")
		require.NoError(t, err)
		defer resp.Body.Close()
		require.Equal(t, models.ConnectionID("c1"), <-w.hungUp)
		synctest.Wait()
		require.Equal(t, 499, w.ledger.last(t).Status)
		require.Equal(t, []string{"abandoned"}, w.health.endings("c1"))
	})
}
