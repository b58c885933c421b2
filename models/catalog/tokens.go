package catalog

import (
	"time"

	"omniroute/models/resilience"
)

// OAuthClient is what a provider knows the gateway as, without its secret. Without a token
// endpoint there is no client.
type OAuthClient struct {
	TokenURL string   `json:"tokenURL,omitempty"`
	ClientID string   `json:"clientId,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}

// Refresh is all that is needed to fetch new tokens for a connection.
type Refresh struct {
	Client       *OAuthView // nil when the provider has no token endpoint
	RefreshToken Secret     // the newest; empty when there is none
	Generation   int64      // of the tokens that hold now
	ExpiresAt    time.Time  // of the access token among them; zero = unknown
	// Declared tells the credential of the catalog that all of it descends from.
	Declared string
	// Proxy and LocalAddress are what the connection's requests leave through.
	Proxy        Secret
	LocalAddress string
	// Expired is the operator's policy for credentials that stay expired.
	Expired resilience.ExpiredPolicy
}

// Tokens are what a token endpoint gave.
type Tokens struct {
	AccessToken  Secret
	RefreshToken Secret    // the next one to refresh with: a new one, or the one that was used
	ExpiresAt    time.Time // of the access token; zero = unknown
	Declared     string    // as the Refresh had it
}
