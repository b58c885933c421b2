package catalog

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// maxNodes bounds what aliases may multiply a document to.
const maxNodes = 1 << 20

// decoder fills the document from the syntax tree. It exists because a catalog file is
// judged as a whole: it goes on after a problem, and it knows path and line of everything.
type decoder struct {
	env      func(string) (string, bool)
	problems []Problem
	// lines tells where each path was written; a path that is absent was not written.
	lines map[string]int
	// wrong holds the paths whose value could not be read: they are not judged again.
	wrong   map[string]bool
	anchors map[string]ast.Node
	nodes   int
}

func (d *decoder) decode(root ast.Node, doc *Document) {
	d.wrong = map[string]bool{}
	d.value(root, reflect.ValueOf(doc).Elem(), "")
}

// decoded reports whether the path's value can be judged: it was left out or could be read.
func (d *decoder) decoded(path string) bool { return !d.wrong[path] }

func (d *decoder) problem(n ast.Node, path, format string, args ...any) {
	d.wrong[path] = true
	d.problems = append(d.problems, Problem{Path: path, Line: lineOf(n), Message: fmt.Sprintf(format, args...)})
}

var (
	typeTime     = reflect.TypeFor[time.Time]()
	typeSealable = reflect.TypeFor[Sealable]()
)

func (d *decoder) value(n ast.Node, v reflect.Value, path string) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.problem(n, path, "aliases make the document too large")
		}
		return
	}
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if _, null := n.(*ast.NullNode); null {
		d.problem(n, path, "has no value; leave it out or give it one")
		return
	}
	switch {
	case v.Type() == typeSealable:
		d.sealable(n, v, path)
	case v.Type() == typeTime:
		d.time(n, v, path)
	case v.Kind() == reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		d.value(n, target.Elem(), path)
		v.Set(target)
	case v.Kind() == reflect.Struct:
		d.mapping(n, v, path)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path)
	case v.Kind() == reflect.Map:
		d.dictionary(n, v, path)
	default:
		d.scalar(n, v, path)
	}
}

// resolve follows anchors and aliases to the node they stand for.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	for range maxNesting {
		switch node := n.(type) {
		case *ast.AnchorNode:
			d.anchors[node.Name.GetToken().Value] = node.Value
			n = node.Value
		case *ast.AliasNode:
			name := node.Value.GetToken().Value
			target, known := d.anchors[name]
			if !known {
				d.problem(n, path, "no anchor named %q comes before this", name)
				return nil, false
			}
			n = target
		case *ast.TagNode:
			d.problem(n, path, "YAML tags are not supported")
			return nil, false
		default:
			return n, true
		}
	}
	d.problem(n, path, "aliases go round in a circle")
	return nil, false
}

func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	node, isMap := n.(ast.MapNode)
	if !isMap {
		d.problem(n, path, "want fields, not %s", kindOf(n))
		return
	}
	fields := fieldsOf(v.Type())
	seen := map[string]bool{}
	for pairs := node.MapRange(); pairs.Next(); {
		key := pairs.KeyValue().Key
		if key.IsMergeKey() {
			d.problem(key, path, "merge keys (<<) are not supported")
			continue
		}
		name := key.GetToken().Value
		at := join(path, name)
		index, known := fields[name]
		switch {
		case !known:
			d.problem(key, at, "unknown field%s", suggestion(name, keys(fields)))
		case seen[name]:
			d.problem(key, at, "is given twice")
		default:
			seen[name] = true
			d.lines[at] = lineOf(key)
			d.value(pairs.Value(), v.Field(index), at)
		}
	}
}

// dictionary reads fields whose names the operator chooses. Like every text they may escape a
// placeholder and hold none.
func (d *decoder) dictionary(n ast.Node, v reflect.Value, path string) {
	node, isMap := n.(ast.MapNode)
	if !isMap {
		d.problem(n, path, "want fields, not %s", kindOf(n))
		return
	}
	entries := reflect.MakeMap(v.Type())
	for pairs := node.MapRange(); pairs.Next(); {
		key := pairs.KeyValue().Key
		if key.IsMergeKey() {
			d.problem(key, path, "merge keys (<<) are not supported")
			continue
		}
		name, problem := unescape(key.GetToken().Value)
		at := join(path, name)
		index := reflect.ValueOf(name).Convert(v.Type().Key())
		switch {
		case problem != "":
			d.problem(key, at, "%s", problem)
		case entries.MapIndex(index).IsValid():
			d.problem(key, at, "is given twice")
		default:
			d.lines[at] = lineOf(key)
			entry := reflect.New(v.Type().Elem()).Elem()
			d.value(pairs.Value(), entry, at)
			entries.SetMapIndex(index, entry)
		}
	}
	v.Set(entries)
}

