package catalog

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/resilience"
)

// Bounds and defaults of a catalog file.
const (
	DefaultPriority = 1
	DefaultStrategy = "priority"

	maxPriority      = 100_000
	maxConcurrent    = 100_000
	maxContextWindow = 1_000_000_000
	maxPrice         = 1_000_000_000
	maxNameLength    = 200
	maxModelLength   = 300
	minKeyLength     = 32 // as secrets.MinAPIKeyLength
	maxKeyLength     = 1_024
	maxTimeoutMs     = int64(24 * time.Hour / time.Millisecond)
	maxBytes         = int64(1 << 30)
	maxAttempts      = 100
)

// Ids of providers and connections travel in workflow ids, headers and metric labels, and a
// provider's also before the slash of a model name.
var (
	idPattern         = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
	comboPattern      = regexp.MustCompile(`^[A-Za-z0-9_/.\-\[\]][A-Za-z0-9_/.\-\[\] ]{0,99}$`)
	capabilityPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,49}$`)
)

const badID = "must be 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit"

// checker gathers what is wrong with the values of a document, each by itself.
type checker struct {
	doc      *Document
	decoded  func(path string) bool
	problems []Problem
}

// check judges everything that needs no other document. Values that could not be decoded
// have their problem already.
func (d *Document) check(decoded func(path string) bool) []Problem {
	c := &checker{doc: d, decoded: decoded}
	c.providers()
	c.connections()
	c.models()
	c.combos()
	c.apiKeys()
	if d.Settings != nil {
		c.settings("settings.", d.Settings, resilience.Settings{})
	}
	return c.problems
}

func (c *checker) providers() {
	seen := map[string]string{}
	for i, p := range c.doc.Providers {
		at := fmt.Sprintf("providers[%d]", i)
		c.id(at+".id", string(p.ID), seen)
		c.oneOf(at+".class", string(p.Class), []string{
			string(models.ClassOAuth), string(models.ClassAPIKey), string(models.ClassLocal),
		})
		c.oneOf(at+".dialect", p.Dialect, Dialects())
		if c.required(at+".baseURL", p.BaseURL) {
			if problem := badBaseURL(p.BaseURL); problem != "" {
				c.bad(at+".baseURL", "%s", problem)
			}
			c.doc.Providers[i].BaseURL = strings.TrimRight(p.BaseURL, "/")
		}
		c.timeouts(at+".timeouts", p.Timeouts)
		if p.Kind != "" && !idPattern.MatchString(p.Kind) {
			c.bad(at+".kind", "%s", badID)
		}
		c.quota(at+".quota", p.Quota)
		if p.OAuth != nil {
			c.oauth(at+".oauth", p.Class, p.OAuth)
		}
	}
}

func (c *checker) connections() {
	seen := map[string]string{}
	for i, conn := range c.doc.Connections {
		at := fmt.Sprintf("connections[%d]", i)
		c.id(at+".id", string(conn.ID), seen)
		c.required(at+".provider", string(conn.Provider))
		c.between(at+".priority", int64(conn.Priority), 0, maxPriority)
		c.between(at+".maxConcurrent", int64(conn.MaxConcurrent), 0, maxConcurrent)
		if conn.Credential != nil {
			c.credential(at+".credential", conn.Credential)
		}
		if !conn.Proxy.Empty() {
			if problem := badProxy(conn.Proxy.Reveal()); problem != "" {
				c.bad(at+".proxy", "%s", problem)
			} else {
				c.doc.Connections[i].Proxy.Secret = NewSecret(usualProxy(conn.Proxy.Reveal()))
			}
		}
		if conn.Plan != nil {
			c.plan(at+".plan", conn.Plan)
		}
		if conn.LocalAddress != "" {
			c.doc.Connections[i].LocalAddress = c.localAddress(at+".localAddress", conn.LocalAddress)
		}
	}
}

func (c *checker) models() {
	seen := map[string]string{}
	for i, m := range c.doc.Models {
		at := fmt.Sprintf("models[%d]", i)
		c.required(at+".provider", string(m.Provider))
		if c.required(at+".id", m.ID) {
			if problem := badName(m.ID, maxModelLength); problem != "" {
				c.bad(at+".id", "%s", problem)
			}
			c.once(at+".id", models.ModelRef{Provider: m.Provider, Model: m.ID}.String(), seen)
		}
		c.between(at+".contextWindow", int64(m.ContextWindow), 0, maxContextWindow)
		c.between(at+".maxOutput", int64(m.MaxOutput), 0, maxContextWindow)
		if m.Price != nil {
			c.within(at+".price.input", m.Price.Input, 0, maxPrice)
			c.within(at+".price.output", m.Price.Output, 0, maxPrice)
		}
		for j, capability := range m.Capabilities {
			if path := fmt.Sprintf("%s.capabilities[%d]", at, j); c.decoded(path) && !capabilityPattern.MatchString(capability) {
				c.bad(path, "must be a lower-case word such as tools or vision")
			}
		}
	}
}

func (c *checker) apiKeys() {
	names, values := map[string]string{}, map[string]string{}
	for i, key := range c.doc.APIKeys {
		at := fmt.Sprintf("apiKeys[%d]", i)
		if c.required(at+".name", key.Name) {
			if problem := badName(key.Name, maxNameLength); problem != "" {
				c.bad(at+".name", "%s", problem)
			}
			c.once(at+".name", key.Name, names)
		}
		if clear := key.Key.Reveal(); clear != "" {
			if n := len([]rune(clear)); n < minKeyLength || n > maxKeyLength {
				c.bad(at+".key", "must have %d to %d characters, this one has %d", minKeyLength, maxKeyLength, n)
			}
			if first, twice := values[clear]; twice {
				c.bad(at+".key", "is the same key as %s", first)
			} else {
				values[clear] = at + ".key"
			}
		}
		for j, scope := range key.Scopes {
			c.oneOf(fmt.Sprintf("%s.scopes[%d]", at, j), scope, Scopes())
		}
	}
}

func (c *checker) timeouts(at string, t TimeoutSettings) {
	c.optional(at+".connectMs", t.ConnectMs, 1, maxTimeoutMs)
	c.optional(at+".headersMs", t.HeadersMs, 1, maxTimeoutMs)
	c.optional(at+".firstContentMs", t.FirstContentMs, 1, maxTimeoutMs)
	c.optional(at+".idleMs", t.IdleMs, 1, maxTimeoutMs)
	c.optional(at+".totalMs", t.TotalMs, 1, maxTimeoutMs)
}

// id checks an identifier and that it is the only one of its section.
func (c *checker) id(path, id string, seen map[string]string) {
	if !c.required(path, id) {
		return
	}
	if !idPattern.MatchString(id) {
		c.bad(path, "%s", badID)
	}
	c.once(path, id, seen)
}

func (c *checker) once(path, name string, seen map[string]string) {
	if first, twice := seen[name]; twice {
		c.bad(path, "%q is already at %s, line %d", name, first, c.doc.line(first))
		return
	}
	seen[name] = path
}

func (c *checker) required(path, value string) bool {
	if value == "" && c.decoded(path) {
		c.bad(path, "is required")
	}
	return value != ""
}

func (c *checker) oneOf(path, value string, valid []string) {
	if c.required(path, value) && !slices.Contains(valid, value) {
		c.bad(path, "%q is not known%s", value, among(value, valid))
	}
}

func (c *checker) optional(path string, value *int64, low, high int64) {
	if value != nil {
		c.between(path, *value, low, high)
	}
}

func (c *checker) between(path string, value, low, high int64) {
	if c.decoded(path) && (value < low || value > high) {
		c.bad(path, "must be from %d to %d, not %d", low, high, value)
	}
}

func (c *checker) bad(path, format string, args ...any) {
	c.problems = append(c.problems, c.doc.problem(path, format, args...))
}

func (d *Document) problem(path, format string, args ...any) Problem {
	return Problem{Path: path, Line: d.line(path), Message: fmt.Sprintf(format, args...)}
}

// line is where a path was written, or the nearest thing around it.
func (d *Document) line(path string) int {
	for path != "" {
		if line, written := d.lines[path]; written {
			return line
		}
		path = path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
	}
	return 0
}

// among is the tail of a message about a word that is not in a short closed set.
func among(value string, valid []string) string {
	tail := "; valid are " + strings.Join(valid, ", ")
	if near := models.Near(value, valid); len(near) > 0 {
		return fmt.Sprintf("; did you mean %q?%s", near[0], strings.Replace(tail, ";", "", 1))
	}
	return tail
}

func badBaseURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || strings.ContainsAny(text, " \t\r\n"):
		return "is not a valid URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "must not contain a user or password; credentials belong to a connection"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "must not contain a query or a fragment"
	default:
		return ""
	}
}

func badName(name string, maxLength int) string {
	switch {
	case len(name) > maxLength:
		return fmt.Sprintf("must have at most %d characters", maxLength)
	case strings.TrimSpace(name) != name:
		return "begins or ends with white space"
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }):
		return "contains a control character"
	default:
		return ""
	}
}
