package relay_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

func TestAHealthyStreamPassesUntouchedAndIsBooked(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		got := w.chat("p/m", true)
		require.Equal(t, 200, got.status)
		require.Equal(t, "text/event-stream", got.header.Get("Content-Type"))
		require.Equal(t, "data: "+roleEvent+"\n\n", got.body[:len(roleEvent)+8], "the very bytes, unknown fields included")
		require.Equal(t, tokenText(5), got.text())
		require.Equal(t, 0, got.count("usage"), "the usage event was not asked for")
		require.True(t, strings.HasSuffix(got.body, "data: "+finishEvent+"\n\ndata: [DONE]\n\n"))
		require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"))
		require.Equal(t, "p", got.header.Get("X-OmniRoute-Provider"))
		require.Equal(t, "m", got.header.Get("X-OmniRoute-Model"))
		require.Equal(t, "1", got.header.Get("X-OmniRoute-Attempts"))
		require.NotEmpty(t, got.header.Get("x-request-id"))

		row := w.ledger.last(t)
		require.Equal(t, 200, row.Status)
		require.Equal(t, "p/m", row.Served)
		require.EqualValues(t, 11, row.InputTokens)
		require.EqualValues(t, 60, row.OutputTokens)
		require.Equal(t, models.APIKeyID("k1"), row.Key)
		require.Contains(t, w.bodies[0], `"stream_options":{"include_usage":true}`, "so that tokens can be booked")
		require.Equal(t, []string{"succeeded"}, w.health.endings("c1"))
	})
}

func TestTheUsageEventIsForThoseWhoAskedForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		got := w.chatWith("p/m", true, `,"stream_options":{"include_usage":true}`)
		require.Equal(t, 1, got.count(`"usage"`))
	})
}

// A cut stream is never a success: before the first content another target answers, after it
// the client is told.
func TestAStreamCutBeforeContentIsServedByTheNextTarget(t *testing.T) {
	for name, clean := range map[string]bool{"reset": false, "clean end": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", cut(0, clean))
				got := w.chat("best", true)
				require.Equal(t, tokenText(5), got.text())
				require.Equal(t, 1, got.count(`"role"`))
				require.Equal(t, 1, got.count(`"finish_reason":"stop"`))
				require.Equal(t, 1, got.count("[DONE]"))
				require.Equal(t, []models.ConnectionID{"c1", "d1"}, w.attempts())
				require.Equal(t, []string{"failed"}, w.health.endings("c1"))
				require.Equal(t, "c1:cut_stream, d1:ok", got.header.Get("X-OmniRoute-Combo-Trace"))
				require.Equal(t, "2", got.header.Get("X-OmniRoute-Attempts"))
			})
		})
	}
}

func TestAStreamCutAfterContentEndsWithOneErrorEventAndNothingElse(t *testing.T) {
	for name, clean := range map[string]bool{"reset": false, "clean end": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", cut(40, clean))
				got := w.chat("best", true)
				require.NoError(t, got.readErr, "the response itself ends properly")
				require.Equal(t, tokenText(40), got.text())
				require.Equal(t, 1, got.count(`"error"`))
				require.Equal(t, "stream_cut", got.lastError(t).Error.Code)
				require.Zero(t, got.count("[DONE]"))
				require.Zero(t, got.count(`"finish_reason":"stop"`))
				require.Equal(t, []models.ConnectionID{"c1"}, w.attempts(), "nothing is replayed after the commit")
				require.Equal(t, []string{"failed"}, w.health.endings("c1"))
				require.Equal(t, models.ScopeModel, w.health.verdict(t, "c1").Scope)
				row := w.ledger.last(t)
				require.Equal(t, 502, row.Status)
				require.Equal(t, models.ReasonCutStream, row.Reason)
				require.Equal(t, models.ConnectionID("c1"), row.Connection)
			})
		})
	}
}

func TestAFinishReasonWithoutAnEndMarkerIsASuccess(t *testing.T) {
	for name, clean := range map[string]bool{"reset": false, "clean end": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", cut(3, clean, finishEvent))
				got := w.chat("best", true)
				require.Equal(t, tokenText(3), got.text())
				require.Equal(t, 1, got.count("[DONE]"))
				require.Zero(t, got.count(`"error"`))
				require.Equal(t, []string{"succeeded"}, w.health.endings("c1"))
				require.Equal(t, 200, w.ledger.last(t).Status)
			})
		})
	}
}

func TestAnEndMarkerWithoutAFinishReasonIsACutStream(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", cut(3, true, "[DONE]"))
		got := w.chat("best", true)
		require.Equal(t, tokenText(3), got.text())
		require.Zero(t, got.count("[DONE]"))
		require.Equal(t, "stream_cut", got.lastError(t).Error.Code)
	})
}

