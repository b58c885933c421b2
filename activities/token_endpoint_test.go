package activities

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"omniroute/models/catalog"
)

// answering is a token endpoint that gives one answer, whatever it is asked.
type answering struct {
	status      int
	contentType string
	body        string
}

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.status, Header: http.Header{"Content-Type": {a.contentType}}, Body: io.NopCloser(strings.NewReader(a.body)), Request: r,
	}, nil
}

// Whatever a token endpoint answers, what comes of it are tokens that fit into a header, or an
// error that has none of its words.
func FuzzTokenAnswer(f *testing.F) {
	const form = "application/x-www-form-urlencoded"
	f.Add(200, "application/json", `{"access_token":"at","token_type":"Bearer","expires_in":3600,"refresh_token":"rt"}`)
	f.Add(200, "application/json", `{"access_token":"a\r\nb","expires_in":"1e400"}`)
	f.Add(200, form, "access_token=at&expires_in=-5")
	f.Add(400, "application/json", `{"error":"invalid_grant","error_description":"SECRET-refresh is used up"}`)
	f.Add(401, "application/json", `{"error":"SECRET-refresh"}`)
	f.Add(400, "text/html", "<html>SECRET-refresh")
	f.Add(503, "", "")
	f.Add(200, "application/json", `[`)
	f.Fuzz(func(t *testing.T, status int, contentType, body string) {
		if status < 100 || status > 999 {
			return // no HTTP client gives these
		}
		now := catalog.Refresh{
			Client:       &catalog.OAuthView{TokenURL: "http://token.example/token", ClientID: "omni", ClientSecret: catalog.NewSecret("SECRET-client")},
			RefreshToken: catalog.NewSecret("SECRET-refresh"), Declared: "declared",
		}
		client := &http.Client{Transport: answering{status, contentType, body}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		tokens, err := new(styles).fetch(t.Context(), client, now)
		if err != nil {
			require.NotContains(t, err.Error(), "SECRET")
			require.Less(t, len(err.Error()), 120, "its own words are left out")
			require.False(t, strings.ContainsFunc(err.Error(), unicode.IsControl))
			var refused *refusal
			if errors.As(err, &refused) {
				require.Less(t, status, 500, "an endpoint that is away refuses nothing")
			}
			return
		}
		require.NotEmpty(t, tokens.AccessToken.Reveal())
		require.NotEmpty(t, tokens.RefreshToken.Reveal(), "the one that was used stays where no other comes")
		for _, token := range []string{tokens.AccessToken.Reveal(), tokens.RefreshToken.Reveal()} {
			require.LessOrEqual(t, len(token), maxTokenLength)
			require.False(t, strings.ContainsFunc(token, unicode.IsControl), "%q", token)
		}
		require.Equal(t, "declared", tokens.Declared)
	})
}
