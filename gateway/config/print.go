package config

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes every setting with its effective value and its origin, secrets masked, and then
// every default of an operator's setting that a variable can replace.
func Print(w io.Writer, settings []Setting, defaults Defaults) error {
	if err := printTable(w, "SETTING\tVALUE\tFROM", settings); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return printTable(w, "DEFAULT OF (the stored setting wins)\tVALUE\tFROM", defaults.list())
}

func printTable(w io.Writer, header string, settings []Setting) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, header)
	for _, s := range settings {
		value := s.Value
		if value == "" {
			value = "(unset)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.Name, value, s.Origin())
	}
	return table.Flush()
}
