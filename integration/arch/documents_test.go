package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testNamed is a test or fuzz test as a document names it.
var testNamed = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")

// A document that claims to be proved by a test names one that is there.
func TestEveryTestThatADocumentNamesExists(t *testing.T) {
	declared := testsOfTheModule(t)
	var missing []string
	for _, document := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"} {
		for _, name := range testNamed.FindAllStringSubmatch(textOf(t, document), -1) {
			if !declared[name[1]] {
				missing = append(missing, document+": "+name[1])
			}
		}
	}
	require.Empty(t, missing)
}

// Each weakness of the list is tested, or the list says why it cannot occur.
func TestEveryWeaknessIsTestedOrCannotOccur(t *testing.T) {
	_, section, found := strings.Cut(textOf(t, "ARCHITECTURE.md"), "\n## Weaknesses of gateways of this kind")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")

	seen := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[0]) == "Weakness" {
			continue
		}
		require.Len(t, cells, 2, line)
		weakness, proof := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1])
		if strings.HasPrefix(weakness, "**") {
			continue // a heading
		}
		require.NotEmpty(t, weakness, line)
		require.False(t, seen[weakness], "%s: stands twice", weakness)
		seen[weakness] = true
		require.True(t, testNamed.MatchString(proof) || strings.HasPrefix(proof, "cannot occur: "), "%s: names no test and no reason", weakness)
	}
	require.GreaterOrEqual(t, len(seen), 32, "the table is not read")
}

func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

// testsOfTheModule are the names of all tests and fuzz tests.
func testsOfTheModule(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range sources(t) {
		if !file.test {
			continue
		}
		for _, declaration := range file.syntax(t).Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	require.Greater(t, len(names), 500, "the tests are not read")
	return names
}