func (d *decoder) sequence(n ast.Node, v reflect.Value, path string) {
	node, isList := n.(*ast.SequenceNode)
	if !isList {
		d.problem(n, path, "want a list, not %s", kindOf(n))
		return
	}
	list := reflect.MakeSlice(v.Type(), len(node.Values), len(node.Values))
	for i, entry := range node.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = lineOf(entry)
		d.value(entry, list.Index(i), at)
	}
	v.Set(list)
}

func (d *decoder) scalar(n ast.Node, v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.String:
		text, ok := textOf(n)
		if !ok {
			d.problem(n, path, "want text, not %s%s", kindOf(n), quoteHint(n))
			return
		}
		text, problem := unescape(text)
		if problem != "" {
			d.problem(n, path, "%s", problem)
			return
		}
		v.SetString(text)
	case reflect.Bool:
		node, ok := n.(*ast.BoolNode)
		if !ok {
			d.problem(n, path, "want true or false, not %s", kindOf(n))
			return
		}
		v.SetBool(node.Value)
	case reflect.Int, reflect.Int64:
		number, ok := integerOf(n)
		if !ok || v.OverflowInt(number) {
			d.problem(n, path, "want a whole number, not %s", kindOf(n))
			return
		}
		v.SetInt(number)
	case reflect.Float64:
		number, ok := numberOf(n)
		if !ok || math.IsInf(number, 0) || math.IsNaN(number) {
			d.problem(n, path, "want a number, not %s", kindOf(n))
			return
		}
		v.SetFloat(number)
	default:
		d.problem(n, path, "cannot be set in a file")
	}
}

func (d *decoder) time(n ast.Node, v reflect.Value, path string) {
	text, ok := textOf(n)
	if ok {
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if at, err := time.Parse(layout, text); err == nil {
				v.Set(reflect.ValueOf(at))
				return
			}
		}
	}
	d.problem(n, path, "want a time such as 2027-01-31T12:00:00Z or a date such as 2027-01-31")
}

// sealable reads a secret. Its problems never show the value.
func (d *decoder) sealable(n ast.Node, v reflect.Value, path string) {
	text, ok := textOf(n)
	if !ok {
		d.problem(n, path, "want text in quotes, not %s", kindOf(n))
		return
	}
	value, placeholder, problems := interpolate(text, d.env)
	for _, problem := range problems {
		d.problem(n, path, "%s", problem)
	}
	if len(problems) > 0 {
		return
	}
	if problem := badSecret(value); problem != "" {
		d.problem(n, path, "%s", problem)
		return
	}
	v.Set(reflect.ValueOf(Sealable{Secret: NewSecret(value), Placeholder: placeholder}))
}

// fieldsOf maps a struct's names in YAML to field indexes.
func fieldsOf(t reflect.Type) map[string]int {
	fields := map[string]int{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" && t.Field(i).IsExported() {
			fields[name] = i
		}
	}
	return fields
}

// lineOf is the line a node begins on. A mapping's own token is the colon of its first pair.
func lineOf(n ast.Node) int {
	switch node := n.(type) {
	case *ast.MappingNode:
		if !node.IsFlowStyle && len(node.Values) > 0 {
			return lineOf(node.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return lineOf(node.Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case ast.MapNode:
		return "fields"
	case *ast.SequenceNode:
		return "a list"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	default:
		return "text"
	}
}

// quoteHint helps with the classic of an id that YAML reads as a number.
func quoteHint(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return fmt.Sprintf("; write %q in quotes", n.GetToken().Value)
	default:
		return ""
	}
}

func textOf(n ast.Node) (string, bool) {
	switch node := n.(type) {
	case *ast.StringNode:
		return node.Value, true
	case *ast.LiteralNode:
		return node.Value.Value, true
	default:
		return "", false
	}
}

func integerOf(n ast.Node) (int64, bool) {
	node, ok := n.(*ast.IntegerNode)
	if !ok {
		return 0, false
	}
	switch number := node.Value.(type) {
	case int64:
		return number, true
	case uint64:
		return int64(number), number <= math.MaxInt64
	default:
		return 0, false
	}
}

func numberOf(n ast.Node) (float64, bool) {
	if node, ok := n.(*ast.FloatNode); ok {
		return node.Value, true
	}
	number, ok := integerOf(n)
	return float64(number), ok
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	// A name that is not one of ours may be anything; it is shown, but bounded.
	if len(name) > 100 {
		name = strconv.Quote(name[:100]) + "..."
	}
	return path + "." + name
}