// However an upstream frames its events, the client reads the same answer.
func TestEveryFramingReadsTheSame(t *testing.T) {
	arguments := strings.Repeat(`\"世界🚀\" `, 2<<20/16)
	tool := fmt.Sprintf(`{"id":"x","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"%s"}}]}}]}`, arguments)
	events := []string{roleEvent, tokenEvent(0), tokenEvent(1), tool, tokenEvent(2), finishEvent, usageEvent, "[DONE]"}
	plain := func(event string) string { return "data: " + event + "\n\n" }
	framings := map[string]func(i int, event string) string{
		"plain":    func(_ int, e string) string { return plain(e) },
		"CRLF":     func(_ int, e string) string { return "data: " + e + "\r\n\r\n" },
		"CR":       func(_ int, e string) string { return "data: " + e + "\r\r" },
		"no space": func(_ int, e string) string { return "data:" + e + "\n\n" },
		"several lines": func(_ int, e string) string {
			return "data: " + strings.Replace(e, `"choices":`, "\ndata: \"choices\":\ndata: ", 1) + "\n\n"
		},
		"noise":             func(_ int, e string) string { return ": ping\n\n:\n\n\n\n" + plain(e) + "\n: x\n" },
		"names and ids":     func(i int, e string) string { return fmt.Sprintf("id: %d\nevent: message\n%s", i, plain(e)) },
		"malformed between": func(_ int, e string) string { return "data: {\"choices\":[{\"delta\n\n" + plain(e) },
		"no end marker": func(_ int, e string) string {
			if e == "[DONE]" {
				return ""
			}
			return plain(e)
		},
		"no closing blank line": func(_ int, e string) string {
			if e == "[DONE]" {
				return "data: [DONE]"
			}
			return plain(e)
		},
	}
	for name, frame := range framings {
		for _, zipped := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, gzip %t", name, zipped), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) {
					w.script("c1", func(rw http.ResponseWriter, _ *http.Request) {
						rw.Header().Set("Content-Type", "text/event-stream")
						out := http.NewResponseController(rw)
						write := func(s string) { rw.Write([]byte(s)) } //nolint:errcheck // judged by what arrives
						if zipped {
							rw.Header().Set("Content-Encoding", "gzip")
							zip := gzip.NewWriter(rw)
							write = func(s string) { zip.Write([]byte(s)); zip.Flush() } //nolint:errcheck // judged by what arrives
							defer zip.Close()
						}
						for i, event := range events {
							write(frame(i, event))
							out.Flush() //nolint:errcheck // judged by what arrives
						}
					})
					got := w.chat("p/m", true)
					require.Equal(t, tokenText(3), got.text())
					require.Equal(t, 1, got.count(arguments))
					require.Equal(t, 1, got.count("[DONE]"))
					require.Equal(t, "[DONE]", got.events[len(got.events)-1])
					require.Zero(t, got.count(`"error"`))
					require.NotContains(t, got.body, "\uFFFD")
					require.EqualValues(t, 60, w.ledger.last(t).OutputTokens)
				})
			})
		}
	}
}

func TestOneByteAtATimeReadsTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, _ *http.Request) {
			openStream(rw)
			var whole bytes.Buffer
			for _, event := range []string{roleEvent, tokenEvent(0), tokenEvent(1), finishEvent, usageEvent, "[DONE]"} {
				fmt.Fprintf(&whole, "data: %s\r\n\r\n", event)
			}
			for _, b := range whole.Bytes() {
				rw.Write([]byte{b})                    //nolint:errcheck // judged by what arrives
				http.NewResponseController(rw).Flush() //nolint:errcheck // judged by what arrives
			}
		})
		got := w.chat("p/m", true)
		require.Equal(t, tokenText(2), got.text())
		require.Equal(t, 1, got.count("[DONE]"))
		require.EqualValues(t, 11, w.ledger.last(t).InputTokens)
	})
}

func TestTheFirstTokenReachesTheClientBeforeTheSecondIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		next := make(chan struct{})
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			say(rw, roleEvent, tokenEvent(0))
			<-next
			say(rw, tokenEvent(1), finishEvent, "[DONE]")
		})
		resp, err := w.send(t.Context(), "p/m", true, "")
		require.NoError(t, err)
		defer resp.Body.Close()
		first := make([]byte, 4096)
		n, err := resp.Body.Read(first)
		require.NoError(t, err)
		require.Contains(t, string(first[:n]), `t0世`)
		close(next)
		var rest bytes.Buffer
		_, err = rest.ReadFrom(resp.Body)
		require.NoError(t, err)
		require.Contains(t, rest.String(), "[DONE]")
	})
}

func TestAnEventAboveTheCapIsSaidAndNotSwallowed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		small := int64(10_000)
		w.health.snapshot.Settings.Limits.MaxEventBytes = &small
		w.script("c1", cut(2, true, `{"choices":[{"delta":{"content":"`+strings.Repeat("x", 20_000)+`"}}]}`))
		got := w.chat("p/m", true)
		require.Equal(t, tokenText(2), got.text())
		require.Equal(t, "stream_event_too_large", got.lastError(t).Error.Code)
	})
}

