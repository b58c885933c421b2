package resilience

import (
	"strconv"
	"strings"
)

// EnvWarning is a variable that makes no sense as the default it is to replace.
type EnvWarning struct {
	Env     string
	Problem string
}

// String is one line for a log.
func (w EnvWarning) String() string { return w.Env + ": " + w.Problem + "; the default stays" }

// FromEnv reads the variables that replace built-in defaults. A variable that is unset or empty
// replaces nothing; one that makes no sense is left out and told as a warning: no process is
// kept from starting by a default.
func FromEnv(lookup func(name string) (value string, ok bool)) (defaults Settings, warnings []EnvWarning) {
	for _, f := range fields {
		if f.Env == "" {
			continue
		}
		text, _ := lookup(f.Env)
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if value, problem := parseEnv(f, text); problem != "" {
			warnings = append(warnings, EnvWarning{f.Env, problem})
		} else {
			defaults.set(f, value)
		}
	}
	// What is out of range goes by itself, so that the rest of the variables still counts.
	for problems := defaults.Validate(); len(problems) > 0; problems = defaults.Validate() {
		f := byPath[problems[0].Path]
		warnings = append(warnings, EnvWarning{f.Env, problems[0].Message})
		defaults.set(f, nil)
	}
	return defaults, warnings
}

func parseEnv(f *field, text string) (value any, problem string) {
	if f.Kind == KindSwitch {
		switch strings.ToLower(text) {
		case "true", "1", "on":
			return true, ""
		case "false", "0", "off":
			return false, ""
		}
		return nil, "neither true, 1, on nor false, 0, off"
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, "not a whole number"
	}
	return number, ""
}
