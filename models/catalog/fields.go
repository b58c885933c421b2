package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is one comparable, printable value of an entity. Defaults are not listed, so that
// leaving a field out and writing its default are the same.
type field struct{ name, value string }

// changedFields compares two lists; a secret that changed is told without its value.
func changedFields(old, now []field, secretChanged bool) []FieldChange {
	var changes []FieldChange
	find := func(list []field, name string) string {
		if i := slices.IndexFunc(list, func(f field) bool { return f.name == name }); i >= 0 {
			return list[i].value
		}
		return ""
	}
	for _, f := range now {
		if before := find(old, f.name); before != f.value {
			changes = append(changes, FieldChange{Name: f.name, Old: orNone(before, old), New: f.value})
		}
	}
	for _, f := range old {
		if find(now, f.name) == "" {
			changes = append(changes, FieldChange{Name: f.name, Old: f.value, New: "(default)"})
		}
	}
	if secretChanged {
		changes = append(changes, FieldChange{Name: "secret", New: "(changed)"})
	}
	return changes
}

func orNone(value string, old []field) string {
	if value == "" && old != nil {
		return "(default)"
	}
	return value
}

func providerFields(p DocProvider) []field {
	fields := []field{{"class", string(p.Class)}, {"dialect", p.Dialect}, {"baseURL", p.BaseURL}}
	if p.Kind != "" && p.Kind != string(p.ID) {
		fields = append(fields, field{"kind", p.Kind})
	}
	fields = append(fields, leaves("quota", p.Quota)...)
	if p.Quota.Families != nil && len(p.Quota.Families) == 0 {
		fields = append(fields, field{"quota.families", "none"})
	}
	if p.EgressShared != nil {
		fields = append(fields, field{"egressShared", strconv.FormatBool(*p.EgressShared)})
	}
	if o := p.OAuth; o != nil {
		fields = append(fields, field{"oauth.tokenURL", o.TokenURL}, field{"oauth.clientId", o.ClientID})
		if len(o.Scopes) > 0 {
			fields = append(fields, field{"oauth.scopes", list(o.Scopes)})
		}
		if !o.ClientSecret.Empty() {
			fields = append(fields, field{"oauth.clientSecret", "(set)"})
		}
	}
	return append(fields, leaves("timeouts", p.Timeouts)...)
}

func connectionFields(c DocConnection) []field {
	fields := []field{{"provider", string(c.Provider)}}
	if c.Priority != DefaultPriority {
		fields = append(fields, field{"priority", strconv.Itoa(c.Priority)})
	}
	if c.MaxConcurrent != 0 {
		fields = append(fields, field{"maxConcurrent", strconv.Itoa(c.MaxConcurrent)})
	}
	if c.Disabled {
		fields = append(fields, field{"disabled", "true"})
	}
	if c.PassthroughModels != nil {
		fields = append(fields, field{"passthroughModels", strconv.FormatBool(*c.PassthroughModels)})
	}
	if c.DisableCooling {
		fields = append(fields, field{"disableCooling", "true"})
	}
	if !c.Proxy.Empty() {
		fields = append(fields, field{"proxy", shownProxy(c.Proxy.Reveal())})
	}
	if c.LocalAddress != "" {
		fields = append(fields, field{"localAddress", c.LocalAddress})
	}
	fields = append(fields, leaves("plan", c.Plan)...)
	if c.Credential != nil && !c.Credential.ExpiresAt.IsZero() {
		fields = append(fields, field{"credential.expiresAt", c.Credential.ExpiresAt.UTC().Format(time.RFC3339)})
	}
	return fields
}

func modelFields(m DocModel) []field {
	var fields []field
	if m.ContextWindow != 0 {
		fields = append(fields, field{"contextWindow", strconv.Itoa(m.ContextWindow)})
	}
	if m.MaxOutput != 0 {
		fields = append(fields, field{"maxOutput", strconv.Itoa(m.MaxOutput)})
	}
	if m.Price != nil {
		fields = append(fields, field{"price.input", number(m.Price.Input)}, field{"price.output", number(m.Price.Output)})
	}
	if len(m.Capabilities) > 0 {
		fields = append(fields, field{"capabilities", list(m.Capabilities)})
	}
	return fields
}

