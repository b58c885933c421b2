package models

import (
	"sort"
	"strings"
)

// maxNear is how many near matches an error names.
const maxNear = 3

// Near returns up to three candidates that may have been meant by name, best first. They are
// ranked by edit distance, ignoring case; those that share too little with
// the name are left out. A candidate that contains the name, or its last path element, counts
// as near: "gpt-x" is meant by "openai/gpt-x" often enough.
func Near(name string, candidates []string) []string {
	type match struct {
		name     string
		distance int
	}
	wanted := strings.ToLower(clip(name))
	most := max(2, len(wanted)/3)
	var matches []match
	for _, candidate := range candidates {
		have := strings.ToLower(clip(candidate))
		distance := boundedDistance(wanted, have, most)
		if len(wanted) >= 3 && (strings.Contains(have, wanted) || len(have) >= 3 && strings.Contains(wanted, have)) {
			distance = min(distance, 2)
		}
		if _, bare, found := strings.Cut(have, "/"); found {
			distance = min(distance, boundedDistance(wanted, bare, most)+1)
		}
		if distance <= most {
			matches = append(matches, match{candidate, distance})
		}
	}
	sort.Slice(matches, func(i, j int) bool {
		if matches[i].distance != matches[j].distance {
			return matches[i].distance < matches[j].distance
		}
		return matches[i].name < matches[j].name
	})
	var names []string
	for _, m := range matches[:min(len(matches), maxNear)] {
		names = append(names, m.name)
	}
	return names
}

// Nearest is the candidate most like name, however far it is: for short closed lists, such as
// the names of settings. It is empty only without candidates.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", -1
	for _, candidate := range candidates {
		if d := editDistance(clip(name), clip(candidate)); bestDistance < 0 || d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// boundedDistance is the edit distance, or something above most when the lengths alone are
// that far apart: a client can ask for any name, and there may be thousands of candidates.
func boundedDistance(a, b string, most int) int {
	if apart := max(len(a)-len(b), len(b)-len(a)); apart > most {
		return apart
	}
	return editDistance(a, b)
}

// editDistance is Damerau-Levenshtein (adjacent transpositions count one), in two of its rows.
func editDistance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}

// clip bounds what a client can make the distance cost.
func clip(s string) string { return s[:min(len(s), 128)] }
