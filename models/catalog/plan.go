package catalog

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"omniroute/models"
)

// Stored is the whole catalog as the database holds it, with credentials opened. Every
// section of its document is present.
type Stored struct {
	Document
	Revision int64
	// Keys has what a document does not say of each API key, by the key's name.
	Keys map[string]StoredKey
	// ModelsCreated is when each model entered the catalog.
	ModelsCreated map[models.ModelRef]time.Time
	// Unreadable are connections of which something sealed does not open: the credential, the
	// tokens that descend from it, or the proxy.
	Unreadable map[models.ConnectionID]error
	// UnreadableClients are providers whose OAuth client secret does not open.
	UnreadableClients map[models.ProviderID]error
	// Tokens has the generation of each connection's credential, and what holds now of those
	// that are tokens.
	Tokens map[models.ConnectionID]StoredTokens
}

// StoredTokens are the newest tokens of a connection, without the one to refresh them with.
type StoredTokens struct {
	Generation  int64
	AccessToken Secret    // empty = the declared one holds
	ExpiresAt   time.Time // of it; zero = unknown
}

// StoredKey is an API key beside its document.
type StoredKey struct {
	ID        models.APIKeyID
	Hash      [32]byte
	CreatedAt time.Time
}

// Outcome is what applying a document to a stored catalog amounts to.
type Outcome struct {
	Diff *Diff
	// Result is the whole catalog afterwards. A connection's credential is its clear value; an
	// API key's Key is set only where the document gives a new one.
	Result *Document
}

// PlanApply works out what applying doc changes, without changing anything. With prune, what
// a section of the document does not name goes; a section the document leaves out is left
// alone. The error is a *DocumentError about references and missing secrets.
func PlanApply(stored *Stored, doc *Document, prune bool, hashKey func(string) [32]byte) (*Outcome, error) {
	p := &planner{stored: stored, doc: doc, prune: prune, hashKey: hashKey, diff: &Diff{}}
	result := &Document{file: doc.file, lines: doc.lines}
	result.Providers = merge(p, KindProvider, stored.Providers, doc.Providers,
		func(x DocProvider) string { return string(x.ID) }, providerFields, p.client)
	result.Connections = merge(p, KindConnection, stored.Connections, doc.Connections,
		func(x DocConnection) string { return string(x.ID) }, connectionFields, p.credential)
	result.Models = merge(p, KindModel, stored.Models, doc.Models,
		func(x DocModel) string { return string(x.Provider) + "/" + x.ID }, modelFields, nil)
	result.Combos = merge(p, KindCombo, stored.Combos, doc.Combos,
		func(x DocCombo) string { return x.Name }, comboFields, nil)
	result.APIKeys = merge(p, KindAPIKey, stored.APIKeys, doc.APIKeys,
		func(x DocAPIKey) string { return x.Name }, apiKeyFields, p.key)
	result.Settings = p.settings()

	after := newUniverse(result)
	p.problems = append(p.problems, doc.references(after, "")...)
	p.problems = append(p.problems, doc.overlong(after)...)
	p.problems = append(p.problems, p.leftBehind(result, after)...)
	p.problems = append(p.problems, p.credentialsNeeded(result, after)...)
	if len(p.problems) > 0 {
		return nil, newDocumentError(doc.file, p.problems)
	}
	p.diff.Warnings = warnings(result, after)
	return &Outcome{Diff: p.diff, Result: result}, nil
}

type planner struct {
	stored   *Stored
	doc      *Document
	prune    bool
	hashKey  func(string) [32]byte
	diff     *Diff
	problems []Problem
}

// secretChange lets a section compare what is not shown: it returns whether the secret of the
// entity changes and which of its other fields do, and may complete the entity with what the
// file leaves out.
type secretChange[T any] func(at string, stored *T, written *T) (changed bool, hidden []string)

