package dial

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	sdklog "go.temporal.io/sdk/log"
)

// variables is a process environment of a test's making.
type variables map[string]string

func (v variables) LookupEnv(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

func (v variables) Environ() []string {
	var all []string
	for name, value := range v {
		all = append(all, name+"="+value)
	}
	return all
}

func TestAFlagGoesBeforeOurVariableBeforeTemporalsBeforeTheDefault(t *testing.T) {
	options, err := Options(Config{Role: "gateway", Env: variables{}}, logrus.New())
	require.NoError(t, err)
	require.Equal(t, DefaultAddress, options.HostPort)
	require.Equal(t, DefaultNamespace, options.Namespace)
	require.Regexp(t, `^omniroute-gateway@.+`, options.Identity)

	env := variables{"TEMPORAL_ADDRESS": "temporals:7233", "TEMPORAL_NAMESPACE": "temporals"}
	options, err = Options(Config{Env: env}, logrus.New())
	require.NoError(t, err)
	require.Equal(t, "temporals:7233", options.HostPort)

	env["OMNIROUTE_TEMPORAL_ADDRESS"] = "ours:7233"
	options, err = Options(Config{Env: env}, logrus.New())
	require.NoError(t, err)
	require.Equal(t, "ours:7233", options.HostPort)
	require.Equal(t, "temporals", options.Namespace)

	options, err = Options(Config{Address: "flag:7233", Namespace: "flag", Env: env}, logrus.New())
	require.NoError(t, err)
	require.Equal(t, "flag:7233", options.HostPort)
	require.Equal(t, "flag", options.Namespace)
}

func TestTheRestOfTemporalsEnvironmentWorksWithOurPrefixToo(t *testing.T) {
	options, err := Options(Config{Env: variables{
		"OMNIROUTE_TEMPORAL_TLS":                "true",
		"OMNIROUTE_TEMPORAL_TLS_SERVER_NAME":    "temporal.internal",
		"OMNIROUTE_TEMPORAL_GRPC_META_X_TENANT": "ours",
		"TEMPORAL_GRPC_META_X_REGION":           "eu",
	}}, logrus.New())
	require.NoError(t, err)
	require.Equal(t, "temporal.internal", options.ConnectionOptions.TLS.ServerName)
	headers, err := options.HeadersProvider.GetHeaders(t.Context())
	require.NoError(t, err)
	require.Equal(t, "ours", headers["x-tenant"])
	require.Equal(t, "eu", headers["x-region"])
}

func TestAMissingProfileIsAnErrorAndNotADefault(t *testing.T) {
	_, err := Options(Config{Env: variables{"OMNIROUTE_TEMPORAL_PROFILE": "nowhere"}}, logrus.New())
	require.ErrorContains(t, err, "temporal client configuration")
}

func TestALazyClientIsMadeWithoutAServer(t *testing.T) {
	c, err := Lazy(Config{Address: "127.0.0.1:1", Role: "gateway", Env: variables{}}, logrus.New())
	require.NoError(t, err)
	c.Close()
}

func TestTheSDKsWordsReachOurLogAtALevelLower(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.JSONFormatter{DisableTimestamp: true})
	l := sdklog.With(NewLogger(log), "WorkflowID", "connection/a")
	l.Info("chatter")
	require.Empty(t, out.String(), "its info is our debug")
	l.Error("broken", "error", errors.New("boom"), "odd")
	require.JSONEq(t, `{"component":"temporal","WorkflowID":"connection/a","level":"error","msg":"broken","error":"boom","odd":"(missing)"}`, out.String())
}

func TestTheSDKsMetricsKeepOnlyBoundedLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	for range 2 { // two clients of one process
		h := newMetricsHandler(registry).WithTags(map[string]string{"operation": "SignalWithStart", "workflow_id": "unbounded"})
		h.Counter("temporal_request").Inc(2)
		h.Gauge("temporal_num_pollers").Update(3)
		h.Timer("temporal_request_latency").Record(20 * time.Millisecond)
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 3)
	for _, f := range families {
		for _, label := range f.GetMetric()[0].GetLabel() {
			require.Contains(t, labels, label.GetName())
		}
	}
	require.Equal(t, "temporal_request_latency_seconds", families[1].GetName())
	require.Equal(t, uint64(2), families[1].GetMetric()[0].GetHistogram().GetSampleCount())
	require.InDelta(t, 4, families[2].GetMetric()[0].GetCounter().GetValue(), 0)
}
