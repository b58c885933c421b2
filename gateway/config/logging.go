package config

import (
	"io"

	"github.com/sirupsen/logrus"
)

// Logger makes the process's logger. Parse has checked level and format before.
func (p Process) Logger(out io.Writer) *logrus.Logger {
	log := logrus.New()
	log.SetOutput(out)
	if level, err := logrus.ParseLevel(p.LogLevel); err == nil {
		log.SetLevel(level)
	}
	// RFC 3339 with milliseconds, so that a line can be matched with rows and workflows.
	const layout = "2006-01-02T15:04:05.000Z07:00"
	if p.LogFormat == "text" {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: layout})
	} else {
		log.SetFormatter(jsonLines{layout})
	}
	return log
}
