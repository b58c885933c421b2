package models

// Stamp orders published states of one entity. An era begins with an operator's reset or
// with new credentials; versions count changes inside an era. A state of an older era
// never replaces one of a newer era, whatever its version.
type Stamp struct {
	Era     int64 `json:"era"`
	Version int64 `json:"version"`
}

// After reports whether s is newer than o.
func (s Stamp) After(o Stamp) bool {
	if s.Era != o.Era {
		return s.Era > o.Era
	}
	return s.Version > o.Version
}