// merge lays one section of the document over the stored one and notes the changes. The
// result keeps the stored order and appends what is new.
func merge[T any](p *planner, kind string, stored, written []T, name func(T) string, fields func(T) []field, secret secretChange[T]) []T {
	byName := map[string]int{}
	for i, x := range written {
		byName[name(x)] = i
	}
	result := make([]T, 0, len(stored)+len(written))
	existing := map[string]bool{}
	for _, old := range stored {
		existing[name(old)] = true
		i, named := byName[name(old)]
		if !named {
			if p.prune && written != nil {
				p.diff.Changes = append(p.diff.Changes, Change{Action: ActionDelete, Kind: kind, ID: name(old)})
			} else {
				result = append(result, old)
			}
			continue
		}
		now := written[i]
		change := Change{Action: ActionUpdate, Kind: kind, ID: name(old)}
		var hidden []string
		if secret != nil {
			change.NewCredential, hidden = secret(fmt.Sprintf("%ss[%d]", kind, i), &old, &now)
		}
		change.Fields = changedFields(fields(old), fields(now), change.NewCredential)
		for _, name := range hidden {
			if !change.Changes(name) {
				change.Fields = append(change.Fields, FieldChange{Name: name, New: "(changed)"})
			}
		}
		if len(change.Fields) > 0 {
			p.diff.Changes = append(p.diff.Changes, change)
		}
		result = append(result, now)
	}
	for i, now := range written {
		if existing[name(now)] {
			continue
		}
		change := Change{Action: ActionCreate, Kind: kind, ID: name(now)}
		if secret != nil {
			change.NewCredential, _ = secret(fmt.Sprintf("%ss[%d]", kind, i), nil, &now)
		}
		change.Fields = changedFields(nil, fields(now), false)
		p.diff.Changes = append(p.diff.Changes, change)
		result = append(result, now)
	}
	return result
}

// credential compares what a connection authenticates with by its clear value: the sealed
// text differs on every sealing. A connection written without one keeps what it has. What has
// become of declared tokens since is no part of the comparison.
func (p *planner) credential(_ string, stored, written *DocConnection) (changed bool, hidden []string) {
	if stored == nil {
		return !written.Credential.Empty(), nil
	}
	if !stored.Proxy.Equal(written.Proxy.Secret) {
		hidden = []string{"proxy"}
	}
	unreadable := p.stored.Unreadable[stored.ID] != nil
	if written.Credential == nil {
		written.Credential = stored.Credential
		return false, hidden
	}
	return unreadable || !stored.Credential.same(written.Credential), hidden
}

// client compares the secret of a provider's OAuth client. The same client, written without
// one, keeps what it has.
func (p *planner) client(_ string, stored, written *DocProvider) (changed bool, hidden []string) {
	if stored == nil || stored.OAuth == nil || written.OAuth == nil {
		return false, nil
	}
	if written.OAuth.ClientSecret.Empty() && written.OAuth.ClientID == stored.OAuth.ClientID {
		kept := *written.OAuth
		kept.ClientSecret = stored.OAuth.ClientSecret
		written.OAuth = &kept
	}
	if !stored.OAuth.ClientSecret.Equal(written.OAuth.ClientSecret.Secret) {
		hidden = []string{"oauth.clientSecret"}
	}
	return false, hidden
}

// key compares an API key by its hash, which is all that is kept of it.
func (p *planner) key(at string, stored, written *DocAPIKey) (changed bool, hidden []string) {
	clear := written.Key.Reveal()
	if clear == "" {
		if stored == nil {
			p.problems = append(p.problems, p.doc.problem(at+".key", "is required for a new key"))
		}
		return false, nil
	}
	hash := p.hashKey(clear)
	for name, other := range p.stored.Keys {
		if name != written.Name && other.Hash == hash && !p.replaces(name) {
			p.problems = append(p.problems, p.doc.problem(at+".key", "is already the key of %q", name))
		}
	}
	if stored != nil && p.stored.Keys[stored.Name].Hash == hash {
		written.Key = Sealable{}
		return false, nil
	}
	return true, nil
}

// replaces reports whether the document takes the key away from a stored name, by giving it
// another or by pruning it.
func (p *planner) replaces(name string) bool {
	for _, key := range p.doc.APIKeys {
		if key.Name == name {
			clear := key.Key.Reveal()
			return clear != "" && p.hashKey(clear) != p.stored.Keys[name].Hash
		}
	}
	return p.prune
}

// leftBehind finds stored entities that would point to nothing after the change: pruning
// something that what stays still needs is refused.
func (p *planner) leftBehind(result *Document, after *universe) []Problem {
	written := newUniverse(p.doc)
	keys := map[string]bool{}
	for _, k := range p.doc.APIKeys {
		keys[k.Name] = true
	}
	kept := &Document{}
	for _, c := range result.Connections {
		if written.connections[c.ID] == nil {
			kept.Connections = append(kept.Connections, c)
		}
	}
	for _, m := range result.Models {
		if written.models[models.ModelRef{Provider: m.Provider, Model: m.ID}] == nil {
			kept.Models = append(kept.Models, m)
		}
	}
	for _, c := range result.Combos {
		if written.combos[c.Name] == nil {
			kept.Combos = append(kept.Combos, c)
		}
	}
	kept.Settings = p.keptSettings(result.Settings)
	for _, k := range result.APIKeys {
		if !keys[k.Name] {
			kept.APIKeys = append(kept.APIKeys, k)
		}
	}
	problems := kept.references(after, " after this change")
	for i := range problems {
		problems[i].Path = kept.storedPath(problems[i].Path)
		problems[i].Line = 0
	}
	return problems
}

