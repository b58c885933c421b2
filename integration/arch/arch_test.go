package arch

import (
	"go/ast"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Sets of packages that the table below speaks of. Imports point down only.
var (
	pure   = set("models", "models/resilience", "models/failure", "models/routing")
	shared = union(pure, set("workflows/contract", "models/catalog", "models/secrets", "models/egress"))
	world  = union(shared, set("workflows/dial", "models/store", "models/feed"))
	edge   = union(world, set("gateway/access", "gateway/live", "gateway/outbox", "gateway/ledger", "gateway/upstream", "gateway/durable", "gateway/config", "gateway/dialect/..."))
	middle = union(edge, set("gateway/relay", "gateway/admin"))
	joined = union(middle, set("gateway/ingress", "gateway/dashboard", "worker", "workflows", "activities"))
)

// mayImport is the table: what each package may import of this module. A package that is not
// in it is a new room; it gets a line here and a place in ARCHITECTURE.md.
var mayImport = map[string][]string{
	"models":                {},
	"models/resilience":     set("models"),
	"models/failure":        set("models"),
	"models/routing":        set("models"),
	"models/catalog":        pure,
	"models/secrets":        pure,
	"models/egress":         {},
	"workflows/contract":    pure,
	"workflows/dial":        shared,
	"models/store":          shared,
	"models/store/...":      union(shared, set("models/store/...")),
	"models/feed":           shared,
	"gateway/config":        set("models", "models/resilience", "models/secrets"),
	"gateway/dialect/...":   union(shared, set("gateway/dialect/...")),
	"gateway/access":        shared,
	"gateway/live":          world,
	"gateway/outbox":        world,
	"gateway/ledger":        world,
	"gateway/upstream":      union(world, set("gateway/dialect/...")),
	"gateway/durable":       world,
	"gateway/relay":         edge,
	"gateway/admin":         edge,
	"gateway/ingress":       middle,
	"gateway/dashboard":     middle,
	"workflows":             union(pure, set("workflows/contract")),
	"activities":            union(shared, set("models/store")),
	"worker":                union(world, set("workflows", "activities")),
	"gateway/assembly":      joined,
	"gateway/cmd/omniroute": union(middle, set("gateway/assembly")),
	// Tests of the whole system stand outside the tree: they see everything.
	"integration/arch":         {},
	"integration/fakeprovider": {},
	"integration/...":          union(joined, set("gateway/assembly", "integration/...")),
}

// onlyIn lists foreign packages with the packages of ours that may import them.
var onlyIn = map[string][]string{
	"gorm.io":                    set("models/store", "models/store/..."),
	"github.com/libtnb/sqlite":   set("models/store", "models/store/..."),
	"github.com/pressly/goose":   set("models/store", "models/store/..."),
	"github.com/jackc/pgx":       set("models/store", "models/store/...", "models/feed"),
	"go.temporal.io":             set("workflows", "workflows/dial", "activities", "worker", "gateway/durable"),
	"github.com/gorilla/mux":     set("gateway/ingress", "gateway/admin", "gateway/dashboard"),
	"github.com/alecthomas/kong": set("gateway/config", "gateway/cmd/omniroute"),
	"github.com/tidwall":         set("gateway/dialect/..."),
}

// neverIn lists packages with what they must not import.
var neverIn = map[string][]string{
	"workflows":          set("net", "net/http", "os", "sync", "math/rand", "math/rand/v2", "github.com/sirupsen/logrus"),
	"workflows/contract": set("net", "net/http", "os", "sync", "github.com/sirupsen/logrus"),
}

func TestImportsPointDownOnly(t *testing.T) {
	var broken []string
	for _, file := range sources(t) {
		allowed, known := rule(mayImport, file.pkg)
		if !known {
			broken = append(broken, file.path+": package "+file.pkg+" is not in the import table")
		}
		if file.test {
			continue // tests may reach sideways; what they link is not shipped
		}
		for _, imported := range file.imports {
			ours, internal := strings.CutPrefix(imported, module+"/")
			if internal && ours != file.pkg && !within(allowed, ours) {
				broken = append(broken, file.path+": "+file.pkg+" may not import "+ours)
			}
		}
	}
	require.Empty(t, broken)
}

func TestForeignPackagesStayInTheirRooms(t *testing.T) {
	var broken []string
	for _, file := range sources(t) {
		if file.test || strings.HasPrefix(file.pkg, "integration/") {
			continue
		}
		for _, imported := range file.imports {
			for foreign, rooms := range onlyIn {
				if (imported == foreign || strings.HasPrefix(imported, foreign+"/")) && !within(rooms, file.pkg) {
					broken = append(broken, file.path+": "+foreign+" is for "+strings.Join(rooms, ", ")+" only")
				}
			}
			if slices.Contains(neverIn[file.pkg], imported) {
				broken = append(broken, file.path+": never "+imported+" here")
			}
		}
	}
	require.Empty(t, broken)
}

// The rules of the domain are replayed by workflows and proved by property tests: they can
// neither ask for the time nor wait, lock, draw lots or touch the world.
func TestTheRulesAskForNothing(t *testing.T) {
	clock := set("Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker")
	banned := set("math/rand", "math/rand/v2", "crypto/rand", "sync", "sync/atomic", "os", "io/fs", "net", "context", "log", "unsafe")
	var broken []string
	for _, file := range sources(t) {
		if file.test || !slices.Contains(pure, file.pkg) {
			continue
		}
		for _, imported := range file.imports {
			first, _, _ := strings.Cut(imported, "/")
			if strings.Contains(first, ".") || slices.Contains(banned, imported) {
				broken = append(broken, file.path+": may not import "+imported)
			}
		}
		ast.Inspect(file.syntax(t), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				broken = append(broken, file.at(n.Pos())+": no goroutines here")
			case *ast.SelectorExpr:
				if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					broken = append(broken, file.at(n.Pos())+": time."+n.Sel.Name+": now is an argument here")
				}
			}
			return true
		})
	}
	require.Empty(t, broken)
}

