package resilience

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// field is a setting with its place in Settings.
type field struct {
	Setting
	parent, name string // the path in two, the first with its dot
	at           []int  // index of the field
}

var fields, byPath = layOut()

// layOut finds each setting's place. A path of the schema that leads nowhere is a defect that
// no process starts with.
func layOut() ([]*field, map[string]*field) {
	list, index := make([]*field, len(schema)), make(map[string]*field, len(schema))
	for i, setting := range schema {
		f := &field{Setting: setting}
		t := reflect.TypeFor[Settings]()
		for step := range strings.SplitSeq(setting.Path, ".") {
			found := slices.IndexFunc(reflect.VisibleFields(t), func(sf reflect.StructField) bool { return jsonName(sf) == step })
			if found < 0 {
				panic("resilience: no field for the setting " + setting.Path)
			}
			f.at, t = append(f.at, found), t.Field(found).Type
		}
		dot := strings.LastIndexByte(setting.Path, '.') + 1
		f.parent, f.name = setting.Path[:dot], setting.Path[dot:]
		list[i], index[setting.Path] = f, f
	}
	return list, index
}

func jsonName(sf reflect.StructField) string {
	name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
	return name
}

// integer, duration, on and codes are effective values: what is set, else the default, within
// the bounds.
func (s *Settings) integer(path string) int64 {
	f := byPath[path]
	low, high := s.bounds(f)
	value, ok := s.given(f).(int64)
	if !ok {
		value = s.standard(f).(int64)
	}
	return min(max(value, low), high)
}

func (s *Settings) duration(path string) time.Duration {
	unit := time.Millisecond
	if byPath[path].Unit == Seconds {
		unit = time.Second
	}
	return time.Duration(s.integer(path)) * unit
}

func (s *Settings) on(path string) bool {
	f := byPath[path]
	if value, ok := s.given(f).(bool); ok {
		return value
	}
	return s.standard(f).(bool)
}

func (s *Settings) codes(path string) []int {
	f := byPath[path]
	given, _ := s.given(f).([]int)
	kept := slices.DeleteFunc(slices.Clone(given), func(code int) bool { return int64(code) < f.Min || int64(code) > f.Max })
	if len(kept) == 0 {
		kept = slices.Clone(s.standard(f).([]int))
	}
	slices.Sort(kept)
	return slices.Compact(kept)
}

func (s *Settings) effective(f *field) any {
	switch f.Kind {
	case KindSwitch:
		return s.on(f.Path)
	case KindCodes:
		return s.codes(f.Path)
	default:
		return s.integer(f.Path)
	}
}

// standard is the built-in default.
func (s *Settings) standard(f *field) any {
	if f.Default == nil {
		return s.derived(f)
	}
	return f.Default
}

// given is what was set, an int64, a bool or an []int; nil when nothing was.
func (s *Settings) given(f *field) any {
	v := reflect.ValueOf(s).Elem().FieldByIndex(f.at)
	switch {
	case v.Kind() == reflect.Slice:
		if v.Len() == 0 {
			return nil
		}
		return v.Interface()
	case v.IsNil():
		return nil
	case v.Elem().CanInt():
		return v.Elem().Int()
	default:
		return v.Elem().Bool()
	}
}

// set sets a value, or with nil takes it away.
func (s *Settings) set(f *field, value any) {
	v := reflect.ValueOf(s).Elem().FieldByIndex(f.at)
	if value == nil {
		v.SetZero()
		return
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.ValueOf(value))
		return
	}
	target := reflect.New(v.Type().Elem())
	target.Elem().Set(reflect.ValueOf(value).Convert(v.Type().Elem()))
	v.Set(target)
}

// Over lays the settings over defaults, such as those of the environment: a value that is not
// set is taken from there.
func (s Settings) Over(defaults Settings) Settings {
	for _, f := range fields {
		if s.given(f) == nil {
			s.set(f, defaults.given(f))
		}
	}
	return s
}

// Effective is the settings with every value set, as the machines take it.
func (s Settings) Effective() Settings {
	var out Settings
	for _, f := range fields {
		out.set(f, s.effective(f))
	}
	return out
}

// Source says where an effective value came from.
type Source string

// Sources of a value, the strongest first.
const (
	SourceSetting Source = "setting"
	SourceEnv     Source = "env"
	SourceDefault Source = "default"
)

// Value is a setting as it is in force.
type Value struct {
	Setting
	Effective any    // an int64, a bool or an []int
	Otherwise any    // what it would be if it were not set
	Source    Source //
	Low, High int64  // its bounds beside the other values
}

// Values lists every setting as it is in force over defaults.
func (s Settings) Values(defaults Settings) []Value {
	merged := s.Over(defaults)
	values := make([]Value, len(fields))
	for i, f := range fields {
		v := Value{Setting: f.Setting, Effective: merged.effective(f), Source: SourceDefault}
		switch {
		case s.given(f) != nil:
			v.Source = SourceSetting
		case defaults.given(f) != nil:
			v.Source = SourceEnv
		}
		without := merged
		without.set(f, defaults.given(f))
		v.Otherwise = without.effective(f)
		v.Low, v.High = merged.bounds(f)
		values[i] = v
	}
	return values
}

// Problem is one value of the operator's settings that is out of range. Path is relative to
// the "resilience" section, such as "providerBreaker.apikey.failureThreshold".
type Problem struct {
	Path    string
	Message string
}

// Validate lists every value that is out of range, so that a file can be refused as a whole.
func (s Settings) Validate() []Problem { return s.ValidateOver(Settings{}) }

// ValidateOver is Validate for settings that lie over defaults: bounds that follow from other
// values follow from those as well. The defaults themselves are not judged.
func (s Settings) ValidateOver(defaults Settings) []Problem {
	merged := s.Over(defaults)
	var problems []Problem
	check := func(path string, value, low, high int64) {
		if value < low || value > high {
			problems = append(problems, Problem{path, fmt.Sprintf("%d is not between %d and %d", value, low, high)})
		}
	}
	for _, f := range fields {
		low, high := merged.bounds(f)
		switch given := s.given(f).(type) {
		case int64:
			check(f.Path, given, low, high)
		case []int:
			if len(given) > maxCodes {
				problems = append(problems, Problem{f.Path, fmt.Sprintf("has %d entries, at most %d are allowed", len(given), maxCodes)})
				continue
			}
			for i, code := range given {
				check(fmt.Sprintf("%s[%d]", f.Path, i), int64(code), low, high)
			}
		}
	}
	return problems
}
