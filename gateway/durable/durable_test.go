package durable_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omniroute/gateway/durable"
	"omniroute/models"
	"omniroute/models/resilience"
	"omniroute/workflows/contract"
	"omniroute/workflows/dial"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a real server does with these calls is proved beside the embedded server; here is what
// happens when there is none, or one that says nothing.

func at(t *testing.T, address string) *durable.Durable {
	log := logrus.New()
	log.SetOutput(io.Discard)
	c, err := dial.Lazy(dial.Config{Address: address, Role: "gateway"}, log)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return durable.New(durable.Options{Client: c, Log: log, ProviderOf: func(id models.ConnectionID) (models.ProviderID, bool) {
		return "openai", id == "openai-1"
	}})
}

// frozen is a server that takes connections and says nothing.
func frozen(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String() // the kernel takes the connections
}

func change() contract.Change {
	state, _ := resilience.Cooldown{}.Fail(resilience.Failure{At: time.Now(), Reason: models.ReasonRateLimited, Status: 429},
		resilience.Settings{}.CooldownPolicy(models.ClassAPIKey))
	return contract.Change{Kind: contract.KindConnection, Connection: "openai-1", Provider: "openai", Health: resilience.Connection{Cooldown: state}, At: time.Now()}
}

func TestASendToAFrozenServerEndsWithItsContext(t *testing.T) {
	d := at(t, frozen(t))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	require.Error(t, d.Send(ctx, change()))
	require.Less(t, time.Since(begun), 2*time.Second)
}

func TestARequestWithoutAServerIsACodedErrorThatAnOperatorCanRead(t *testing.T) {
	d := at(t, frozen(t))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	for name, request := range map[string]func() error{
		"reset":    func() error { return d.Reset(ctx, "openai-1") },
		"provider": func() error { return d.ResetProvider(ctx, "openai") },
		"enable": func() error {
			return d.EnableModels(ctx, "openai-1", resilience.KeysOf("gpt-x", ""))
		},
		"clear": func() error { return d.ClearCooldown(ctx, "openai-1") },
		"renew": func() error {
			_, err := d.Renew(ctx, "openai-1", 3)
			return err
		},
	} {
		var coded *models.Error
		require.ErrorAs(t, request(), &coded, name)
		require.Equal(t, models.CodeDurableUnavailable, coded.Code, name)
		require.Equal(t, 503, coded.Status(), name)
	}
}

func TestARequestAboutAnUnknownConnectionAsksNobody(t *testing.T) {
	d := at(t, frozen(t))
	for _, request := range []func() error{
		func() error { return d.Reset(t.Context(), "openai-9") },
		func() error { return d.EnableModels(t.Context(), "openai-9", resilience.KeysOf("gpt-x", "")) },
		func() error { _, err := d.Renew(t.Context(), "openai-9", 0); return err },
	} {
		var coded *models.Error
		require.ErrorAs(t, request(), &coded)
		require.Equal(t, models.CodeNotFound, coded.Code)
		require.Contains(t, coded.Message, "openai-9")
	}
}

func TestAChangeOfNoKnownKindIsRefused(t *testing.T) {
	require.ErrorContains(t, at(t, frozen(t)).Send(t.Context(), contract.Change{Kind: "lease"}), "unknown kind")
}
