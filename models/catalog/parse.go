package catalog

import (
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxDocumentBytes bounds a catalog file. 10,000 connections take about 2 MB.
	maxDocumentBytes = 8 << 20
	// maxNesting is far above what the schema needs and far below what a recursive parser survives.
	maxNesting = 64
	// maxFields is far above what one mapping of the schema has.
	maxFields = 100
)

// ParseDocument reads one strict YAML document. env looks up the names of ${ENV}
// placeholders. The error is a *DocumentError that lists every problem with its path and
// line: unknown and repeated fields, wrong types, values out of range, repeated ids,
// missing variables. References to what the file itself does not hold may be to the stored
// catalog, so they are judged when the document is applied; they are listed here only beside
// other problems, so that one run shows all there is to fix.
func ParseDocument(r io.Reader, file string, env func(string) (string, bool)) (*Document, error) {
	d := &decoder{env: env, lines: map[string]int{}, anchors: map[string]ast.Node{}}
	doc := &Document{file: file, lines: d.lines}

	root, problem := parseYAML(r)
	if problem != nil {
		return nil, newDocumentError(file, []Problem{*problem})
	}
	d.decode(root, doc)
	doc.fillDefaults()
	problems := append(d.problems, doc.check(d.decoded)...)
	if len(problems) > 0 {
		problems = append(problems, doc.references(newUniverse(doc), " in this file (the stored catalog may have it)")...)
		return nil, newDocumentError(file, problems)
	}
	return doc, nil
}

// parseYAML reads the file to its one root node. What the parser itself cannot read is one
// problem: after a syntax error nothing else of the file can be trusted.
func parseYAML(r io.Reader) (root ast.Node, problem *Problem) {
	text, err := io.ReadAll(io.LimitReader(r, maxDocumentBytes+1))
	if err != nil {
		return nil, &Problem{Message: fmt.Sprintf("cannot be read: %v", err)}
	}
	if len(text) > maxDocumentBytes {
		return nil, &Problem{Message: fmt.Sprintf("is larger than %d MiB", maxDocumentBytes>>20)}
	}
	// The parser is not ours and reads what strangers may send to the management API.
	defer func() {
		if crash := recover(); crash != nil {
			root, problem = nil, &Problem{Message: "is not readable as YAML"}
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if problem := tooMuch(tokens); problem != nil {
		return nil, problem
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxProblem(err)
	}
	for _, document := range parsed.Docs {
		if document.Body == nil || document.Body.Type() == ast.CommentType {
			continue
		}
		if root != nil {
			return nil, &Problem{Line: lineOf(document.Body), Message: "holds more than one YAML document"}
		}
		root = document.Body
	}
	if root == nil {
		return nil, &Problem{Message: "is empty"}
	}
	return root, nil
}

// tooMuch finds the line on which the file outgrows what the parser is fit for: brackets, or
// dashes on one line, that nest beyond the bound, or a mapping with more fields than any of
// ours (the parser takes quadratic time for those). Nesting by indentation needs a line per
// level and a growing indent, which the size bounds.
func tooMuch(tokens token.Tokens) *Problem {
	var flow []int // fields so far of each open bracket
	var block pairs
	dashes, line, column := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		fields := 0
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow = append(flow, 0)
		case token.SequenceEndType, token.MappingEndType:
			flow = flow[:max(len(flow)-1, 0)]
		case token.SequenceEntryType:
			dashes++
			block = block.leave(t.Position.Column)
		case token.MappingKeyType:
			dashes++
			block, fields = block.add(t.Position.Column)
		case token.MappingValueType:
			if n := len(flow); n > 0 {
				flow[n-1]++
				fields = flow[n-1]
			} else {
				block, fields = block.add(column) // of the key, the token before the colon
			}
		}
		column = t.Position.Column
		switch {
		case len(flow) > maxNesting || dashes > maxNesting:
			return &Problem{Line: line, Message: fmt.Sprintf("is nested deeper than %d levels", maxNesting)}
		case fields > maxFields:
			return &Problem{Line: line, Message: fmt.Sprintf("has more than %d fields in one place", maxFields)}
		}
	}
	return nil
}

// pairs counts the fields of the open block mappings, told apart by their column.
type pairs []struct{ column, fields int }

// leave ends the mappings to the right of a column.
func (p pairs) leave(column int) pairs {
	for len(p) > 0 && p[len(p)-1].column > column {
		p = p[:len(p)-1]
	}
	return p
}

func (p pairs) add(column int) (pairs, int) {
	p = p.leave(column)
	if len(p) == 0 || p[len(p)-1].column < column {
		p = append(p, struct{ column, fields int }{column: column})
	}
	last := &p[len(p)-1]
	last.fields++
	return p, last.fields
}

// syntaxProblem keeps the parser's message and line and leaves its excerpt of the source
// out: the excerpt may be a credential.
func syntaxProblem(err error) *Problem {
	var positioned yaml.Error
	if !errors.As(err, &positioned) {
		return &Problem{Message: "is not valid YAML"}
	}
	problem := &Problem{Message: "is not valid YAML: " + positioned.GetMessage()}
	if t := positioned.GetToken(); t != nil && t.Position != nil {
		problem.Line = t.Position.Line
	}
	return problem
}

// fillDefaults sets what a file may leave out. Names that a problem was found in are left.
func (d *Document) fillDefaults() {
	for i := range d.Providers {
		if d.Providers[i].Dialect == "" {
			d.Providers[i].Dialect = Dialects()[0]
		}
	}
	for i := range d.Connections {
		if _, written := d.lines[fmt.Sprintf("connections[%d].priority", i)]; !written {
			d.Connections[i].Priority = DefaultPriority
		}
	}
	for i := range d.Combos {
		if d.Combos[i].Strategy == "" {
			d.Combos[i].Strategy = DefaultStrategy
		}
	}
	for i := range d.APIKeys {
		if len(d.APIKeys[i].Scopes) == 0 {
			d.APIKeys[i].Scopes = []string{ScopeInference}
		}
	}
}
