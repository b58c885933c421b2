package main

import (
	"io"

	"omniroute/gateway/config"
	"omniroute/workflows/dial"
)

type configCmd struct {
	Print configPrintCmd `cmd:"" help:"Print every effective setting and where it came from."`
}

type configPrintCmd struct {
	config.Config
}

// Run prints the settings of all processes, since they share one environment.
func (c configPrintCmd) Run(p *process, parsed *config.Parsed) error {
	environ := c.Env(p.environ)
	options, err := dial.Options(dial.Config{Role: "config", Env: environ}, c.Logger(io.Discard))
	if err != nil {
		return err
	}
	for i := range parsed.Settings {
		switch s := &parsed.Settings[i]; s.Name {
		case "temporal-address":
			fromTemporal(s, environ, "TEMPORAL_ADDRESS", options.HostPort, dial.DefaultAddress)
		case "temporal-namespace":
			fromTemporal(s, environ, "TEMPORAL_NAMESPACE", options.Namespace, dial.DefaultNamespace)
		}
	}
	return config.Print(p.stdout, parsed.Settings, config.ReadDefaults(p.environ))
}

// fromTemporal completes a setting that nothing of ours sets with what Temporal's own
// configuration makes of it.
func fromTemporal(s *config.Setting, environ config.TemporalEnv, variable, effective, standard string) {
	if s.Value != "" {
		return
	}
	s.Value = effective
	if _, ok := environ.LookupEnv(variable); ok {
		s.Source, s.Env = config.SourceEnv, variable
	} else if effective != standard {
		s.Source = config.SourceProfile
	}
}
