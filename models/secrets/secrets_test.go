package secrets_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omniroute/models/secrets"
)

func key(fill byte) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(rune(fill)), 32)))
}

func ring(t *testing.T, spec string) *secrets.KeyRing {
	t.Helper()
	r, err := secrets.ParseKeyRing(spec)
	require.NoError(t, err)
	return r
}

func TestWhatIsSealedOpensInItsPlaceOnly(t *testing.T) {
	r := ring(t, "k1:"+key('a'))
	rapid.Check(t, func(t *rapid.T) {
		clear := rapid.SliceOf(rapid.Byte()).Draw(t, "clear")
		place := [3]string{rapid.String().Draw(t, "table"), rapid.String().Draw(t, "id"), rapid.String().Draw(t, "column")}

		sealed, err := r.Seal(clear, place[0], place[1], place[2])
		if err != nil {
			t.Fatal(err)
		}
		opened, err := r.Open(sealed, place[0], place[1], place[2])
		if err != nil || string(opened) != string(clear) {
			t.Fatalf("sealed %q, opened %q, %v", clear, opened, err)
		}
		if _, err := r.Open(sealed, place[0], place[1]+"x", place[2]); err == nil {
			t.Fatal("a value moved to another row opened")
		}
	})
}

func TestEqualValuesAreSealedDifferently(t *testing.T) {
	r := ring(t, "k1:"+key('a'))
	first, err := r.Seal([]byte("same"), "t", "1", "c")
	require.NoError(t, err)
	second, err := r.Seal([]byte("same"), "t", "1", "c")
	require.NoError(t, err)

	require.NotEqual(t, first, second)
	require.True(t, strings.HasPrefix(first, "v1:k1:"), first)
}

func TestTheFirstKeySealsAndEveryListedKeyOpens(t *testing.T) {
	before := ring(t, "old:"+key('a'))
	after := ring(t, "new:"+key('b')+", old:"+key('a'))
	sealedBefore, err := before.Seal([]byte("x"), "t", "1", "c")
	require.NoError(t, err)

	opened, err := after.Open(sealedBefore, "t", "1", "c")
	require.NoError(t, err)
	require.Equal(t, "x", string(opened))
	require.False(t, after.Current(sealedBefore))
	sealedAfter, err := after.Seal(opened, "t", "1", "c")
	require.NoError(t, err)
	require.True(t, after.Current(sealedAfter))
	_, err = before.Open(sealedAfter, "t", "1", "c")
	require.ErrorIs(t, err, secrets.ErrUnknownKey)
	require.Equal(t, before.HashKey("k"), after.HashKey("k"), "API keys outlive a rotation")
}

func TestADamagedValueDoesNotOpen(t *testing.T) {
	r := ring(t, "k1:"+key('a'))
	sealed, err := r.Seal([]byte("secret"), "t", "1", "c")
	require.NoError(t, err)
	box, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sealed, "v1:k1:"))
	require.NoError(t, err)
	for i := range box {
		box[i] ^= 1
		_, err := r.Open("v1:k1:"+base64.StdEncoding.EncodeToString(box), "t", "1", "c")
		require.ErrorIs(t, err, secrets.ErrWrongKey)
		box[i] ^= 1
	}
	for _, malformed := range []string{"", "secret", "v1:k1", "v1:k1:", "v1:k1:AAAA", "v1:k1:%%%", "v2:k1:" + strings.TrimPrefix(sealed, "v1:k1:")} {
		_, err := r.Open(malformed, "t", "1", "c")
		require.ErrorIs(t, err, secrets.ErrMalformed, malformed)
	}
	_, err = ring(t, "k1:"+key('b')).Open(sealed, "t", "1", "c")
	require.ErrorIs(t, err, secrets.ErrWrongKey)
}

func TestABadRingIsRefusedWithoutShowingKeyMaterial(t *testing.T) {
	long := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("z", 48)))
	for spec, want := range map[string]string{
		"":                                       "encryption key 1: want id:base64",
		key('z'):                                 "encryption key 1: want id:base64",
		":" + key('z'):                           "an id is 1 to 32",
		"a b:" + key('z'):                        "an id is 1 to 32",
		"k1:" + long:                             "this one has 48",
		"k1:zzzz~~~":                             `encryption key "k1": not valid base64`,
		"k1:" + key('z') + ",":                   "encryption key 2: want id:base64",
		"k1:" + key('z') + ",k1:" + key('y'):     `the id "k1" is listed twice`,
		"k1:" + key('z') + ",k2:" + key('y')[:8]: `encryption key "k2"`,
	} {
		_, err := secrets.ParseKeyRing(spec)
		require.ErrorContains(t, err, want, spec)
		require.NotContains(t, err.Error(), key('z')[:10])
	}
}

func TestAGeneratedRingWorksAndIsNewEachTime(t *testing.T) {
	first, err := secrets.GenerateKeyRing()
	require.NoError(t, err)
	second, err := secrets.GenerateKeyRing()
	require.NoError(t, err)

	require.NotEqual(t, first, second)
	require.NotEqual(t, ring(t, first).HashKey("k"), ring(t, second).HashKey("k"))
}

func TestAPIKeysHave256RandomBitsAndAPrefix(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		clear := secrets.NewAPIKey()
		require.False(t, seen[clear])
		seen[clear] = true
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(clear, secrets.APIKeyPrefix))
		require.NoError(t, err)
		require.Len(t, raw, 32)
		require.GreaterOrEqual(t, len(clear), secrets.MinAPIKeyLength)
	}
}

func TestTheHashOfAKeyIsKeyed(t *testing.T) {
	unkeyed := hmac.New(sha256.New, nil)
	unkeyed.Write([]byte("k"))

	hash := ring(t, "k1:"+key('a')).HashKey("k")

	require.NotEqual(t, unkeyed.Sum(nil), hash[:])
	require.NotEqual(t, sha256.Sum256([]byte("k")), hash)
}
