package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
)

func TestALogLineIsTheJSONThatLogrusWouldWrite(t *testing.T) {
	var out bytes.Buffer
	log := Process{LogLevel: "debug", LogFormat: "json"}.Logger(&out)
	log.WithFields(logrus.Fields{
		"text": "a \"quoted\" <世界>\n", "yes": true, "n": 7, "big": int64(1) << 60, "reason": models.ReasonRateLimited,
		"took": 1500 * time.Millisecond, "level": "clash", "list": []string{"a"}, "none": nil, "f": 1.5,
		"secret": catalog.NewSecret("sk-hidden"), "odd": map[string]any{"c": make(chan int)},
	}).WithError(errors.New("broken")).Warn("it\thappened")

	require.Equal(t, byte('\n'), out.Bytes()[out.Len()-1])
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var got map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &got))
	_, err := time.Parse(time.RFC3339, got["time"].(string))
	require.NoError(t, err)
	delete(got, "time")
	odd := got["odd"]
	delete(got, "odd")
	require.IsType(t, "", odd, "what cannot be encoded is described")
	require.Equal(t, map[string]any{
		"level": "warning", "msg": "it\thappened", "text": "a \"quoted\" <世界>\n", "yes": true, "n": 7.0, "big": float64(int64(1) << 60),
		"reason": "rate_limit_exceeded", "took": "1.5s", "fields.level": "clash", "list": []any{"a"}, "none": nil, "f": 1.5,
		"secret": "[redacted]", "error": "broken",
	}, got)
}

func TestLinesOfSeveralGoroutinesDoNotMix(t *testing.T) {
	var out bytes.Buffer
	log := Process{LogFormat: "json"}.Logger(&out)
	done := make(chan struct{})
	for i := range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 100 {
				log.WithField("writer", i).Info("line")
			}
		}()
	}
	for range 8 {
		<-done
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	require.Len(t, lines, 800)
	for _, line := range lines {
		require.True(t, json.Valid(line), "%s", line)
	}
}
