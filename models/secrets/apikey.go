package secrets

import (
	"crypto/rand"
	"encoding/base64"
)

// APIKeyPrefix starts every key the gateway makes, so that scanners and people recognise one.
const APIKeyPrefix = "omr_"

// MinAPIKeyLength is the shortest key an operator may choose, in characters.
const MinAPIKeyLength = 32

// NewAPIKey returns a new gateway key with 256 random bits. It is shown once and never stored.
func NewAPIKey() string {
	raw := make([]byte, 32)
	rand.Read(raw) //nolint:errcheck // crypto/rand.Read never returns an error; it ends the process instead
	return APIKeyPrefix + base64.RawURLEncoding.EncodeToString(raw)
}
