package activities_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"omniroute/activities"
	"omniroute/integration/fakeprovider"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/secrets"
	"omniroute/models/store"
	"omniroute/workflows/contract"
)

// account is a connection with tokens in a real database, at a scripted token endpoint.
type account struct {
	store       *store.Store
	provider    *fakeprovider.Provider
	credentials *activities.Credentials
	access      string // declared
	refresh     string
}

var worker = contract.Entity{Provider: "work", Connection: "work-1"}

func newAccount(t *testing.T, more string) *account {
	log := logrus.New()
	log.SetOutput(io.Discard)
	ring, err := secrets.ParseKeyRing("k:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
	require.NoError(t, err)
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "omniroute.db"), ring, log)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	p, err := fakeprovider.Start(fakeprovider.Options{})
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	a := &account{store: s, provider: p, credentials: activities.NewCredentials(s)}
	a.access, a.refresh = p.Grant()
	p.Client("omni", "client-secret", false)
	a.declare(t, p.TokenURL(), more)
	return a
}

func (a *account) declare(t *testing.T, tokenURL, more string) {
	t.Helper()
	a.apply(t, fmt.Sprintf(`
providers: [{id: work, class: oauth, baseURL: "http://w", oauth: {tokenURL: %q, clientId: omni, clientSecret: client-secret, scopes: [models, offline]}}]
connections: [{id: work-1, provider: work, credential: {accessToken: %q, refreshToken: %q}%s}, {id: key-1, provider: work, credential: {apiKey: k}}]`,
		tokenURL, a.access, a.refresh, more))
}

func (a *account) apply(t *testing.T, text string) {
	t.Helper()
	doc, err := catalog.ParseDocument(strings.NewReader(text), "c.yaml", os.LookupEnv)
	require.NoError(t, err)
	_, err = a.store.Apply(t.Context(), doc, store.ApplyOptions{})
	require.NoError(t, err)
}

func (a *account) ask(t *testing.T, seen int64) contract.Refreshed {
	t.Helper()
	answer, err := a.credentials.RefreshCredentials(t.Context(), contract.Refresh{Entity: worker, Seen: seen})
	require.NoError(t, err)
	a.hidesSecrets(t, answer)
	return answer
}

// hidesSecrets looks for tokens in what goes into a history.
func (a *account) hidesSecrets(t *testing.T, answer any) {
	t.Helper()
	text, err := json.Marshal(answer)
	require.NoError(t, err)
	for _, secret := range []string{"fake-at-", "fake-rt-", "client-secret", "omni"} {
		require.NotContains(t, string(text), secret)
	}
}

func (a *account) view(t *testing.T) *catalog.ConnectionView {
	t.Helper()
	snapshot, err := a.store.LoadSnapshot(t.Context())
	require.NoError(t, err)
	return snapshot.Connections["work-1"]
}

func TestARefreshStoresTheNewTokensForEveryReplica(t *testing.T) {
	a := newAccount(t, "")
	a.apply(t, "settings: {resilience: {expiredRetry: {maxRetries: 1, baseDelayMs: 2000}}}")
	before := a.view(t)
	require.Equal(t, a.access, before.APIKey.Reveal())

	answer := a.ask(t, before.TokenGeneration)

	after := a.view(t)
	require.Equal(t, contract.RefreshRenewed, answer.Outcome)
	require.Equal(t, before.TokenGeneration+1, answer.Generation)
	require.Equal(t, answer.Generation, after.TokenGeneration)
	require.NotEqual(t, a.access, after.APIKey.Reveal())
	require.WithinDuration(t, time.Now().Add(time.Hour), after.TokenExpiresAt, time.Minute)
	require.WithinDuration(t, after.TokenExpiresAt, answer.ExpiresAt, time.Second)
	require.Equal(t, contract.ExpiredRetry{Retries: 1, BaseDelayMs: 2000}, answer.Retry)
	call := a.provider.TokenCalls()[0]
	require.Equal(t, "omni", call.ClientID)
	require.True(t, call.InHeader)
	require.Equal(t, "models offline", call.Scope)

	again := a.ask(t, after.TokenGeneration)
	require.Equal(t, contract.RefreshRenewed, again.Outcome, "with the refresh token that the first one brought")
	require.Equal(t, after.TokenGeneration+1, again.Generation)
}

