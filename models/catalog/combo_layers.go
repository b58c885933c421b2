package catalog

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// comboEntry is a value of the schema with its place in ComboConfig.
type comboEntry struct {
	ComboSetting
	at []int // index of the field
}

var comboValues = layOutCombo()

// layOutCombo finds each value's place. A path of the schema that leads nowhere is a defect that
// no process starts with.
func layOutCombo() []*comboEntry {
	list := make([]*comboEntry, len(comboSchema))
	for i, setting := range comboSchema {
		f, t := &comboEntry{ComboSetting: setting}, reflect.TypeFor[ComboConfig]()
		for step := range strings.SplitSeq(setting.Path, ".") {
			index, known := fieldsOf(t)[step]
			if !known {
				panic("catalog: no field for the setting " + setting.Path)
			}
			f.at, t = append(f.at, index), t.Field(index).Type
		}
		list[i] = f
	}
	return list
}

// place is the field in a configuration that can be set.
func (f *comboEntry) place(c *ComboConfig) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(f.at)
}

// given reports whether the configuration sets the value. An empty list sets nothing.
func (f *comboEntry) given(c *ComboConfig) bool {
	v := f.place(c)
	if v.Kind() == reflect.Slice {
		return v.Len() > 0
	}
	return !v.IsNil()
}

// Over lays the configuration over a wider one: a value that is not set is taken from there.
func (c ComboConfig) Over(wider ComboConfig) ComboConfig {
	for _, f := range comboValues {
		if !f.given(&c) {
			f.place(&c).Set(f.place(&wider))
		}
	}
	return c
}

// comboDefaults is the configuration with every built-in default set.
var comboDefaults = func() ComboConfig {
	var c ComboConfig
	for _, f := range comboValues {
		if f.Default == nil {
			continue
		}
		v, standard := f.place(&c), reflect.ValueOf(f.Default)
		if v.Kind() == reflect.Slice {
			v.Set(standard)
			continue
		}
		value := reflect.New(v.Type().Elem())
		value.Elem().Set(standard.Convert(v.Type().Elem()))
		v.Set(value)
	}
	return c
}()

// Effective is the configuration with every value set that has a default.
func (c ComboConfig) Effective() ComboConfig { return c.Over(comboDefaults) }

// IsZero reports whether nothing is set.
func (c ComboConfig) IsZero() bool {
	return !slices.ContainsFunc(comboValues, func(f *comboEntry) bool { return f.given(&c) })
}

// comboConfig checks the values of a configuration that is written where the scope allows.
func (c *checker) comboConfig(at string, config ComboConfig, scope ComboScope) {
	for _, f := range comboValues {
		path := at + "." + f.Path
		if !f.given(&config) || !c.decoded(path) {
			continue
		}
		if f.Scope > scope {
			c.bad(path, "belongs to a combo, not to the defaults of all")
			continue
		}
		c.comboValue(path, f, f.place(&config))
	}
}

func (c *checker) comboValue(path string, f *comboEntry, v reflect.Value) {
	switch f.Kind {
	case ComboInteger:
		c.between(path, v.Elem().Int(), int64(f.Min), int64(f.Max))
	case ComboNumber:
		c.within(path, v.Elem().Float(), f.Min, f.Max)
	case ComboWord:
		if text := v.Elem().String(); !slices.Contains(f.Words, text) {
			valid := slices.DeleteFunc(slices.Clone(f.Words), func(word string) bool { return word == "" })
			c.bad(path, "%q is not known%s", text, among(text, valid))
		}
	case ComboText:
		if problem := badName(v.Elem().String(), int(f.Max)); problem != "" {
			c.bad(path, "%s", problem)
		}
	case ComboTexts:
		c.comboTexts(path, f, v.Interface().([]string))
	case ComboSwitch, ComboTiers: // a switch is what it is; tiers are judged beside their targets
	}
}

func (c *checker) comboTexts(path string, f *comboEntry, list []string) {
	c.count(path, len(list), 1, int(f.Max))
	for i, text := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case f.Words != nil:
			c.oneOf(at, text, f.Words)
		case c.required(at, text):
			if problem := badName(text, maxModelLength); problem != "" {
				c.bad(at, "%s", problem)
			}
		}
		if first := slices.Index(list, text); first < i && text != "" {
			c.bad(at, "%q is already at %s[%d]", text, path, first)
		}
	}
}

// within is between for numbers that need not be whole.
func (c *checker) within(path string, value, low, high float64) {
	if c.decoded(path) && (value < low || value > high) {
		c.bad(path, "must be from %s to %s, not %s", plain(low), plain(high), plain(value))
	}
}

// plain is a number without an exponent.
func plain(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
