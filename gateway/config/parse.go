package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"omniroute/models"
)

// Source says where a setting's value came from.
type Source string

// Sources, from the weakest to the strongest. An environment variable that is set but
// empty counts as unset, as compose files leave them, unless the setting's tag "empty" gives
// that a meaning.
const (
	SourceDefault Source = "default"
	SourceProfile Source = "Temporal profile"
	SourceFile    Source = "file"
	SourceEnv     Source = "env"
	SourceFlag    Source = "flag"
)

// Setting is one effective value.
type Setting struct {
	Name   string // flag name and file key
	Env    string
	Value  string // safe to show: secrets are masked
	Source Source
}

// Origin says in words where the value came from.
func (s Setting) Origin() string {
	switch s.Source {
	case SourceEnv:
		return "env " + s.Env
	case SourceFlag:
		return "flag --" + s.Name
	default:
		return string(s.Source)
	}
}

// Invocation is one process's command line and environment.
type Invocation struct {
	Name        string
	Description string
	Args        []string // without the program's name
	Environ     []string // "NAME=value"
	Stdout      io.Writer
	Stderr      io.Writer
	Options     []kong.Option
}

// Parsed is a command line that made sense.
type Parsed struct {
	*kong.Context
	Settings []Setting // of the command that was chosen, in the order of its struct
}

// UsageError is a mistake in flags, environment or configuration file.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e UsageError) Unwrap() error { return e.Err }

// ErrHelp is returned after --help was printed.
var ErrHelp = errors.New("help was printed")

// Parse fills cli, a pointer to a kong grammar whose settings come from this package, from
// flags, then environment, then the configuration file, then defaults. Every mistake is a
// UsageError of one line that never repeats a secret.
func Parse(cli any, in Invocation) (*Parsed, error) {
	envs := map[*kong.Value]string{}
	helped := false
	options := append([]kong.Option{
		kong.Name(in.Name),
		kong.Description(in.Description),
		kong.Writers(in.Stdout, in.Stderr),
		kong.Exit(func(int) { helped = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true}),
		kong.ValueFormatter(func(v *kong.Value) string {
			env, isSetting := envs[v]
			if !isSetting {
				return v.Help
			}
			if v.HasDefault {
				return v.Help + " Default: " + v.Default + " ($" + env + ")."
			}
			return strings.TrimSuffix(v.Help, ".") + " ($" + env + ")."
		}),
		// Kong would read the environment itself, take an empty variable for a value and
		// repeat a value it cannot decode. Its tag stays the declaration; reading is ours.
		kong.PostBuild(func(k *kong.Kong) error {
			return kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
				if flag, ok := node.(*kong.Flag); ok && len(flag.Tag.Envs) > 0 {
					envs[flag.Value] = flag.Tag.Envs[0]
					flag.Envs, flag.Tag.Envs = nil, nil
				}
				return next(nil)
			})
		}),
	}, in.Options...)
	parser, err := kong.New(cli, options...)
	if err != nil {
		return nil, fmt.Errorf("command line grammar: %w", err)
	}
	ctx, err := parser.Parse(in.Args)
	if helped {
		return nil, ErrHelp
	}
	if err != nil {
		return nil, UsageError{suggestFlag(err)}
	}
	settings, err := resolve(ctx, envs, in.Environ)
	if err != nil {
		return nil, UsageError{err}
	}
	for _, element := range ctx.Path {
		if node := element.Node(); node != nil {
			if err := checkGroups(node.Target); err != nil {
				return nil, UsageError{err}
			}
		}
	}
	return &Parsed{Context: ctx, Settings: settings}, nil
}

// checkGroups lets every group of settings embedded in a command refuse values that cannot
// work.
func checkGroups(v reflect.Value) error {
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		if !v.Type().Field(i).Anonymous {
			continue
		}
		var err error
		// What embeds groups may be unexported; its groups are reached through it.
		if g, ok := asGroup(v.Field(i)); ok {
			err = g.check()
		} else {
			err = checkGroups(v.Field(i))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// group is a set of settings that can refuse its values.
type group interface{ check() error }

func asGroup(v reflect.Value) (group, bool) {
	if !v.CanInterface() {
		return nil, false
	}
	g, ok := v.Interface().(group)
	return g, ok
}

// suggestFlag names the nearest flag where kong found none near enough.
func suggestFlag(err error) error {
	rest, unknown := strings.CutPrefix(err.Error(), "unknown flag ")
	var parse *kong.ParseError
	if !unknown || strings.Contains(rest, "did you mean") || !errors.As(err, &parse) || parse.Context == nil {
		return err
	}
	var names []string
	for _, flag := range parse.Context.Flags() {
		names = append(names, "--"+flag.Name)
	}
	return fmt.Errorf("unknown flag %s, the nearest is %s", rest, models.Nearest(rest, names))
}

// resolve fills what no flag set, and reports where each setting's value came from.
func resolve(ctx *kong.Context, envs map[*kong.Value]string, environ []string) ([]Setting, error) {
	env, err := readEnvironment(environ)
	if err != nil {
		return nil, err
	}
	flagged := map[*kong.Value]bool{}
	for _, element := range ctx.Path {
		if element.Flag != nil {
			flagged[element.Flag.Value] = true
		}
	}
	file, err := configFile(ctx, envs, env)
	if err != nil {
		return nil, err
	}
	var settings []Setting
	for _, flag := range ctx.Flags() {
		name, isSetting := envs[flag.Value]
		if !isSetting {
			continue
		}
		source := SourceDefault
		text, inEnv := env[name]
		switch {
		case flagged[flag.Value]:
			source = SourceFlag
		case text != "" || inEnv && flag.Tag.Has("empty"):
			source = SourceEnv
			if err := set(flag, text); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", name, err)
			}
		default:
			if entry, ok := file.values[flag.Name]; ok {
				source = SourceFile
				if err := set(flag, entry.value); err != nil {
					return nil, fmt.Errorf("%s:%d: %s: %w", file.path, entry.line, flag.Name, err)
				}
			}
		}
		settings = append(settings, Setting{
			Name: flag.Name, Env: name, Source: source,
			Value: masked(flag.Tag.Get("sensitive"), fmt.Sprint(flag.Target.Interface())),
		})
	}
	return settings, nil
}

// set decodes text into the flag's field. The text itself is not repeated on failure.
func set(flag *kong.Flag, text string) error {
	decoded := reflect.New(flag.Target.Type()).Elem()
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: text})
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, decoded); err != nil {
		return fmt.Errorf("not a valid %s", kindName(flag.Target.Type()))
	}
	flag.Target.Set(decoded)
	return nil
}

func kindName(t reflect.Type) string {
	switch {
	case t.String() == "time.Duration":
		return "duration such as 90s or 720h"
	case t.Kind() == reflect.Bool:
		return "boolean: true or false"
	default:
		return t.Kind().String()
	}
}

// configFile reads the file that --config or OMNIROUTE_CONFIG names, if one does.
func configFile(ctx *kong.Context, envs map[*kong.Value]string, env map[string]string) (settingsFile, error) {
	for _, flag := range ctx.Flags() {
		if envs[flag.Value] != configFileEnv {
			continue
		}
		path := flag.Target.String()
		if path == "" {
			path = env[configFileEnv]
		}
		if path == "" {
			break
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return settingsFile{}, fmt.Errorf("configuration file: %w", err)
		}
		return parseFile(path, text)
	}
	return settingsFile{}, nil
}
