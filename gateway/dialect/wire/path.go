package wire

import "github.com/tidwall/gjson"

// Lookup returns the value at a path, in gjson's notation, of a JSON document: strings without
// their quotes, anything else as it is written. Of a document that is cut short, what comes
// before the cut is found. What is neither an object nor an array has no paths.
func Lookup(document []byte, path string) (value string, ok bool) {
	if kind := KindOf(document[skipSpace(document, 0):]); kind != Object && kind != Array {
		return "", false
	}
	found := gjson.GetBytes(document, path)
	return found.String(), found.Exists()
}
