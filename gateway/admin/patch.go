package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"omniroute/models"
	"omniroute/models/catalog"
)

const (
	maxPatchBytes = 512 << 10
	maxPatchDepth = 16
)

// fieldProblem is one entry of a refusal's details.
type fieldProblem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// refusedFields is what the caller is told about values that cannot be.
func refusedFields(problems []fieldProblem) *models.Error {
	const shown = 5
	var lines []string
	for _, p := range problems[:min(len(problems), shown)] {
		lines = append(lines, strings.TrimPrefix(p.Field+": "+p.Message, ": "))
	}
	if more := len(problems) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	refused := models.Errorf(models.CodeInvalidRequest, "Nothing was changed. %s", strings.Join(lines, "; ")).WithParam(problems[0].Field)
	refused.Details = problems
	return refused
}

// readPatch reads a JSON merge patch (RFC 7396) of the settings, whose fields are all known and
// of the right kind. Values are judged when it is known what they lie beside.
func readPatch(w http.ResponseWriter, r *http.Request, section string) (map[string]any, error) {
	body, err := readBody(w, r, maxPatchBytes)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	tree, err := readTree(decoder, "", 0)
	if err == nil && decoder.More() {
		err = errors.New("there is more than one JSON value")
	}
	if err != nil {
		return nil, models.Errorf(models.CodeInvalidJSON, "The body is not a JSON merge patch: %v.", err)
	}
	patch, isObject := tree.(map[string]any)
	if !isObject || len(patch) == 0 {
		return nil, models.Errorf(models.CodeInvalidRequest, "The body is a JSON object with the settings to change; null takes a value away.")
	}
	t := reflect.TypeFor[catalog.DocSettings]()
	if section != "" {
		field, _ := t.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, section) })
		t = field.Type
	}
	f := fitting{}
	f.value(t, patch, "", true)
	if len(f.problems) > 0 {
		return nil, refusedFields(f.problems)
	}
	if section != "" {
		patch = map[string]any{section: patch}
	}
	return patch, nil
}

// readTree reads one JSON value and refuses fields that are given twice: which of two counts
// is nobody's guess.
func readTree(d *json.Decoder, at string, depth int) (any, error) {
	if depth > maxPatchDepth {
		return nil, fmt.Errorf("it is nested deeper than %d levels", maxPatchDepth)
	}
	token, err := d.Token()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it ends too early")
		}
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, err
			}
			name := key.(string) // what the decoder yields before a colon
			path := below(at, name)
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("%s is given twice", path)
			}
			if object[name], err = readTree(d, path, depth+1); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		list := []any{}
		for d.More() {
			entry, err := readTree(d, fmt.Sprintf("%s[%d]", at, len(list)), depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, entry)
		}
		_, err = d.Token()
		return list, err
	default:
		return token, nil
	}
}

// fitting finds what of a JSON value does not fit a type of settings.
type fitting struct{ problems []fieldProblem }

func (f *fitting) bad(at, format string, args ...any) {
	f.problems = append(f.problems, fieldProblem{at, fmt.Sprintf(format, args...)})
}

// value compares; null is what takes a value away, where there is one to take.
func (f *fitting) value(t reflect.Type, tree any, at string, removable bool) {
	if tree == nil {
		if !removable {
			f.bad(at, "must not be null")
		}
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		f.value(t.Elem(), tree, at, removable)
	case reflect.Struct, reflect.Map:
		f.object(t, tree, at, removable)
	case reflect.Slice:
		list, ok := tree.([]any)
		if !ok {
			f.bad(at, "must be a list, not %s", kindOf(tree))
			return
		}
		for i, entry := range list {
			f.value(t.Elem(), entry, fmt.Sprintf("%s[%d]", at, i), false)
		}
	case reflect.String:
		if _, ok := tree.(string); !ok {
			f.bad(at, "must be text, not %s", kindOf(tree))
		}
	case reflect.Bool:
		if _, ok := tree.(bool); !ok {
			f.bad(at, "must be true or false, not %s", kindOf(tree))
		}
	case reflect.Float64:
		number, ok := tree.(json.Number)
		if !ok {
			f.bad(at, "must be a number, not %s", kindOf(tree))
		} else if _, err := number.Float64(); err != nil {
			f.bad(at, "must be a number, not %.40s", number)
		}
	default:
		number, ok := tree.(json.Number)
		if !ok {
			f.bad(at, "must be a whole number, not %s", kindOf(tree))
		} else if _, err := strconv.ParseInt(number.String(), 10, 64); err != nil {
			f.bad(at, "must be a whole number, not %.40s", number)
		}
	}
}

func (f *fitting) object(t reflect.Type, tree any, at string, removable bool) {
	object, ok := tree.(map[string]any)
	if !ok {
		f.bad(at, "must be an object, not %s", kindOf(tree))
		return
	}
	for _, name := range sortedKeys(object) {
		path := below(at, name)
		if t.Kind() == reflect.Map {
			f.value(t.Elem(), object[name], path, removable)
			continue
		}
		field, known, names := fieldNamed(t, name)
		if !known {
			f.bad(path, "is not a setting; the nearest is %s", models.Nearest(name, names))
			continue
		}
		f.value(field, object[name], path, removable)
	}
}

func fieldNamed(t reflect.Type, name string) (field reflect.Type, known bool, names []string) {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return t.Field(i).Type, true, nil
		}
		names = append(names, tag)
	}
	return nil, false, names
}

func below(at, name string) string {
	if len(name) > 100 {
		name = strings.ToValidUTF8(name[:100], "") + "..."
	}
	return strings.TrimPrefix(at+"."+name, ".")
}

func sortedKeys(object map[string]any) []string {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func kindOf(tree any) string {
	switch tree.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "text"
	case bool:
		return "true or false"
	default:
		return "a number"
	}
}

// merged lays a merge patch over settings.
func merged(stored *catalog.DocSettings, patch map[string]any) (*catalog.DocSettings, error) {
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(mergePatch(tree, patch)); err != nil {
		return nil, err
	}
	next := &catalog.DocSettings{}
	return next, json.Unmarshal(text, next)
}

// mergePatch is the algorithm of RFC 7396, section 2.
func mergePatch(target, patch any) any {
	object, isObject := patch.(map[string]any)
	if !isObject {
		return patch
	}
	result, isObject := target.(map[string]any)
	if !isObject {
		result = map[string]any{}
	}
	for name, value := range object {
		if value == nil {
			delete(result, name)
		} else {
			result[name] = mergePatch(result[name], value)
		}
	}
	return result
}
