package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"omniroute/models/catalog"
	"omniroute/models/egress"
)

const (
	maxTokenAnswer = 64 << 10 // bytes of a token endpoint's answer
	maxTokenLength = 16 << 10 // of one token, as of one in a catalog file
)

// refusal is an answer of the token endpoint that speaks of the credentials.
type refusal struct{ why string }

func (r *refusal) Error() string { return r.why }

// clientRefusal is an answer of the token endpoint that speaks of the provider's client, such as
// of a secret that is wrong: it has not looked at the credentials.
type clientRefusal struct{ code string }

func (r *clientRefusal) Error() string {
	return "the token endpoint refused the provider's client: " + r.code
}

// styles asks token endpoints, and remembers how each wants its client to authenticate.
type styles struct {
	mu    sync.Mutex
	known map[string]oauth2.AuthStyle // by endpoint and client
}

// fetch presents the refresh token (RFC 6749 section 6). A client with a secret authenticates by
// the header, which every endpoint must take, and where that client is refused, in the form,
// which some take alone. The library's own detection also tries again after a time-out or a
// broken connection; by then the refresh token may be used up, and presenting it a second time
// makes some providers end the whole account.
func (s *styles) fetch(ctx context.Context, client *http.Client, now catalog.Refresh) (catalog.Tokens, error) {
	endpoint := now.Client.TokenURL + " " + now.Client.ClientID
	style, known := s.of(endpoint)
	switch {
	case now.Client.ClientSecret.Empty():
		style, known = oauth2.AuthStyleInParams, true // RFC 6749 section 3.2.1
	case !known:
		style = oauth2.AuthStyleInHeader
	}
	tokens, err := exchange(ctx, client, now, style)
	if err != nil && !known && clientRefused(err) {
		style = oauth2.AuthStyleInParams
		tokens, err = exchange(ctx, client, now, style)
	}
	if err != nil {
		return catalog.Tokens{}, worded(ctx, err)
	}
	s.learn(endpoint, style)
	return tokens, nil
}

func (s *styles) of(endpoint string) (oauth2.AuthStyle, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	style, known := s.known[endpoint]
	return style, known
}

func (s *styles) learn(endpoint string, style oauth2.AuthStyle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) > 1000 { // catalogs change; what is forgotten is learned again
		s.known = map[string]oauth2.AuthStyle{}
	}
	s.known[endpoint] = style
}

// exchange makes one call. The library's other way to refresh sends no scope, which some
// endpoints ask for.
func exchange(ctx context.Context, client *http.Client, now catalog.Refresh, style oauth2.AuthStyle) (catalog.Tokens, error) {
	config := clientcredentials.Config{
		ClientID: now.Client.ClientID, ClientSecret: now.Client.ClientSecret.Reveal(),
		TokenURL: now.Client.TokenURL, Scopes: now.Client.Scopes, AuthStyle: style,
		EndpointParams: url.Values{"grant_type": {"refresh_token"}, "refresh_token": {now.RefreshToken.Reveal()}},
	}
	token, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return catalog.Tokens{}, err
	}
	if !usable(token.AccessToken) || !usable(token.RefreshToken) {
		return catalog.Tokens{}, errUnusable
	}
	return catalog.Tokens{
		AccessToken: catalog.NewSecret(token.AccessToken), RefreshToken: catalog.NewSecret(token.RefreshToken),
		ExpiresAt: token.Expiry, Declared: now.Declared,
	}, nil
}

var errUnusable = errors.New("the token endpoint gave a token that cannot be sent in a header")

func usable(token string) bool {
	return len(token) <= maxTokenLength && strings.TrimSpace(token) == token && !strings.ContainsFunc(token, unicode.IsControl)
}

// clientRefused reports whether an answer is about how the client authenticated, so that the
// refresh token was not even looked at.
func clientRefused(err error) bool {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.ErrorCode {
	case "invalid_client", "invalid_request", "unauthorized_client":
		return true
	case "":
		return answer.Response.StatusCode == http.StatusBadRequest || answer.Response.StatusCode == http.StatusUnauthorized
	default:
		return false
	}
}

// errorCode is the form of the error codes that are shown; anything else an endpoint may have
// put in their place.
var errorCode = regexp.MustCompile(`^[a-z][a-z_]{1,39}$`)

// worded says what went wrong without a token and without the endpoint's own words. What does
// not speak of the credentials is no refusal: an endpoint that is away, overloaded, or not one.
func worded(ctx context.Context, err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) {
		return wordedAnswer(answer)
	}
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the token endpoint did not answer within %s", refreshTimeout)
	case errors.Is(err, errUnusable):
		return errUnusable
	case egress.NotSent(err):
		return errors.New("the token endpoint could not be reached")
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		return errors.New("the connection to the token endpoint broke")
	}
	return errors.New("the token endpoint's answer could not be understood")
}

func wordedAnswer(answer *oauth2.RetrieveError) error {
	status := answer.Response.StatusCode
	code := answer.ErrorCode
	switch {
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return fmt.Errorf("the token endpoint answered %d", status)
	case code == "temporarily_unavailable" || code == "server_error" || code == "slow_down":
		return fmt.Errorf("the token endpoint answered %s", code)
	case code == "invalid_client" || code == "unauthorized_client":
		return &clientRefusal{code}
	case errorCode.MatchString(code):
		return &refusal{code}
	case code != "" || status == http.StatusBadRequest || status == http.StatusUnauthorized || status == http.StatusForbidden:
		return &refusal{fmt.Sprintf("the token endpoint refused with %d", status)}
	default:
		return fmt.Errorf("the token endpoint answered %d", status)
	}
}

// tokenClient is an HTTP client for one refresh. It follows no redirect: one would carry the
// refresh token to wherever it points.
func tokenClient(now catalog.Refresh) (*http.Client, error) {
	transport := &http.Transport{
		TLSHandshakeTimeout:    refreshTimeout,
		ForceAttemptHTTP2:      true,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: maxTokenAnswer,
	}
	way := egress.Way{Proxy: now.Proxy.Reveal(), LocalAddress: now.LocalAddress}
	if err := way.Take(transport, &net.Dialer{Timeout: refreshTimeout}); err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &limited{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// limited bounds what is read of an answer.
type limited struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.Transport.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{io.LimitReader(resp.Body, maxTokenAnswer), resp.Body}
	}
	return resp, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}
