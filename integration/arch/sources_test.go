package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "omniroute"
	root   = "../.."
)

// source is one Go file of the module.
type source struct {
	path    string // from the module's root
	pkg     string // its folder from the module's root
	test    bool
	lines   int
	imports []string

	set    *token.FileSet
	parsed *ast.File
}

func (s *source) syntax(t *testing.T) *ast.File {
	t.Helper()
	if s.parsed == nil {
		file, err := parser.ParseFile(s.set, filepath.Join(root, s.path), nil, 0)
		require.NoError(t, err)
		s.parsed = file
	}
	return s.parsed
}

func (s *source) at(pos token.Pos) string {
	return s.path + ":" + strconv.Itoa(s.set.Position(pos).Line)
}

// sources reads every Go file of this module; the modules under deployments are their own.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && rel != "."
			if hidden || slices.Contains([]string{"deployments", "testdata", "bin"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		require.Contains(t, filepath.ToSlash(rel), "/", "code has a room of its own, never the root")
		all = append(all, read(t, files, filepath.ToSlash(rel)))
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 100, "this is not the module's root")
	return all
}

func read(t *testing.T, files *token.FileSet, rel string) *source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, rel))
	require.NoError(t, err)
	file, err := parser.ParseFile(files, rel, text, parser.ImportsOnly)
	require.NoError(t, err)
	s := &source{
		path: rel, pkg: filepath.ToSlash(filepath.Dir(rel)), set: files,
		test:  strings.HasSuffix(rel, "_test.go"),
		lines: strings.Count(string(text), "\n"),
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		s.imports = append(s.imports, imported)
	}
	return s
}
