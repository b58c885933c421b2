package catalog

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
)

// Export is the stored catalog as a document that can be applied again. It holds no secret:
// each becomes a placeholder such as ${<CONNECTION>_API_KEY}; an API key of the gateway, of
// which only the hash is known, is left out, and applying the document leaves it alone.
// Applied with the same credentials in the environment, it changes nothing. Tokens are those
// that were declared, whatever has become of them.
func (s *Stored) Export() *Document {
	doc := s.Document
	names := placeholders{}
	doc.Providers = make([]DocProvider, len(s.Providers))
	for i, p := range s.Providers {
		if p.OAuth != nil && (!p.OAuth.ClientSecret.Empty() || s.UnreadableClients[p.ID] != nil) {
			client := *p.OAuth
			client.ClientSecret = names.of(string(p.ID), "CLIENT_SECRET")
			p.OAuth = &client
		}
		doc.Providers[i] = p
	}
	doc.Connections = make([]DocConnection, len(s.Connections))
	for i, c := range s.Connections {
		c.Credential = names.credential(c, s.Unreadable[c.ID] != nil)
		if !c.Proxy.Empty() {
			c.Proxy = names.proxy(c)
		}
		doc.Connections[i] = c
	}
	doc.APIKeys = make([]DocAPIKey, len(s.APIKeys))
	for i, k := range s.APIKeys {
		k.Key = Sealable{}
		doc.APIKeys[i] = k
	}
	return &doc
}

// placeholders are the names of variables that an export has used.
type placeholders map[string]bool

// of derives a variable's name from an entity's id, told apart by a number where two ids lead
// to the same one.
func (used placeholders) of(id, what string) Sealable {
	base := notInEnvName.ReplaceAllString(strings.ToUpper(id), "_")
	if base[0] >= '0' && base[0] <= '9' {
		base = "_" + base
	}
	name := base + "_" + what
	for n := 2; used[name]; n++ {
		name = fmt.Sprintf("%s_%d_%s", base, n, what)
	}
	used[name] = true
	return Sealable{Placeholder: "${" + name + "}"}
}

var notInEnvName = regexp.MustCompile(`[^A-Z0-9]+`)

// credential has a placeholder for each part that is there. One that does not open is written
// as an API key.
func (used placeholders) credential(c DocConnection, unreadable bool) *DocCredential {
	switch {
	case c.Credential.Tokens():
		tokens := &DocCredential{ExpiresAt: c.Credential.ExpiresAt}
		if !c.Credential.AccessToken.Empty() {
			tokens.AccessToken = used.of(string(c.ID), "ACCESS_TOKEN")
		}
		if !c.Credential.RefreshToken.Empty() {
			tokens.RefreshToken = used.of(string(c.ID), "REFRESH_TOKEN")
		}
		return tokens
	case !c.Credential.Empty() || unreadable:
		return &DocCredential{APIKey: used.of(string(c.ID), "API_KEY")}
	default:
		return nil
	}
}

// proxy shows a URL without user and password as it is.
func (used placeholders) proxy(c DocConnection) Sealable {
	if u, err := url.Parse(c.Proxy.Reveal()); err == nil && u.User == nil {
		return Sealable{Placeholder: shownProxy(c.Proxy.Reveal())}
	}
	return used.of(string(c.ID), "PROXY")
}

// YAML writes the document as a catalog file. A secret is written as its placeholder, and
// left out when it has none.
func (d *Document) YAML() ([]byte, error) {
	escaped := escapeAll(reflect.ValueOf(*d)).Interface().(Document)
	return yaml.MarshalWithOptions(escaped, yaml.IndentSequence(true), yaml.UseLiteralStyleIfMultiline(false))
}

// MarshalYAML writes the placeholder, never the value.
func (s Sealable) MarshalYAML() ([]byte, error) {
	if s.Placeholder == "" {
		return []byte(`""`), nil
	}
	return []byte(`"` + s.Placeholder + `"`), nil
}

// IsZero leaves a secret without a placeholder out of a file.
func (s Sealable) IsZero() bool { return s.Placeholder == "" }

// escapeAll copies a value with "${" escaped in every string but the secrets.
func escapeAll(v reflect.Value) reflect.Value {
	switch {
	case v.Type() == typeSealable || v.Type() == typeTime:
		return v
	case v.Kind() == reflect.String:
		return reflect.ValueOf(escape(v.String())).Convert(v.Type())
	case v.Kind() == reflect.Pointer && !v.IsNil():
		copied := reflect.New(v.Type().Elem())
		copied.Elem().Set(escapeAll(v.Elem()))
		return copied
	case v.Kind() == reflect.Slice && !v.IsNil():
		copied := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			copied.Index(i).Set(escapeAll(v.Index(i)))
		}
		return copied
	case v.Kind() == reflect.Map && !v.IsNil():
		copied := reflect.MakeMapWithSize(v.Type(), v.Len())
		for _, key := range v.MapKeys() {
			copied.SetMapIndex(escapeAll(key), escapeAll(v.MapIndex(key)))
		}
		return copied
	case v.Kind() == reflect.Struct:
		copied := reflect.New(v.Type()).Elem()
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				copied.Field(i).Set(escapeAll(v.Field(i)))
			}
		}
		return copied
	default:
		return v
	}
}
