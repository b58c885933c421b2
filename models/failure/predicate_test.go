package failure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
)

// topLevel reads a member of an object, for want of a reader of paths.
func topLevel(document []byte, path string) (string, bool) {
	value := member(document, path)
	if s := stringOf(value); s != "" {
		return s, true
	}
	return string(value), value != nil
}

func TestAPredicateRecognisesAnAnswerByTextAndByPath(t *testing.T) {
	rules := NewRules("openai", nil, nil, []Predicate{
		{ID: "both", Contains: "quota", Path: "ok", Equals: "false"},
		{ID: "text", Contains: "Out Of Tokens"},
		{ID: "chinese", Contains: "额度不足"},
		{ID: "value", Path: "code", Equals: "1002"},
		{ID: "any", Path: "failure"},
	}, nil)
	for answer, want := range map[string]string{
		`{"ok":false,"x":"your quota"}`:                  "both",
		`{"ok":true,"x":"your quota"}`:                   "",
		`{"ok":false}`:                                   "",
		`{"choices":[{"text":"you are OUT OF tokens"}]}`: "text",
		`{"msg":"you are out\u0020of tokens"}`:           "text",
		`{"msg":"\u989d\u5ea6\u4e0d\u8db3"}`:             "chinese",
		`{"msg":"额度不足"}`:                                 "chinese",
		`{"code":1002}`:                                  "value",
		`{"code":"1002"}`:                                "value",
		`{"code":10021}`:                                 "",
		`{"failure":null}`:                               "any",
		`<html>out of tokens</html>`:                     "text",
		`{}`:                                             "",
		``:                                               "",
		strings.Repeat(" ", longestSeen) + "out of tokens":    "",
		strings.Repeat(" ", longestSeen-20) + "out of tokens": "text",
	} {
		got := ""
		if p := rules.Recognise([]byte(answer), topLevel); p != nil {
			got = p.ID
		}
		require.Equal(t, want, got, strings.TrimSpace(answer))
	}
	require.True(t, rules.Watches() && rules.Listens())
	require.Equal(t, "text", rules.Overhears("You are Out of Tokens, my friend").ID)
	require.Nil(t, rules.Overhears("your quota"), "a text with a path needs the path")
	paths := NewRules("openai", nil, nil, []Predicate{{ID: "any", Path: "failure"}, {ID: "both", Contains: "x", Path: "y"}}, nil)
	require.True(t, paths.Watches())
	require.False(t, paths.Listens())
}

func TestARecognisedFailureIsWhatThePredicateSays(t *testing.T) {
	dressed := func(p Predicate, body string) Signal {
		return Signal{Kind: KindDressed, Status: 200, Body: []byte(body), Class: models.ClassAPIKey, Dressed: &p}
	}
	ok := `{"choices":[{"message":{"content":"Sorry, out of tokens."}}]}`
	for name, c := range map[string]struct {
		signal Signal
		want   effect
		status int
	}{
		"by default a bad gateway": {dressed(Predicate{ID: "p"}, ok), effect{models.ReasonServerError, models.BlameUpstream, models.ScopeModel, "", true, true, 0}, 502},
		"by its status":            {dressed(Predicate{ID: "p", Status: 429}, ok), effect{models.ReasonRateLimited, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, 429},
		"by its reason":            {dressed(Predicate{ID: "p", Reason: models.ReasonQuotaExhausted}, ok), effect{models.ReasonQuotaExhausted, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, 429},
		"by both":                  {dressed(Predicate{ID: "p", Status: 503, Reason: models.ReasonModelCapacity}, ok), effect{models.ReasonModelCapacity, models.BlameUpstream, models.ScopeModel, "", false, true, 0}, 503},
		"a server error trips":     {dressed(Predicate{ID: "p", Status: 500, Reason: models.ReasonServerError}, ok), effect{models.ReasonServerError, models.BlameUpstream, models.ScopeModel, "", true, true, 0}, 502},
		"its words count, too":     {dressed(Predicate{ID: "p", Status: 403}, `{"success":false,"message":"quota exceeded"}`), effect{models.ReasonQuotaExhausted, models.BlameUpstream, models.ScopeConnection, "", false, true, 0}, 429},
		"a status that is none":    {dressed(Predicate{ID: "p", Status: 200}, ok), effect{models.ReasonServerError, models.BlameUpstream, models.ScopeModel, "", true, true, 0}, 502},
	} {
		t.Run(name, func(t *testing.T) {
			v := Classify(c.signal, noon)
			require.Equal(t, c.want, effectOf(v))
			require.Equal(t, c.status, v.Status)
			require.NotContains(t, v.Message, "Sorry", "what a model seems to say is nobody's error message")
			require.Equal(t, "p", v.Rule)
		})
	}
	t.Run("a hint counts", func(t *testing.T) {
		v := Classify(dressed(Predicate{ID: "p", Reason: models.ReasonRateLimited}, `{"message":"retry in 20s"}`), noon)
		require.Equal(t, 20*time.Second, v.Hint)
	})
	t.Run("a family's limit", func(t *testing.T) {
		s := dressed(Predicate{ID: "p", Reason: models.ReasonQuotaExhausted}, ok)
		s.PerModelQuota = true
		v := Classify(s, noon)
		require.Equal(t, models.ScopeModel, v.Scope)
		require.Equal(t, models.LockFamily, v.Lock)
	})
	t.Run("an operator's rule about its status decides where it names no reason", func(t *testing.T) {
		s := dressed(Predicate{ID: "p", Status: 429}, `{"message":"tenant asleep"}`)
		s.Rules = NewRules("openai", []OperatorRule{{Status: 429, Match: "asleep", Scope: models.ScopeProvider}}, nil, nil, nil)
		v := Classify(s, noon)
		require.Equal(t, models.ScopeProvider, v.Scope)
		require.Equal(t, "providerErrorRules[0]", v.Rule)
	})
}

func TestEscapesAreResolvedAsJSONDoes(t *testing.T) {
	for _, s := range []string{`plain`, `a\nb\t\"c\"\\\/`, `\u0041\u00e9\u989d`, `\ud83d\ude80`, `\ud83d`, `\ud83dx`, `\ude80\ud83d`} {
		var want string
		require.NoError(t, json.Unmarshal([]byte(`"`+s+`"`), &want))
		require.Equal(t, want, string(unescape([]byte(s))), s)
	}
	for _, s := range []string{`\`, `\u`, `\u12`, `\uzzzz`, `\x41`, `\ud83d\u`} {
		require.NotPanics(t, func() { unescape([]byte(s)) }, s)
	}
	require.Equal(t, `\x41`, string(unescape([]byte(`\x41`))), "what is no escape stays")
}
