package dial

import (
	"fmt"

	"github.com/sirupsen/logrus"
	"go.temporal.io/sdk/log"
)

// NewLogger gives the SDK our logger. The SDK tells much at info that only a developer of
// workflows wants to read, so its info is our debug.
func NewLogger(l logrus.FieldLogger) log.Logger {
	return logger{l.WithField("component", "temporal")}
}

type logger struct{ entry *logrus.Entry }

func (l logger) Debug(msg string, keyvals ...any) { l.log(logrus.TraceLevel, msg, keyvals) }
func (l logger) Info(msg string, keyvals ...any)  { l.log(logrus.DebugLevel, msg, keyvals) }
func (l logger) Warn(msg string, keyvals ...any)  { l.log(logrus.WarnLevel, msg, keyvals) }
func (l logger) Error(msg string, keyvals ...any) { l.log(logrus.ErrorLevel, msg, keyvals) }

// With implements log.WithLogger.
func (l logger) With(keyvals ...any) log.Logger {
	return logger{l.entry.WithFields(fields(keyvals))}
}

func (l logger) log(level logrus.Level, msg string, keyvals []any) {
	if l.entry.Logger.IsLevelEnabled(level) {
		l.entry.WithFields(fields(keyvals)).Log(level, msg)
	}
}

// fields pairs keys with values; a key without one is kept, as the SDK's own logger does.
func fields(keyvals []any) logrus.Fields {
	f := make(logrus.Fields, (len(keyvals)+1)/2)
	for i := 0; i < len(keyvals); i += 2 {
		key := fmt.Sprint(keyvals[i])
		if i+1 == len(keyvals) {
			f[key] = "(missing)"
			break
		}
		f[key] = keyvals[i+1]
	}
	return f
}