// keptSettings are the sections of the result that the document does not name.
func (p *planner) keptSettings(result *DocSettings) *DocSettings {
	kept := *result
	for _, name := range sectionNames {
		if p.doc.Settings != nil && !p.doc.Settings.section(name).IsNil() {
			kept.section(name).SetZero()
		}
	}
	return &kept
}

// storedPath names the stored entity a path of d leads into: its index means nothing to the reader.
func (d *Document) storedPath(path string) string {
	var section, rest string
	var i int
	if strings.HasPrefix(path, "settings.") {
		return "stored " + path
	}
	if n, _ := fmt.Sscanf(path, "connections[%d]%s", &i, &rest); n == 2 {
		section = "connection " + string(d.Connections[i].ID)
	} else if n, _ := fmt.Sscanf(path, "models[%d]%s", &i, &rest); n == 2 {
		section = "model " + string(d.Models[i].Provider) + "/" + d.Models[i].ID
	} else if n, _ := fmt.Sscanf(path, "combos[%d]%s", &i, &rest); n == 2 {
		section = "combo " + d.Combos[i].Name
	} else if n, _ := fmt.Sscanf(path, "apiKeys[%d]%s", &i, &rest); n == 2 {
		section = "apiKey " + d.APIKeys[i].Name
	}
	return "stored " + section + rest
}

// credentialsNeeded finds connections that would have nothing to authenticate with, and those
// that could not be authenticated for long. Only a local provider serves without.
func (p *planner) credentialsNeeded(result *Document, after *universe) []Problem {
	var problems []Problem
	for _, c := range result.Connections {
		provider := after.providers[c.Provider]
		if provider == nil {
			continue
		}
		unreadable := p.stored.Unreadable[c.ID] != nil && c.Credential == nil
		switch {
		case c.Credential.Empty() && !unreadable && provider.Class != models.ClassLocal:
			problems = append(problems, p.connectionProblem(c.ID, "a connection of class %s needs %s", provider.Class, credentialOf(provider.Class)))
		case c.Credential != nil && !c.Credential.RefreshToken.Empty() && provider.OAuth == nil:
			problems = append(problems, p.connectionProblem(c.ID, "refreshToken needs the oauth.tokenURL of provider %q, which has none", provider.ID))
		}
	}
	return problems
}

func credentialOf(class models.Class) string {
	if class == models.ClassOAuth {
		return "credential.accessToken or credential.refreshToken"
	}
	return "credential.apiKey"
}

// connectionProblem is about the credential of a connection of the file, or of a stored one
// that the file does not name.
func (p *planner) connectionProblem(id models.ConnectionID, format string, args ...any) Problem {
	i := slices.IndexFunc(p.doc.Connections, func(x DocConnection) bool { return x.ID == id })
	path := fmt.Sprintf("connections[%d].credential", i)
	if i < 0 {
		path = "stored connection " + string(id)
	}
	return p.doc.problem(path, format, args...)
}

// warnings are about what is allowed and probably not meant.
func warnings(result *Document, u *universe) []string {
	var all []string
	served := map[models.ProviderID]bool{}
	for _, c := range result.Connections {
		served[c.Provider] = true
	}
	for _, combo := range result.Combos {
		ref, isRef := models.ParseModelRef(combo.Name)
		if u.bare[combo.Name] > 0 || isRef && u.models[ref] != nil {
			all = append(all, fmt.Sprintf("combo %q has the name of a model; the name now means the combo", combo.Name))
		}
		for i, target := range combo.Targets {
			if ref, ok := models.ParseModelRef(target.Model); ok && !served[ref.Provider] {
				all = append(all, fmt.Sprintf("combo %q: target %d, %s, has no connection", combo.Name, i, target.Model))
			}
		}
	}
	expander := u.expander()
	for i := range result.Combos {
		if steps := expander.steps(&result.Combos[i]); len(steps) > maxTargets {
			all = append(all, fmt.Sprintf("combo %q has more than %d targets; the first %d are used", result.Combos[i].Name, maxTargets, maxTargets))
		}
		all = append(all, expander.warnings...)
	}
	for _, m := range result.Models {
		for _, capability := range m.Capabilities {
			if near := models.Near(capability, Capabilities()); len(near) > 0 && near[0] != capability && !slices.Contains(Capabilities(), capability) {
				all = append(all, fmt.Sprintf("model \"%s/%s\": the capability %q means nothing to the gateway; did you mean %q?", m.Provider, m.ID, capability, near[0]))
			}
		}
	}
	return append(all, result.Settings.strangers(result.Providers)...)
}

// HashText is how the hash of an API key is written in the database.
func HashText(hash [32]byte) string { return hex.EncodeToString(hash[:]) }
