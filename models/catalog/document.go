package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/routing"
)

// Document is the catalog as a file. A nil section is one the file does not name: applying
// the document leaves it alone, pruning included. A section that is present and empty is
// not nil.
type Document struct {
	Providers   []DocProvider   `yaml:"providers,omitzero"`
	Connections []DocConnection `yaml:"connections,omitzero"`
	Models      []DocModel      `yaml:"models,omitzero"`
	Combos      []DocCombo      `yaml:"combos,omitzero"`
	APIKeys     []DocAPIKey     `yaml:"apiKeys,omitzero"`
	Settings    *DocSettings    `yaml:"settings,omitzero"`

	// Where each path was written, for problems that only the stored catalog reveals.
	file  string
	lines map[string]int
}

// DocProvider is a provider in a file. What it leaves out takes its default.
type DocProvider struct {
	ID       models.ProviderID `yaml:"id"`
	Class    models.Class      `yaml:"class"`
	Dialect  string            `yaml:"dialect,omitempty"`
	BaseURL  string            `yaml:"baseURL"`
	Timeouts TimeoutSettings   `yaml:"timeouts,omitempty"`
	// Kind says which built-in facts and rules apply; empty means the id.
	Kind  string `yaml:"kind,omitempty"`
	Quota Quota  `yaml:"quota,omitzero"`
	// EgressShared says that the provider limits by the address requests come from; absent
	// means what the kind is known for.
	EgressShared *bool     `yaml:"egressShared,omitempty"`
	OAuth        *DocOAuth `yaml:"oauth,omitempty"`
}

// DocOAuth is how the tokens of a provider's connections are refreshed. Without a client
// secret, the same client keeps the one it has.
type DocOAuth struct {
	TokenURL     string   `yaml:"tokenURL"`
	ClientID     string   `yaml:"clientId"`
	ClientSecret Sealable `yaml:"clientSecret,omitempty"`
	Scopes       []string `yaml:"scopes,omitempty"`
}

// DocConnection is a connection in a file. Without a credential, an existing connection
// keeps the one it has.
type DocConnection struct {
	ID            models.ConnectionID `yaml:"id"`
	Provider      models.ProviderID   `yaml:"provider"`
	Credential    *DocCredential      `yaml:"credential,omitempty"`
	Priority      int                 `yaml:"priority"`
	MaxConcurrent int                 `yaml:"maxConcurrent,omitempty"`
	Disabled      bool                `yaml:"disabled,omitempty"`
	// PassthroughModels says whether quotas are counted per model; absent means as the provider.
	PassthroughModels *bool `yaml:"passthroughModels,omitempty"`
	// DisableCooling leaves the connection in where it would cool down.
	DisableCooling bool `yaml:"disableCooling,omitempty"`
	// Proxy is the URL requests leave through. It is no credential: left out, there is none.
	Proxy        Sealable `yaml:"proxy,omitempty"`
	LocalAddress string   `yaml:"localAddress,omitempty"` // IP address requests leave from
	// Plan is what the account may use, for providers that do not say it in their answers.
	Plan *DocPlan `yaml:"plan,omitempty"`
}

// DocPlan is a connection's plan at its provider.
type DocPlan struct {
	Tier    string          `json:"tier,omitempty" yaml:"tier,omitempty"`
	Windows []DocPlanWindow `json:"windows,omitempty" yaml:"windows,omitempty"`
}

// DocPlanWindow is one quota of a plan: so many units within a sliding window.
type DocPlanWindow struct {
	Name     string `json:"name" yaml:"name"`
	LengthMs int64  `json:"lengthMs,omitempty" yaml:"lengthMs,omitempty"` // may be left out of a session, weekly or monthly one
	Unit     string `json:"unit" yaml:"unit"`
	Limit    int64  `json:"limit" yaml:"limit"`
}

// DocCredential is what a connection authenticates with: an API key, or OAuth tokens.
type DocCredential struct {
	APIKey       Sealable  `yaml:"apiKey,omitempty"`
	AccessToken  Sealable  `yaml:"accessToken,omitempty"`
	RefreshToken Sealable  `yaml:"refreshToken,omitempty"`
	ExpiresAt    time.Time `yaml:"expiresAt,omitempty"` // of the access token; zero = unknown
}

// Empty reports whether there is nothing to authenticate with.
func (c *DocCredential) Empty() bool {
	return c == nil || c.APIKey.Empty() && c.AccessToken.Empty() && c.RefreshToken.Empty()
}

// Tokens reports whether it consists of tokens.
func (c *DocCredential) Tokens() bool {
	return c != nil && (!c.AccessToken.Empty() || !c.RefreshToken.Empty())
}

// bearer is what requests are sent with: the API key or the access token.
func (c *DocCredential) bearer() Secret {
	switch {
	case c == nil:
		return Secret{}
	case c.Tokens():
		return c.AccessToken.Secret
	default:
		return c.APIKey.Secret
	}
}

