package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// Action is what applying a document does to one entity.
type Action string

// Actions of a diff.
const (
	ActionCreate Action = "create"
	ActionUpdate Action = "update"
	ActionDelete Action = "delete"
)

// Kinds of entities a diff speaks of, in the order they are created.
const (
	KindProvider   = "provider"
	KindConnection = "connection"
	KindModel      = "model"
	KindCombo      = "combo"
	KindAPIKey     = "apiKey"
	KindSetting    = "setting"
)

// Diff is what applying a document changes, or would change.
type Diff struct {
	Changes []Change
	// Warnings are about things that are allowed and probably not meant.
	Warnings []string
}

// Change is one entity that is created, updated or deleted.
type Change struct {
	Action Action
	Kind   string
	ID     string
	Fields []FieldChange // of an update, and the non-default ones of a creation
	// NewCredential says that what the connection authenticates with changed, which begins
	// a new era of its health.
	NewCredential bool
}

// FieldChange is one field of a change. A secret never appears: it reads "(changed)".
type FieldChange struct {
	Name string
	Old  string // empty in a creation
	New  string
}

// Changes reports whether a field is among the changed ones.
func (c Change) Changes(field string) bool {
	return slices.ContainsFunc(c.Fields, func(f FieldChange) bool { return f.Name == field })
}

// Empty reports whether there is nothing to change.
func (d *Diff) Empty() bool { return len(d.Changes) == 0 }

// String is the diff for people: one line per entity with "+", "~" or "-", and a summary.
// Without changes it is "no changes".
func (d *Diff) String() string {
	var b strings.Builder
	counts := map[Action]int{}
	for _, c := range d.Changes {
		counts[c.Action]++
		b.WriteString(c.String())
		b.WriteByte('\n')
	}
	for _, w := range d.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if d.Empty() {
		b.WriteString("no changes")
	} else {
		fmt.Fprintf(&b, "%d to create, %d to update, %d to delete",
			counts[ActionCreate], counts[ActionUpdate], counts[ActionDelete])
	}
	return b.String()
}

// String is the change's one line, such as `~ connection openai-1: priority 1 -> 2`.
func (c Change) String() string {
	sign := map[Action]string{ActionCreate: "+", ActionUpdate: "~", ActionDelete: "-"}[c.Action]
	line := sign + " " + c.Kind + " " + c.ID
	for i, f := range c.Fields {
		if i == 0 {
			line += ": "
		} else {
			line += ", "
		}
		line += f.String()
	}
	return line
}

// String is "name old -> new", or "name new" when there was no old value.
func (f FieldChange) String() string {
	if f.Old == "" {
		return f.Name + " " + f.New
	}
	return f.Name + " " + f.Old + " -> " + f.New
}
