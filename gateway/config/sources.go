package config

import (
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"omniroute/models"
)

const (
	envPrefix     = "OMNIROUTE_"
	configFileEnv = "OMNIROUTE_CONFIG"
)

// readEnvironment picks the variables with our prefix. One that nothing knows is refused,
// because a misspelt setting that silently has no effect is found in production.
func readEnvironment(environ []string) (map[string]string, error) {
	known := slices.Concat(settingTags("env"), defaultVariables(), elsewhere)
	env := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, temporalHeaderPrefix) {
			continue
		}
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown environment variable %s, the nearest is %s", name, models.Nearest(name, known))
		}
		env[name] = value
	}
	return env, nil
}

// settingsFile is a parsed configuration file.
type settingsFile struct {
	path   string
	values map[string]fileEntry
}

type fileEntry struct {
	value string
	line  int
}

// parseFile reads a flat YAML mapping from flag names to scalars.
func parseFile(path string, text []byte) (settingsFile, error) {
	file := settingsFile{path: path, values: map[string]fileEntry{}}
	document, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		// The parser's own message quotes the source, secrets included.
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) && syntax.Token != nil {
			return file, fmt.Errorf("%s:%d: not valid YAML", path, syntax.Token.Position.Line)
		}
		return file, fmt.Errorf("%s: not valid YAML", path)
	}
	known := slices.DeleteFunc(settingTags("name"), func(name string) bool { return name == "config" })
	for _, doc := range document.Docs {
		entries, err := mappingEntries(doc.Body)
		if err != nil {
			return file, fmt.Errorf("%s: %w", path, err)
		}
		for _, entry := range entries {
			line := entry.Key.GetToken().Position.Line
			key := entry.Key.GetToken().Value
			if !slices.Contains(known, key) {
				return file, fmt.Errorf("%s:%d: unknown setting %s, the nearest is %s", path, line, key, models.Nearest(key, known))
			}
			if _, twice := file.values[key]; twice {
				return file, fmt.Errorf("%s:%d: setting %s is given twice", path, line, key)
			}
			scalar, ok := entry.Value.(ast.ScalarNode)
			if !ok {
				return file, fmt.Errorf("%s:%d: %s takes one value, not a list or a mapping", path, line, key)
			}
			if entry.Value.Type() == ast.NullType {
				continue
			}
			file.values[key] = fileEntry{value: fmt.Sprint(scalar.GetValue()), line: line}
		}
	}
	return file, nil
}

func mappingEntries(body ast.Node) ([]*ast.MappingValueNode, error) {
	switch node := body.(type) {
	case nil, *ast.CommentGroupNode, *ast.NullNode:
		return nil, nil
	case *ast.MappingNode:
		return node.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{node}, nil
	default:
		return nil, fmt.Errorf("not a YAML mapping from setting to value")
	}
}

// settingTags lists one tag of every setting there is.
func settingTags(tag string) []string {
	var values []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[everything]()) {
		if value := field.Tag.Get(tag); value != "" {
			values = append(values, value)
		}
	}
	return values
}

// masked hides what must not be shown. A URL keeps everything but its password.
func masked(sensitive, value string) string {
	switch {
	case sensitive == "" || value == "":
		return value
	case sensitive == "url":
		return redactURL(value)
	default:
		return "[redacted]"
	}
}

func redactURL(value string) string {
	u, err := url.Parse(value)
	if err != nil {
		return "[redacted]"
	}
	query, secret := u.Query(), false
	for name := range query {
		if strings.Contains(strings.ToLower(name), "password") { // password, sslpassword
			query.Set(name, "xxxxx")
			secret = true
		}
	}
	if secret {
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}