func TestWhoHasSeenOlderTokensIsGivenWhatIsThere(t *testing.T) {
	a := newAccount(t, "")
	seen := a.view(t).TokenGeneration
	first := a.ask(t, seen)

	second := a.ask(t, seen)

	require.Equal(t, first.Generation, second.Generation)
	require.Equal(t, contract.RefreshRenewed, second.Outcome)
	require.Len(t, a.provider.TokenCalls(), 1, "the endpoint is asked once")
	require.Equal(t, first.Generation+1, a.ask(t, 0).Generation, "who has seen none asks in any case")
}

func TestAProviderThatKeepsItsRefreshTokenIsAskedWithItAgain(t *testing.T) {
	a := newAccount(t, "")
	a.provider.OnToken(fakeprovider.TokenStep{Keep: true, ExpiresIn: -1})
	for range 3 {
		require.Equal(t, contract.RefreshRenewed, a.ask(t, 0).Outcome)
		require.True(t, a.view(t).TokenExpiresAt.IsZero(), "when it ends is not known")
	}
	for _, call := range a.provider.TokenCalls() {
		require.Equal(t, a.refresh, call.Refresh)
	}
}

func TestTwoRefreshesAtOnceLoseNoTokens(t *testing.T) {
	a := newAccount(t, "")
	seen := a.view(t).TokenGeneration
	answers := make(chan contract.Refreshed, 8)
	var both sync.WaitGroup
	for range cap(answers) {
		both.Go(func() {
			answer, err := activities.NewCredentials(a.store).RefreshCredentials(t.Context(), contract.Refresh{Entity: worker, Seen: seen})
			if err == nil {
				answers <- answer
			}
		})
	}
	both.Wait()
	close(answers)

	renewed := 0
	for answer := range answers {
		// One that is refused before the winner has stored its tokens may say so.
		if answer.Outcome == contract.RefreshRenewed {
			require.Equal(t, seen+1, answer.Generation)
			renewed++
		}
	}
	require.NotZero(t, renewed)
	require.Equal(t, contract.RefreshRenewed, a.ask(t, seen+1).Outcome, "the refresh token that was stored is good")
}

func TestAClientIsAskedForInTheFormWhereTheHeaderIsRefusedAndOnlyThen(t *testing.T) {
	a := newAccount(t, "")
	a.provider.Client("omni", "client-secret", true)

	require.Equal(t, contract.RefreshRenewed, a.ask(t, 0).Outcome)
	require.Equal(t, contract.RefreshRenewed, a.ask(t, 0).Outcome)

	var ways []bool
	for _, call := range a.provider.TokenCalls() {
		ways = append(ways, call.InHeader)
	}
	require.Equal(t, []bool{true, false, false}, ways, "what was learned is kept")
}

