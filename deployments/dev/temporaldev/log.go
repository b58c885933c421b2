package temporaldev

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/sirupsen/logrus"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/server/common/log/tag"
)

// serverLog passes the server's errors on to logrus. Its warnings and information are about
// a cluster's life and say nothing to somebody who runs one process; they appear at debug.
type serverLog struct {
	log   logrus.FieldLogger
	muted *atomic.Bool
}

func newServerLog(log logrus.FieldLogger) *serverLog {
	return &serverLog{log: log.WithField("component", "temporal"), muted: &atomic.Bool{}}
}

// quiet ends all output: a server that stops complains about itself.
func (l *serverLog) quiet() { l.muted.Store(true) }

func (l *serverLog) emit(level logrus.Level, msg string, tags []tag.Tag) {
	if l.muted.Load() {
		return
	}
	fields := logrus.Fields{}
	for _, t := range tags {
		fields[t.Key()] = t.Value()
	}
	l.log.WithFields(fields).Log(level, msg)
}

func (l *serverLog) Debug(string, ...tag.Tag)           {}
func (l *serverLog) Info(msg string, tags ...tag.Tag)   { l.emit(logrus.DebugLevel, msg, tags) }
func (l *serverLog) Warn(msg string, tags ...tag.Tag)   { l.emit(logrus.DebugLevel, msg, tags) }
func (l *serverLog) Error(msg string, tags ...tag.Tag)  { l.emit(logrus.WarnLevel, msg, tags) }
func (l *serverLog) DPanic(msg string, tags ...tag.Tag) { l.emit(logrus.ErrorLevel, msg, tags) }

func (l *serverLog) Panic(msg string, tags ...tag.Tag) {
	l.emit(logrus.ErrorLevel, msg, tags)
	panic(msg)
}

// Fatal ends the process, as the server expects, in one line.
func (l *serverLog) Fatal(msg string, tags ...tag.Tag) {
	line := "temporal server: " + msg
	for _, t := range tags {
		if t.Key() == "error" || t.Key() == "address" {
			line += fmt.Sprintf(" (%s: %v)", t.Key(), t.Value())
		}
	}
	_, _ = fmt.Fprintln(os.Stderr, line)
	os.Exit(1)
}

// sdk is a logger for the client that waits for the server: its retries are expected.
func (l *serverLog) sdk() sdklog.Logger { return silent{} }

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
