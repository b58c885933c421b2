package config

import (
	"fmt"
	"strings"

	"omniroute/models/resilience"
)

// egressVariable names the providers that limit by the address requests come from (guide
// section 8).
const egressVariable = "OMNIROUTE_EGRESS_IP_LOCK_PROVIDERS"

// Defaults are the defaults of operators' settings that variables replace, by the names that
// the guide gives them. What an operator has stored wins over them.
type Defaults struct {
	Resilience resilience.Settings
	// EgressShared is nil where the built-in list stays, and empty where no provider is meant.
	EgressShared []string
	// Warnings are variables that make no sense. A default keeps no process from starting.
	Warnings []resilience.EnvWarning
}

// ReadDefaults reads them from an environment of "NAME=value".
func ReadDefaults(environ []string) Defaults {
	variables := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		variables[name] = value
	}
	var d Defaults
	d.Resilience, d.Warnings = resilience.FromEnv(func(name string) (string, bool) {
		value, ok := variables[name]
		return value, ok
	})
	d.EgressShared = egressShared(variables[egressVariable])
	return d
}

// egressShared reads a list "a, b"; none, off, false and 0 are the empty one.
func egressShared(text string) []string {
	text = strings.ToLower(strings.TrimSpace(text))
	switch text {
	case "":
		return nil
	case "none", "off", "false", "0":
		return []string{}
	}
	names := []string{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// defaultVariables lists the names.
func defaultVariables() []string {
	names := []string{egressVariable}
	for _, s := range resilience.Schema() {
		if s.Env != "" {
			names = append(names, s.Env)
		}
	}
	return names
}

// list is every default that a variable can replace, with its origin.
func (d Defaults) list() []Setting {
	refused := map[string]string{}
	for _, w := range d.Warnings {
		refused[w.Env] = w.Problem
	}
	var list []Setting
	for _, v := range (resilience.Settings{}).Values(d.Resilience) {
		if v.Env == "" {
			continue
		}
		s := Setting{Name: "settings.resilience." + v.Path, Env: v.Env, Value: fmt.Sprint(v.Effective), Source: SourceDefault}
		if v.Source == resilience.SourceEnv {
			s.Source = SourceEnv
		} else if problem, ok := refused[v.Env]; ok {
			s.Source = Source(fmt.Sprintf("default, %s is left out: %s", v.Env, problem))
		}
		list = append(list, s)
	}
	egress := Setting{Name: "providers[].egressShared", Env: egressVariable, Value: "by kind", Source: SourceDefault}
	if d.EgressShared != nil {
		egress.Source, egress.Value = SourceEnv, "for "+strings.Join(d.EgressShared, ", ")
		if len(d.EgressShared) == 0 {
			egress.Value = "for none"
		}
	}
	return append(list, egress)
}

// DefaultsHelp lists the variables for a command's --help.
func DefaultsHelp() string {
	var b strings.Builder
	b.WriteString("Variables that replace defaults of the resilience settings; what is stored wins, and what makes no sense is left out with a warning:\n\n")
	for _, v := range (resilience.Settings{}).Values(resilience.Settings{}) {
		if v.Env != "" {
			fmt.Fprintf(&b, "    %s  %s (%v)\n", v.Env, v.Path, v.Effective)
		}
	}
	fmt.Fprintf(&b, "    %s  providers that limit by egress address, comma-separated, or none (by kind)\n", egressVariable)
	return b.String()
}