func TestEachRefusalSaysWhatItIsAndNothingOfTheTokens(t *testing.T) {
	a := newAccount(t, "")
	asJSON := map[string]string{"Content-Type": "application/json"}
	quoting := `{"error":"` + a.refresh + `","error_description":"` + a.refresh + `"}`
	for _, c := range []struct {
		step    fakeprovider.TokenStep
		outcome contract.RefreshOutcome
		reason  string
	}{
		{fakeprovider.TokenStep{Error: "invalid_grant"}, contract.RefreshFailed, "invalid_grant"},
		{fakeprovider.TokenStep{Error: "invalid_client", Status: 401}, contract.RefreshUntried, "the token endpoint refused the provider's client: invalid_client"},
		{fakeprovider.TokenStep{Error: "unauthorized_client"}, contract.RefreshUntried, "the token endpoint refused the provider's client: unauthorized_client"},
		{fakeprovider.TokenStep{Error: "invalid_scope", Status: 200}, contract.RefreshFailed, "invalid_scope"},
		{fakeprovider.TokenStep{Status: 403, Body: "<html>no</html>"}, contract.RefreshFailed, "the token endpoint refused with 403"},
		{fakeprovider.TokenStep{Status: 400, Body: quoting}, contract.RefreshFailed, "the token endpoint refused with 400"},
		{fakeprovider.TokenStep{Error: "temporarily_unavailable"}, contract.RefreshUntried, "the token endpoint answered temporarily_unavailable"},
		{fakeprovider.TokenStep{Status: 500, Body: quoting}, contract.RefreshUntried, "the token endpoint answered 500"},
		{fakeprovider.TokenStep{Status: 429, Body: "slow down"}, contract.RefreshUntried, "the token endpoint answered 429"},
		{fakeprovider.TokenStep{Status: 404, Body: "nothing here"}, contract.RefreshUntried, "the token endpoint answered 404"},
		{fakeprovider.TokenStep{Status: 307, Headers: map[string]string{"Location": "/token"}}, contract.RefreshUntried, "the token endpoint answered 307"},
		{fakeprovider.TokenStep{Status: 200, Body: "<html>sign in</html>"}, contract.RefreshUntried, "the token endpoint's answer could not be understood"},
		{fakeprovider.TokenStep{Status: 200, Body: `{"token_type":"Bearer"}`}, contract.RefreshUntried, "the token endpoint's answer could not be understood"},
		{fakeprovider.TokenStep{Status: 200, Headers: asJSON, Body: `{"access_token":"a\nb"}`}, contract.RefreshUntried, "the token endpoint gave a token that cannot be sent in a header"},
		{fakeprovider.TokenStep{Status: 200, Headers: asJSON, Body: `{"x":"` + strings.Repeat("x", 65<<10) + `","access_token":"a"}`}, contract.RefreshUntried, "the token endpoint's answer could not be understood"},
	} {
		a.provider.OnToken(c.step)
		before := a.view(t)

		answer := a.ask(t, before.TokenGeneration)

		require.Equal(t, c.outcome, answer.Outcome, c.reason)
		require.Equal(t, c.reason, answer.Reason)
		require.Equal(t, before.TokenGeneration, answer.Generation)
		require.Equal(t, before.APIKey.Reveal(), a.view(t).APIKey.Reveal())
	}
	a.provider.OnToken()
	require.Equal(t, contract.RefreshRenewed, a.ask(t, 0).Outcome, "nothing was used up")
}

// One wrong secret must not end every account of a provider; whoever runs it is told.
func TestAWrongClientSecretIsLoggedAsAnErrorAndBlamesNoAccount(t *testing.T) {
	a := newAccount(t, "")
	a.provider.Client("omni", "another-secret", false)
	var text strings.Builder
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(sdklog.NewStructuredLogger(slog.New(slog.NewTextHandler(&text, nil))))
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivity(a.credentials)

	value, err := env.ExecuteActivity(a.credentials.RefreshCredentials, contract.Refresh{Entity: worker})

	require.NoError(t, err)
	var answer contract.Refreshed
	require.NoError(t, value.Get(&answer))
	require.Equal(t, contract.RefreshUntried, answer.Outcome)
	require.Equal(t, "the token endpoint refused the provider's client: invalid_client", answer.Reason)
	require.Contains(t, text.String(), "level=ERROR")
	require.Contains(t, text.String(), "provider=work")
	require.NotContains(t, text.String(), "client-secret")
	require.NotContains(t, text.String(), "fake-rt-")
	a.provider.Client("omni", "client-secret", false)
	require.Equal(t, contract.RefreshRenewed, a.ask(t, 0).Outcome, "nothing was used up")
}

