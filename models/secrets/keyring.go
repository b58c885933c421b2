// Package secrets seals what must not be readable in the database and hashes what need
// never be read again: provider credentials are AES-256-GCM sealed with a ring of keys,
// gateway API keys are stored as HMAC-SHA256 only.
package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"
)

// keySize is the length of every ring key: AES-256.
const keySize = 32

// version is the first field of a sealed value. Another algorithm gets another version.
const version = "v1"

// hmacInfo separates the key that hashes API keys from the keys that seal credentials.
const hmacInfo = "omniroute api-key hmac v1"

// Errors of opening a sealed value.
var (
	// ErrUnknownKey says that the value was sealed with a key the ring does not list.
	ErrUnknownKey = errors.New("sealed with a key that the key ring does not list")
	// ErrWrongKey says that authentication failed: another key under the same id, a value
	// moved from another row, or a damaged value.
	ErrWrongKey = errors.New("the key ring's key does not open it")
	// ErrMalformed says that the value is not a sealed value at all.
	ErrMalformed = errors.New("not a sealed value")
)

// KeyRing holds the encryption keys of one installation. The first key listed seals; every
// listed key opens. To rotate, put a new key in front, re-seal, and drop the old one.
//
// The last key listed also keys the hash of API keys, which cannot be re-made because the
// clear keys are not kept. It therefore stays last for the life of the installation, or the
// API keys are issued anew.
type KeyRing struct {
	primary string
	aeads   map[string]cipher.AEAD
	hmacKey []byte
	macs    sync.Pool // of hash.Hash keyed with hmacKey: every request hashes a key
}

// ParseKeyRing reads "id:base64(32 bytes)[,id:base64(32 bytes)...]". Its errors name
// positions and ids, never key material.
func ParseKeyRing(spec string) (*KeyRing, error) {
	ring := &KeyRing{aeads: map[string]cipher.AEAD{}}
	var oldest []byte
	for i, entry := range strings.Split(strings.TrimSpace(spec), ",") {
		id, encoded, found := strings.Cut(strings.TrimSpace(entry), ":")
		if !found || encoded == "" {
			return nil, fmt.Errorf("encryption key %d: want id:base64 of 32 bytes", i+1)
		}
		if !validKeyID(id) {
			return nil, fmt.Errorf("encryption key %d: an id is 1 to 32 letters, digits, '-', '_' or '.'", i+1)
		}
		if _, twice := ring.aeads[id]; twice {
			return nil, fmt.Errorf("encryption key %d: the id %q is listed twice", i+1, id)
		}
		key, err := decodeKey(encoded)
		if err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", id, err)
		}
		if ring.aeads[id], err = newAEAD(key); err != nil {
			return nil, fmt.Errorf("encryption key %q: %w", id, err)
		}
		if ring.primary == "" {
			ring.primary = id
		}
		oldest = key
	}
	hmacKey, err := hkdf.Key(sha256.New, oldest, nil, hmacInfo, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("deriving the API key hash: %w", err)
	}
	ring.hmacKey = hmacKey
	return ring, nil
}

// GenerateKeyRing returns the spec of a ring with one new random key, with the id "k1".
func GenerateKeyRing() (spec string, err error) {
	key := make([]byte, keySize)
	if _, err := rand.Read(key); err != nil {
		return "", err
	}
	return "k1:" + base64.StdEncoding.EncodeToString(key), nil
}

// Seal encrypts plaintext for exactly one place: the column of the row of the table. The
// result reads "v1:<key id>:<base64 of nonce and ciphertext>".
func (r *KeyRing) Seal(plaintext []byte, table, id, column string) (string, error) {
	aead := r.aeads[r.primary]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plaintext)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	box := aead.Seal(nonce, nonce, plaintext, place(table, id, column))
	return version + ":" + r.primary + ":" + base64.StdEncoding.EncodeToString(box), nil
}

// Open decrypts what Seal made for the same place, with any listed key.
func (r *KeyRing) Open(sealed, table, id, column string) ([]byte, error) {
	keyID, box, err := parseSealed(sealed)
	if err != nil {
		return nil, err
	}
	aead, listed := r.aeads[keyID]
	if !listed {
		return nil, fmt.Errorf("key %q: %w", keyID, ErrUnknownKey)
	}
	if len(box) < aead.NonceSize() {
		return nil, ErrMalformed
	}
	clear, err := aead.Open(nil, box[:aead.NonceSize()], box[aead.NonceSize():], place(table, id, column))
	if err != nil {
		// The cipher's own error says nothing more, and never the content.
		return nil, fmt.Errorf("key %q: %w", keyID, ErrWrongKey)
	}
	return clear, nil
}

// Current reports whether a sealed value was made with the key that seals now; one that was
// not is due for re-sealing after a rotation.
func (r *KeyRing) Current(sealed string) bool {
	keyID, _, err := parseSealed(sealed)
	return err == nil && keyID == r.primary
}

// HashKey is the HMAC-SHA256 under which a gateway API key is stored and found. Keys are
// 256 random bits or operator-chosen text of at least 32 characters, so a fast keyed hash
// is enough; the HMAC makes a stolen table useless without the ring.
func (r *KeyRing) HashKey(clear string) [32]byte {
	mac, pooled := r.macs.Get().(hash.Hash)
	if !pooled {
		mac = hmac.New(sha256.New, r.hmacKey)
	}
	mac.Write([]byte(clear))
	var sum [32]byte
	mac.Sum(sum[:0])
	mac.Reset() // nothing of the key that was hashed stays in the pool
	r.macs.Put(mac)
	return sum
}

func parseSealed(sealed string) (keyID string, box []byte, err error) {
	parts := strings.SplitN(sealed, ":", 3)
	if len(parts) != 3 || parts[0] != version {
		return "", nil, ErrMalformed
	}
	box, err = base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return "", nil, ErrMalformed
	}
	return parts[1], box, nil
}

// place binds a sealed value to where it is stored, so that a value copied into another row
// does not open there. The separator cannot occur in table and column names.
func place(table, id, column string) []byte {
	return []byte(table + "|" + id + "|" + column)
}

func decodeKey(encoded string) ([]byte, error) {
	for _, encoding := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		key, err := encoding.DecodeString(encoded)
		if err != nil {
			continue
		}
		if len(key) != keySize {
			return nil, fmt.Errorf("a key is %d bytes, this one has %d", keySize, len(key))
		}
		return key, nil
	}
	return nil, errors.New("not valid base64")
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func validKeyID(id string) bool {
	if id == "" || len(id) > 32 {
		return false
	}
	for _, c := range id {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if !ok {
			return false
		}
	}
	return true
}