func TestAnErrorInsideAStreamIsAFailure(t *testing.T) {
	const limited = `{"error":{"message":"Rate limit reached","type":"rate_limit_error","code":429}}`
	t.Run("before content the next target serves", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.script("c1", cut(0, true, limited))
			got := w.chat("best", true)
			require.Equal(t, tokenText(5), got.text())
			require.Equal(t, models.ReasonRateLimited, w.health.verdict(t, "c1").Reason)
		})
	})
	t.Run("after content the client is told", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.script("c1", cut(2, true, limited, tokenEvent(3), "[DONE]"))
			got := w.chat("best", true)
			require.Equal(t, tokenText(2), got.text(), "nothing after the error")
			require.Equal(t, "rate_limit_exceeded", got.lastError(t).Error.Code)
			require.Zero(t, got.count("[DONE]"))
		})
	})
	t.Run("by the event's name", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.script("c1", func(rw http.ResponseWriter, _ *http.Request) {
				openStream(rw)
				fmt.Fprint(rw, "event: error\ndata: {\"message\":\"overloaded\"}\n\n")
			})
			require.Equal(t, tokenText(5), w.chat("best", true).text())
		})
	})
}

func TestWhatOnlyLooksLikeAStreamIsTriedElsewhere(t *testing.T) {
	scripts := map[string]http.HandlerFunc{
		"an error with status 200": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			fmt.Fprint(rw, `{"error":{"message":"no capacity"}}`)
		},
		"a page": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/html")
			fmt.Fprint(rw, "<html>")
		},
		"nothing":       func(rw http.ResponseWriter, _ *http.Request) { openStream(rw) },
		"only an end":   func(rw http.ResponseWriter, _ *http.Request) { openStream(rw); say(rw, "[DONE]") },
		"only comments": func(rw http.ResponseWriter, _ *http.Request) { openStream(rw); fmt.Fprint(rw, ": a\n\n: b\n\n") },
		"only garbage":  func(rw http.ResponseWriter, _ *http.Request) { openStream(rw); say(rw, "{", "hello") },
		"nothing but stop": func(rw http.ResponseWriter, _ *http.Request) {
			openStream(rw)
			say(rw, roleEvent, finishEvent, "[DONE]")
		},
		"broken gzip": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "gzip")
			openStream(rw)
			fmt.Fprint(rw, "data: {}\n\n")
		},
		"an unknown encoding": func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Encoding", "br")
			openStream(rw)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", script)
				got := w.chat("best", true)
				require.Equal(t, tokenText(5), got.text())
				require.Equal(t, []string{"failed"}, w.health.endings("c1"))
			})
		})
	}
}

// An answer may be empty because of what the client asked: then it is the answer.
func TestAnEmptyAnswerThatTheRequestExplainsIsServed(t *testing.T) {
	finish := func(reason string) string { return strings.Replace(finishEvent, "stop", reason, 1) }
	cases := map[string]struct{ extra, finish string }{
		"a stop sequence came first":           {`,"stop":["\n"]`, finishEvent},
		"reasoning used up the tokens":         {`,"max_tokens":5`, finish("length")},
		"the filter took everything":           {``, finish("content_filter")},
		"a tool call that names nothing to do": {``, finish("tool_calls")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
					if isStream(r) {
						openStream(rw)
						say(rw, roleEvent, c.finish, usageEvent, "[DONE]")
						return
					}
					fmt.Fprint(rw, strings.Replace(c.finish, "delta", "message", 1))
				})
				for _, stream := range []bool{true, false} {
					got := w.chatWith("best", stream, c.extra)
					require.Equal(t, 200, got.status)
					require.Empty(t, got.text())
					require.Equal(t, "c1", got.header.Get("X-OmniRoute-Connection"))
				}
				require.Equal(t, []string{"succeeded", "succeeded"}, w.health.endings("c1"))
			})
		})
	}
}

func TestAPreludeThatNeverEndsIsNotHeldBackForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			for range 2000 {
				say(rw, roleEvent)
			}
			say(rw, tokenEvent(0), finishEvent, "[DONE]")
		})
		got := w.chat("p/m", true)
		require.Equal(t, 2000, got.count(`"role"`))
		require.Equal(t, 1, got.count("[DONE]"))
	})
}

func TestAStreamOfReasoningIsNotCutByTheLimitOnFirstContent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.script("c1", func(rw http.ResponseWriter, r *http.Request) {
			openStream(rw)
			for range 18 {
				say(rw, `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`)
				rest(r, 10*time.Second)
			}
			say(rw, tokenEvent(0), finishEvent, "[DONE]")
		})
		got := w.chat("p/m", true)
		require.Equal(t, token(0), got.text())
		require.Equal(t, 18, got.count("reasoning_content"))
		require.Equal(t, 180*time.Second, got.took)
	})
}