// same reports whether two credentials are the same. When the token expires is no part of it.
func (c *DocCredential) same(o *DocCredential) bool {
	if c.Empty() || o.Empty() {
		return c.Empty() == o.Empty()
	}
	return c.APIKey.Equal(o.APIKey.Secret) && c.AccessToken.Equal(o.AccessToken.Secret) && c.RefreshToken.Equal(o.RefreshToken.Secret)
}

// Text is the credential as one text, from which its fingerprint is made.
func (c *DocCredential) Text() string {
	if c == nil {
		return ""
	}
	return strings.Join([]string{c.APIKey.Reveal(), c.AccessToken.Reveal(), c.RefreshToken.Reveal()}, "\x00")
}

// DocModel is a model in a file.
type DocModel struct {
	ID            string            `yaml:"id"`
	Provider      models.ProviderID `yaml:"provider"`
	ContextWindow int               `yaml:"contextWindow,omitempty"`
	MaxOutput     int               `yaml:"maxOutput,omitempty"` // tokens of an answer; 0 = unknown
	Price         *DocPrice         `yaml:"price,omitempty"`     // absent = unknown, which is not free
	Capabilities  []string          `yaml:"capabilities,omitempty"`
}

// DocPrice is in currency units per million tokens. What is left out is free.
type DocPrice struct {
	Input  float64 `yaml:"input"`
	Output float64 `yaml:"output"`
}

// known is the price as strategies take it.
func (p *DocPrice) known() routing.Price {
	if p == nil {
		return routing.Price{}
	}
	return routing.Price{Input: p.Input, Output: p.Output, Known: true}
}

// DocAPIKey is a gateway key in a file. Without a key, an existing one keeps the one it has.
// An allow-list that is absent or empty allows all.
type DocAPIKey struct {
	Name               string                `yaml:"name"`
	Key                Sealable              `yaml:"key,omitempty"`
	Scopes             []string              `yaml:"scopes,omitempty"`
	AllowedConnections []models.ConnectionID `yaml:"allowedConnections,omitempty"`
	AllowedModels      []string              `yaml:"allowedModels,omitempty"`
	ExpiresAt          time.Time             `yaml:"expiresAt,omitempty"`
}

// Sealable is a secret field of a file, the only kind in which ${ENV} is replaced. An
// export knows only the placeholder, never the clear value.
type Sealable struct {
	Secret
	// Placeholder is the "${ENV}" text the value came from, or is to come from; in an export
	// also a value that holds no secret.
	Placeholder string
}

// Scopes that a gateway key can have.
const (
	ScopeInference = "inference" // call models
	ScopeManage    = "manage"    // use the management API
)

// Scopes lists every scope, in the order an error names them.
func Scopes() []string { return []string{ScopeInference, ScopeManage} }

// Dialects lists every wire format a provider can speak.
func Dialects() []string { return []string{"openai"} }

// Problem is one thing that is wrong with a catalog file.
type Problem struct {
	Path    string // such as connections[1].provider
	Line    int    // in the file, from 1; 0 when the file does not contain the place
	Message string
}

// DocumentError lists everything that is wrong with a catalog file. Nothing of the file was
// applied.
type DocumentError struct {
	File     string
	Problems []Problem
}

// Error implements error: one line per problem, "file:line: path: message".
func (e *DocumentError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.in(e.File)
	}
	return strings.Join(lines, "\n")
}

const (
	maxProblems       = 100
	maxProblemMessage = 400
)

// newDocumentError sorts the problems by line and bounds what a hopeless file can make of them.
func newDocumentError(file string, problems []Problem) *DocumentError {
	slices.SortStableFunc(problems, func(a, b Problem) int { return a.Line - b.Line })
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems:maxProblems], Problem{Message: fmt.Sprintf("and %d more problems", more)})
	}
	for i, p := range problems {
		if len(p.Message) > maxProblemMessage {
			problems[i].Message = strings.ToValidUTF8(p.Message[:maxProblemMessage], "") + "..."
		}
	}
	return &DocumentError{File: file, Problems: problems}
}

func (p Problem) in(file string) string {
	where := file
	if p.Line > 0 {
		where = fmt.Sprintf("%s:%d", file, p.Line)
	}
	if p.Path == "" {
		return where + ": " + p.Message
	}
	return where + ": " + p.Path + ": " + p.Message
}

// KeyDocument is a document of one API key that is given on a command line. Its error is a
// *DocumentError, as that of a file.
func KeyDocument(key DocAPIKey) (*Document, error) {
	doc := &Document{APIKeys: []DocAPIKey{key}, file: "key"}
	doc.fillDefaults()
	if problems := doc.check(func(string) bool { return true }); len(problems) > 0 {
		return nil, newDocumentError(doc.file, problems)
	}
	return doc, nil
}
