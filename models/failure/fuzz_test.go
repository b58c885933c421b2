package failure

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// A predicate recognises nothing that lacks its text or its path, and never panics on an answer.
func FuzzRecognise(f *testing.F) {
	f.Add(`{"ok":false,"x":"your quota"}`, "quota", "ok", "false", 429)
	f.Add(`{"choices":[{"message":{"content":"\u989d\u5ea6不足"}}]}`, "额度不足", "", "", 0)
	f.Add(`{"code":"1002"}`, "", "code", "1002", 200)
	f.Add("<html>", "html", "", "", 503)
	f.Add("\xff\\u12", "\\", "a", "", -1)
	for _, body := range hostileBodies() {
		f.Add(body[:min(len(body), 1<<10)], "deactivated", "error", "", 403)
	}
	f.Fuzz(func(t *testing.T, answer, contains, path, equals string, status int) {
		rules := NewRules("openai", nil, nil, []Predicate{{Contains: contains, Path: path, Equals: equals, Status: status}}, nil)
		heard := rules.Overhears(answer)
		if heard != nil {
			require.True(t, contains != "" && path == "" && strings.Contains(strings.ToLower(answer), strings.ToLower(contains)))
		}
		p := rules.Recognise([]byte(answer), topLevel)
		if p == nil {
			return
		}
		require.True(t, contains != "" || path != "", "one that says nothing recognises nothing")
		if path != "" {
			value, ok := topLevel([]byte(answer), path)
			require.True(t, ok && (equals == "" || value == equals))
		}
		if contains != "" {
			require.True(t, bytes.Contains(bytes.ToLower(unescape([]byte(answer))), bytes.ToLower([]byte(contains))))
		}
		v := Classify(Signal{Kind: KindDressed, Status: 200, Body: []byte(answer), Dressed: p, Rules: rules}, noon)
		require.Equal(t, "responsePredicates[0]", v.Rule, "the log can name it")
		require.True(t, v.UpstreamStatus >= 400 && v.UpstreamStatus <= 599)
		require.Equal(t, v.Blame != models.BlameClient, v.Failover, "a status of the client's mistakes makes it one")
	})
}

// A status is restated only where the rule names it and the parsed error has a marker, and none
// of those that exclude it.
func FuzzRestate(f *testing.F) {
	f.Add(403, said("用户额度不足"), "额度不足", "无权访问", 429, int64(60_000))
	f.Add(403, said("无权访问模型, 额度不足"), "额度不足", "无权访问", 429, int64(60_000))
	f.Add(400, coded("slow_down", "x"), "SLOW", "", 503, int64(0))
	f.Add(403, `{"input":"marker"}`, "marker", "", 429, int64(-1))
	f.Add(200, "marker", "marker", "marker", 500, int64(1))
	f.Fuzz(func(t *testing.T, status int, body, marker, exclude string, to int, wait int64) {
		s := answer(status, body)
		s.Rules = NewRules("", nil, []Restatement{{
			ID: "r", FromStatuses: []int{403, 400}, ToStatus: to, TextMarkers: []string{marker}, ExcludeMarkers: []string{exclude}, DefaultRetryAfterMs: wait,
		}}, nil, nil)
		v := Classify(s, noon)
		require.GreaterOrEqual(t, v.ClientRetryAfter, noon.Sub(noon))
		if v.RestatedFrom == 0 {
			require.Equal(t, status, v.UpstreamStatus)
			require.Zero(t, v.ClientRetryAfter)
			return
		}
		require.Equal(t, status, v.RestatedFrom)
		require.Contains(t, []int{400, 403}, status)
		require.Equal(t, to, v.UpstreamStatus)
		require.NotEmpty(t, marker)
		var e upstreamError
		e.parse(object([]byte(body)))
		require.True(t, e.says(strings.ToLower(marker)))
		require.False(t, exclude != "" && e.says(strings.ToLower(exclude)))
	})
}

// Whatever a message says, an account is gone for good only under the two statuses that speak of
// accounts, and only when the message opens with it; what it quotes is never heard.
func FuzzBan(f *testing.F) {
	f.Add(401, "Your account has been deactivated", "", "")
	f.Add(403, "Error 403: this organization has been disabled", "account_deactivated", "")
	f.Add(403, "workspace closed", "", "CLOSED")
	f.Add(429, "Your account has been suspended", "", "suspended")
	f.Add(403, `Invalid: "your account has been banned"`, "", "banned")
	f.Fuzz(func(t *testing.T, status int, message, code, signal string) {
		for _, class := range []models.Class{models.ClassOAuth, models.ClassAPIKey} {
			s := answer(status, `{"error":{"message":`+quoted(message)+`,"code":`+quoted(code)+`}}`)
			s.Class, s.Rules = class, NewRules("openai", nil, nil, nil, []string{signal})
			v := Classify(s, noon)
			if v.Terminal != models.PhaseBanned {
				continue
			}
			require.Contains(t, []int{401, 403}, status)
			require.Equal(t, models.ScopeConnection, v.Scope)
			require.False(t, v.Trips)

			echo := answer(status, `{"error":{"message":`+quoted(`Bad value: "`+strings.NewReplacer(`"`, "", "`", "", "'", "").Replace(message)+`"`)+`}}`)
			echo.Class = class
			require.Empty(t, models.Phase(strings.TrimPrefix(string(Classify(echo, noon).Terminal), string(models.PhaseExpired))), "what is quoted bans nobody")
		}
	})
}
