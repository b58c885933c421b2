package catalog

import (
	"fmt"
	"sort"
	"strings"

	"omniroute/models"
)

// Near returns up to three names a client may have meant by a name that resolves to
// nothing, best first. allowed limits the answer to what the caller may use; nil allows all.
func (s *Snapshot) Near(name string, allowed map[string]bool) []string {
	var candidates []string
	for candidate, route := range s.Routes {
		if candidate == comboPrefix+route.Name {
			continue // a combo is told by its first name
		}
		if allowed == nil || allowed[candidate] {
			candidates = append(candidates, candidate)
		}
	}
	return models.Near(name, candidates)
}

// suggestion is the tail of an "unknown" message: the nearest valid name, or all of them.
func suggestion(name string, valid []string) string {
	if near := models.Near(name, valid); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?", near[0])
	}
	sort.Strings(valid)
	return "; valid are " + strings.Join(valid, ", ")
}

func keys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	return names
}
