package catalog

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"omniroute/models"
)

// Bounds of what says how a provider is reached and authenticated to.
const (
	maxFamilies    = 50
	maxPatterns    = 100
	maxScopes      = 50
	maxTokenLength = 16 << 10
	maxURLLength   = 2_000
)

// scopePattern is RFC 6749's scope-token.
var scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,200}$`)

func (c *checker) quota(at string, q Quota) {
	if len(q.Families) > maxFamilies {
		c.bad(at+".families", "a provider has at most %d families, this one has %d", maxFamilies, len(q.Families))
	}
	names := keys(q.Families)
	slices.Sort(names)
	for _, name := range names {
		path, globs := at+".families."+name, q.Families[name]
		if !idPattern.MatchString(name) {
			c.bad(path, "the name of a family %s", badID)
		}
		switch {
		case !c.decoded(path):
		case len(globs) == 0:
			c.bad(path, "a family needs at least one pattern of model ids, such as gpt-5*")
		case len(globs) > maxPatterns:
			c.bad(path, "a family has at most %d patterns, this one has %d", maxPatterns, len(globs))
		}
		for i, glob := range globs {
			path := fmt.Sprintf("%s[%d]", path, i)
			if c.required(path, glob) {
				if problem := badName(glob, maxModelLength); problem != "" {
					c.bad(path, "%s", problem)
				}
			}
		}
	}
}

func (c *checker) oauth(at string, class models.Class, o *DocOAuth) {
	if class != models.ClassOAuth && class != "" {
		c.bad(at, "is for a provider of class oauth, this one is of class %s", class)
	}
	if c.required(at+".tokenURL", o.TokenURL) {
		if problem := badEndpoint(o.TokenURL); problem != "" {
			c.bad(at+".tokenURL", "%s", problem)
		}
	}
	if c.required(at+".clientId", o.ClientID) {
		if problem := badName(o.ClientID, maxNameLength); problem != "" {
			c.bad(at+".clientId", "%s", problem)
		}
	}
	c.short(at+".clientSecret", o.ClientSecret)
	if len(o.Scopes) > maxScopes {
		c.bad(at+".scopes", "a client asks for at most %d scopes, this one for %d", maxScopes, len(o.Scopes))
	}
	for i, scope := range o.Scopes {
		path := fmt.Sprintf("%s.scopes[%d]", at, i)
		if c.required(path, scope) && !scopePattern.MatchString(scope) {
			c.bad(path, "must be one word of printable ASCII without quotes and backslashes; several scopes are several entries")
		}
	}
}

func (c *checker) credential(at string, credential *DocCredential) {
	if !credential.APIKey.Empty() && credential.Tokens() {
		c.bad(at, "has an API key and tokens; give apiKey alone, or accessToken and refreshToken")
	}
	if !credential.ExpiresAt.IsZero() && !credential.APIKey.Empty() {
		c.bad(at+".expiresAt", "says when accessToken expires; an API key does not")
	}
	c.short(at+".apiKey", credential.APIKey)
	c.short(at+".accessToken", credential.AccessToken)
	c.short(at+".refreshToken", credential.RefreshToken)
}

// short bounds a secret, which travels in a header or a form.
func (c *checker) short(path string, secret Sealable) {
	if n := len(secret.Reveal()); n > maxTokenLength {
		c.bad(path, "must have at most %d characters, this one has %d", maxTokenLength, n)
	}
}

// localAddress returns the address in its usual form.
func (c *checker) localAddress(path, text string) string {
	address, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		c.bad(path, "must be an IP address of this machine, such as 192.0.2.7 or 2001:db8::7")
	case address.IsUnspecified() || address.IsMulticast():
		c.bad(path, "must be an address that requests can leave from")
	default:
		return address.Unmap().String()
	}
	return text
}

// badProxy says what makes a proxy's URL unusable. It never shows the URL, which may hold a
// password.
func badProxy(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURLLength || strings.ContainsAny(text, " \t\r\n"):
		return "is not a valid URL"
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5":
		return "must begin with http://, https:// or socks5://"
	case u.Hostname() == "":
		return "has no host"
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "must consist of scheme, user, host and port only"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "has a port that is not from 1 to 65535"
		}
	}
	return ""
}

// badEndpoint says what makes a token endpoint unusable. A query belongs to it (RFC 6749 3.2).
func badEndpoint(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURLLength || strings.ContainsAny(text, " \t\r\n"):
		return "is not a valid URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "must not contain a user or password; the client's are clientId and clientSecret"
	case u.Fragment != "":
		return "must not contain a fragment"
	default:
		return ""
	}
}

// usualProxy is a valid proxy's URL with its port and without a path, so that two ways to write
// it are one.
func usualProxy(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	return (&url.URL{Scheme: u.Scheme, User: u.User, Host: proxyHost(u)}).String()
}

// shownProxy is a proxy's URL without user and password.
func shownProxy(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + proxyHost(u)
}

// proxyHost is where a proxy is, "host:port".
func proxyHost(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443", "socks5": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