func comboFields(c DocCombo) []field {
	targets := make([]string, len(c.Targets))
	for i := range c.Targets {
		targets[i] = targetText(&c.Targets[i])
	}
	fields := []field{{"strategy", c.Strategy}, {"targets", list(targets)}}
	if c.Description != "" {
		fields = append(fields, field{"description", strconv.Quote(c.Description)})
	}
	if len(c.AllowedProviders) > 0 {
		fields = append(fields, field{"allowedProviders", list(c.AllowedProviders)})
	}
	if c.ContextLength != 0 {
		fields = append(fields, field{"contextLength", strconv.Itoa(c.ContextLength)})
	}
	if c.Disabled {
		fields = append(fields, field{"disabled", "true"})
	}
	return append(fields, leaves("config", c.Config)...)
}

// targetText tells everything of a target. A prompt may be long, so it is told by its
// fingerprint.
func targetText(t *DocTarget) string {
	var b strings.Builder
	add := func(set bool, format string, args ...any) {
		if set {
			fmt.Fprintf(&b, format, args...)
		}
	}
	add(t.Combo != "", "combo %s", t.Combo)
	add(t.Combo == "", "%s", t.Model)
	add(t.Connection != "", " on %s", t.Connection)
	add(len(t.AllowedConnections) > 0, " on any of %s", list(t.AllowedConnections))
	add(t.Weight != 0, " weight %s", number(t.Weight))
	add(t.ID != "", " id %s", t.ID)
	add(t.Label != "", " label %q", t.Label)
	add(len(t.Tags) > 0, " tags %s", list(t.Tags))
	add(t.Prompt != "", " prompt %.4x", sha256.Sum256([]byte(t.Prompt)))
	add(t.FallbackOnlyOnQuotaExhaustion, " fallbackOnlyOnQuotaExhaustion")
	return b.String()
}

func apiKeyFields(k DocAPIKey) []field {
	fields := []field{{"scopes", list(k.Scopes)}}
	if len(k.AllowedConnections) > 0 {
		fields = append(fields, field{"allowedConnections", list(k.AllowedConnections)})
	}
	if len(k.AllowedModels) > 0 {
		fields = append(fields, field{"allowedModels", list(k.AllowedModels)})
	}
	if !k.ExpiresAt.IsZero() {
		fields = append(fields, field{"expiresAt", k.ExpiresAt.UTC().Format(time.RFC3339)})
	}
	return fields
}

// leaves flattens a settings value to its set leaves, by their JSON names, sorted.
func leaves(prefix string, value any) []field {
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("catalog: settings do not marshal: %v", err)) // a defect of the type, caught by any test
	}
	var tree any
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		panic(fmt.Sprintf("catalog: settings do not unmarshal: %v", err))
	}
	var fields []field
	flatten(prefix, tree, &fields)
	return fields
}

func flatten(path string, value any, into *[]field) {
	switch v := value.(type) {
	case nil:
	case map[string]any:
		names := keys(v)
		slices.Sort(names)
		for _, name := range names {
			flatten(strings.TrimPrefix(path+"."+name, "."), v[name], into)
		}
	case []any:
		if path == "" && len(v) == 0 {
			return // a section that is an empty list has nothing in it
		}
		if !slices.ContainsFunc(v, isMapping) {
			*into = append(*into, field{cmp.Or(path, "entries"), fmt.Sprint(v)})
			return
		}
		for i, entry := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), entry, into)
		}
	default:
		*into = append(*into, field{path, fmt.Sprint(v)})
	}
}

func isMapping(value any) bool {
	_, is := value.(map[string]any)
	return is
}

func list[S ~string](items []S) string {
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = string(item)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func number(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