func TestFilesAreShortAndPackagesAreNamedForWhatTheyDo(t *testing.T) {
	const most = 500
	vague := set("util", "utils", "common", "helper", "helpers", "misc", "shared", "base")
	var broken []string
	for _, file := range sources(t) {
		if file.lines > most {
			broken = append(broken, file.path+" has "+strconv.Itoa(file.lines)+" lines: split it")
		}
		if slices.Contains(vague, file.pkg[strings.LastIndex(file.pkg, "/")+1:]) {
			broken = append(broken, file.path+": the package's name says nothing")
		}
	}
	require.Empty(t, broken)
}

func TestTestsRequireAndNeverSkip(t *testing.T) {
	banned := set("Skip", "Skipf", "SkipNow", "Eventually", "EventuallyWithT")
	var broken []string
	for _, file := range sources(t) {
		if !file.test {
			continue
		}
		if slices.Contains(file.imports, "github.com/stretchr/testify/assert") {
			broken = append(broken, file.path+": require, not assert")
		}
		ast.Inspect(file.syntax(t), func(n ast.Node) bool {
			if call, ok := n.(*ast.SelectorExpr); ok && slices.Contains(banned, call.Sel.Name) {
				broken = append(broken, file.at(call.Pos())+": "+call.Sel.Name)
			}
			return true
		})
	}
	require.Empty(t, broken)
}

// rule finds the line for a package: its own, else the nearest "folder/..." above it.
func rule(table map[string][]string, pkg string) ([]string, bool) {
	if allowed, ok := table[pkg]; ok {
		return allowed, true
	}
	for folder := pkg; folder != ""; {
		if allowed, ok := table[folder+"/..."]; ok {
			return allowed, true
		}
		i := strings.LastIndex(folder, "/")
		if i < 0 {
			break
		}
		folder = folder[:i]
	}
	return nil, false
}

func within(allowed []string, pkg string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		folder, all := strings.CutSuffix(a, "/...")
		return a == pkg || (all && (pkg == folder || strings.HasPrefix(pkg, folder+"/")))
	})
}

func set(names ...string) []string { return names }

func union(sets ...[]string) []string { return slices.Concat(sets...) }