func TestAnEndpointThatIsAwayOrSilentSaysNothingOfTheCredentials(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	a := newAccount(t, "")
	a.declare(t, "http://"+gone.Addr().String(), "")
	require.Equal(t, "the token endpoint could not be reached", a.ask(t, 0).Reason)

	reset := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer reset.Close()
	a.declare(t, reset.URL, "")
	broken := a.ask(t, 0)
	require.Equal(t, "the connection to the token endpoint broke", broken.Reason)
	require.Equal(t, contract.RefreshUntried, broken.Outcome)

	a.declare(t, a.provider.TokenURL(), "")
	a.provider.OnToken(fakeprovider.TokenStep{Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	silent, err := a.credentials.RefreshCredentials(ctx, contract.Refresh{Entity: worker})
	require.NoError(t, err)
	require.Equal(t, contract.RefreshUntried, silent.Outcome)
	require.Contains(t, silent.Reason, "did not answer")
	require.Len(t, a.provider.TokenCalls(), 1, "a refresh token is not presented twice on a guess")
}

func TestWhatCannotBeRefreshedIsSaidToBeImpossible(t *testing.T) {
	a := newAccount(t, "")
	for connection, reason := range map[models.ConnectionID]string{
		"key-1": "the connection has no refresh token", "nobody": "the connection is not in the catalog",
	} {
		answer, err := a.credentials.RefreshCredentials(t.Context(), contract.Refresh{Entity: contract.Entity{Connection: connection}})
		require.NoError(t, err)
		require.Equal(t, contract.RefreshImpossible, answer.Outcome)
		require.Equal(t, reason, answer.Reason)
	}
	require.Empty(t, a.provider.TokenCalls())
}

func TestARefreshLeavesTheWayTheConnectionsRequestsDo(t *testing.T) {
	bound := newAccount(t, ", localAddress: 127.0.0.3")
	require.Equal(t, contract.RefreshRenewed, bound.ask(t, 0).Outcome)
	require.Equal(t, "127.0.0.3", bound.provider.TokenCalls()[0].From)

	routes := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		routes <- r.RequestURI
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer proxy.Close()
	proxied := newAccount(t, fmt.Sprintf(", proxy: %q", proxy.URL))
	require.Equal(t, contract.RefreshUntried, proxied.ask(t, 0).Outcome)
	require.Equal(t, proxied.provider.TokenURL(), <-routes)
	require.Empty(t, proxied.provider.TokenCalls())
}

// shaky is a store that loses the first saves.
type shaky struct {
	*store.Store
	fail int
}

func (s *shaky) SaveTokens(ctx context.Context, id models.ConnectionID, seen int64, tokens catalog.Tokens) (int64, bool, error) {
	if s.fail--; s.fail >= 0 {
		return 0, false, errors.New("the database is away")
	}
	return s.Store.SaveTokens(ctx, id, seen, tokens)
}

func TestNewTokensOutliveADatabaseThatIsAwayForAMomentAndACallerWhoLeaves(t *testing.T) {
	a := newAccount(t, "")
	ctx, leave := context.WithCancel(t.Context())
	a.credentials = activities.NewCredentials(&leaving{&shaky{a.store, 2}, leave})

	answer, err := a.credentials.RefreshCredentials(ctx, contract.Refresh{Entity: worker})

	require.NoError(t, err)
	require.Equal(t, contract.RefreshRenewed, answer.Outcome)
	require.Equal(t, answer.Generation, a.view(t).TokenGeneration)
}

// memory is a store of one account that is away until a given time.
type memory struct {
	account catalog.Refresh
	back    time.Time
	stored  catalog.Tokens
}

func (m *memory) LoadRefresh(context.Context, models.ConnectionID) (catalog.Refresh, bool, error) {
	return m.account, true, nil
}

func (m *memory) SaveTokens(_ context.Context, _ models.ConnectionID, seen int64, tokens catalog.Tokens) (int64, bool, error) {
	if time.Now().Before(m.back) {
		return 0, false, errors.New("the database is away")
	}
	m.stored = tokens
	return seen + 1, true, nil
}

// A refresh token that was used is worth nothing any more, so what came for it is held until
// the database is back.
func TestNewTokensOutliveADatabaseThatIsAwayForMinutes(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"new","refresh_token":"next"}`)
	}))
	defer endpoint.Close()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{back: time.Now().Add(4 * time.Minute), account: catalog.Refresh{
			Client: &catalog.OAuthView{TokenURL: endpoint.URL, ClientID: "omni"}, RefreshToken: catalog.NewSecret("used"), Generation: 3,
		}}

		answer, err := activities.NewCredentials(m).RefreshCredentials(t.Context(), contract.Refresh{Entity: worker, Seen: 3})

		require.NoError(t, err)
		require.Equal(t, contract.RefreshRenewed, answer.Outcome)
		require.Equal(t, "next", m.stored.RefreshToken.Reveal())
		require.LessOrEqual(t, time.Since(m.back), 3*time.Second, "it is looked for often")
	})
}

// A worker that stops calls its activities off, and the endpoint may have taken the token.
func TestACallerWhoLeavesWhileTheEndpointIsAskedLosesNoTokens(t *testing.T) {
	a := newAccount(t, "")
	a.provider.OnToken(fakeprovider.TokenStep{Times: 1, Hang: true})
	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan contract.Refreshed, 1)
	go func() {
		answer, _ := a.credentials.RefreshCredentials(ctx, contract.Refresh{Entity: worker})
		answers <- answer
	}()
	for again := time.NewTicker(time.Millisecond); len(a.provider.TokenCalls()) == 0; {
		<-again.C
	}
	leave()
	a.provider.Release()

	answer := <-answers

	require.Equal(t, contract.RefreshRenewed, answer.Outcome, answer.Reason)
	require.Equal(t, answer.Generation, a.view(t).TokenGeneration)
}

// leaving calls its caller off just before the tokens are stored.
type leaving struct {
	*shaky
	leave context.CancelFunc
}

func (l *leaving) SaveTokens(ctx context.Context, id models.ConnectionID, seen int64, tokens catalog.Tokens) (int64, bool, error) {
	l.leave()
	return l.shaky.SaveTokens(ctx, id, seen, tokens)
}

func TestACredentialThatIsReplacedWhileItIsRefreshedStaysReplaced(t *testing.T) {
	a := newAccount(t, "")
	other, otherRefresh := a.provider.Grant()
	a.provider.OnToken(fakeprovider.TokenStep{Times: 1, Hang: true})
	answers := make(chan contract.Refreshed, 1)
	go func() {
		answer, _ := a.credentials.RefreshCredentials(t.Context(), contract.Refresh{Entity: worker})
		answers <- answer
	}()
	for again := time.NewTicker(time.Millisecond); len(a.provider.TokenCalls()) == 0; {
		<-again.C
	}
	a.access, a.refresh = other, otherRefresh
	a.declare(t, a.provider.TokenURL(), "")
	a.provider.Release()

	answer := <-answers

	require.NotEqual(t, contract.RefreshFailed, answer.Outcome)
	require.Equal(t, other, a.view(t).APIKey.Reveal())
}

func TestWithoutKeysTheWorkerSaysThatItCannotTry(t *testing.T) {
	path := filepath.Join(t.TempDir(), "omniroute.db")
	ring, err := secrets.ParseKeyRing("k:QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := store.Open(t.Context(), "sqlite:"+path, ring, log)
	require.NoError(t, err)
	defer s.Close() //nolint:errcheck // the file goes with the test
	require.NoError(t, s.Migrate(t.Context()))
	(&account{store: s}).apply(t, `
providers: [{id: work, class: oauth, baseURL: "http://w", oauth: {tokenURL: "http://t", clientId: omni}}]
connections: [{id: work-1, provider: work, credential: {refreshToken: r}}]`)
	blind, err := store.Open(t.Context(), "sqlite:"+path, nil, log)
	require.NoError(t, err)
	defer blind.Close() //nolint:errcheck // the file goes with the test

	_, err = activities.NewCredentials(blind).RefreshCredentials(t.Context(), contract.Refresh{Entity: worker})

	require.ErrorContains(t, err, "no encryption keys are configured")
}
