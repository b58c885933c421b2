package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"

	"omniroute/activities"
	"omniroute/deployments/dev/temporaldev"
	"omniroute/gateway/durable"
	"omniroute/integration/fakeprovider"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/secrets"
	"omniroute/models/store"
	"omniroute/worker"
	"omniroute/workflows/dial"
)

// shortLives is a server that suggests to continue as new after 120 events: a run that hands over
// by its own bounds would leave a history nobody wants to keep.
var shortLives = map[string]any{"limit.historyCount.suggestContinueAsNew": 120}

// stage is the durable side as it runs in production, small: a Temporal server, a database,
// a worker, the gateway's hold on Temporal, and a provider with a token endpoint.
type stage struct {
	server   *temporaldev.Server
	client   client.Client
	store    *store.Store
	gate     *gate
	worker   *worker.Worker
	durable  *durable.Durable
	provider *fakeprovider.Provider
	named    atomic.Int64
}

func newStage(ctx context.Context, dir string, log *logrus.Logger, dynamic map[string]any) (s *stage, err error) {
	s = &stage{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.server, err = temporaldev.Start(ctx, temporaldev.Options{
		Address: "127.0.0.1:0", DatabaseFile: filepath.Join(dir, "temporal.db"),
		Namespace: dial.DefaultNamespace, Retention: dial.Retention, Log: log,
		Dynamic: dynamic,
	})
	if err != nil {
		return s, err
	}
	if s.provider, err = fakeprovider.Start(fakeprovider.Options{}); err != nil {
		return s, err
	}
	text, err := secrets.GenerateKeyRing()
	if err != nil {
		return s, err
	}
	ring, err := secrets.ParseKeyRing(text)
	if err != nil {
		return s, err
	}
	s.store, err = store.Open(ctx, "sqlite:"+filepath.Join(dir, "omniroute.db"), ring, log)
	if err != nil {
		return s, err
	}
	if err := s.store.Migrate(ctx); err != nil {
		return s, err
	}
	s.client, err = dial.Lazy(dial.Config{Address: s.server.Address(), Role: "recorder"}, log)
	if err != nil {
		return s, err
	}
	s.gate = &gate{Store: s.store}
	s.worker = worker.New(worker.Options{
		Client: s.client, States: activities.States{Store: s.gate}, Credentials: activities.NewCredentials(s.store), Log: log,
	})
	s.worker.Start()
	s.durable = durable.New(durable.Options{
		Client: s.client, Log: log,
		ProviderOf: func(models.ConnectionID) (models.ProviderID, bool) { return openai, true },
	})
	return s, s.await(ctx, func(context.Context) (bool, error) { return s.worker.Running(), nil })
}

func (s *stage) close() error {
	var errs []error
	if s.worker != nil {
		s.worker.Stop(context.Background())
	}
	if s.client != nil {
		s.client.Close()
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.server != nil {
		errs = append(errs, s.server.Stop())
	}
	if s.provider != nil {
		s.provider.Stop()
	}
	return errors.Join(errs...)
}

// connection names a connection that no scene has used.
func (s *stage) connection() models.ConnectionID {
	return models.ConnectionID(fmt.Sprintf("openai-%d", s.named.Add(1)))
}

// account makes a connection with tokens that no scene has used, at the stage's token endpoint.
func (s *stage) account(ctx context.Context) (models.ConnectionID, error) {
	id := s.connection()
	access, refresh := s.provider.Grant()
	doc, err := catalog.ParseDocument(strings.NewReader(fmt.Sprintf(`
providers: [{id: %s, class: oauth, baseURL: %q, oauth: {tokenURL: %q, clientId: recorder}}]
connections: [{id: %s, provider: %s, credential: {accessToken: %q, refreshToken: %q}}]
settings: {resilience: {expiredRetry: {maxRetries: %d, baseDelayMs: %d}}}`,
		openai, s.provider.URL(), s.provider.TokenURL(), id, openai, access, refresh, policy.Expired.Retries, policy.Expired.Base.Milliseconds(),
	)), "stage.yaml", func(string) (string, bool) { return "", false })
	if err != nil {
		return id, err
	}
	_, err = s.store.Apply(ctx, doc, store.ApplyOptions{Actor: "recorder"})
	return id, err
}

// anotherProvider names a provider that no scene has used.
func (s *stage) anotherProvider() models.ProviderID {
	return models.ProviderID(fmt.Sprintf("provider-%d", s.named.Add(1)))
}

// run is one execution of a workflow.
type run struct{ workflow, id string }

// byHand sends an update as the Web UI does: a text of JSON, and no id of its own.
func (s *stage) byHand(ctx context.Context, workflow, update, text string) (answer map[string]any, err error) {
	handle, err := s.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflow, UpdateName: update, Args: []any{json.RawMessage(text)}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	return answer, err
}

// latest is the newest run of a workflow.
func (s *stage) latest(ctx context.Context, workflow string) (run, error) {
	d, err := s.client.DescribeWorkflow(ctx, workflow, "")
	if err != nil {
		return run{}, err
	}
	return run{workflow, d.WorkflowExecution.RunID}, nil
}

// ended waits until a run has ended and says how.
func (s *stage) ended(ctx context.Context, r run) (enumspb.WorkflowExecutionStatus, error) {
	var status enumspb.WorkflowExecutionStatus
	err := s.await(ctx, func(ctx context.Context) (bool, error) {
		d, err := s.client.DescribeWorkflow(ctx, r.workflow, r.id)
		if err != nil {
			return false, err
		}
		status = d.Status
		return status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
	})
	return status, err
}

// connectionRow waits until a connection's row satisfies the condition.
func (s *stage) connectionRow(ctx context.Context, id models.ConnectionID, want func(catalog.ConnectionState) bool) error {
	return s.await(ctx, func(ctx context.Context) (bool, error) {
		row, found, err := s.store.LoadConnectionState(ctx, id)
		return found && want(row), err
	})
}

// await looks every 10 ms until the condition holds.
func (s *stage) await(ctx context.Context, condition func(context.Context) (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := condition(ctx); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Names of the machine that recorded are of no use to a reader.
var (
	identity = regexp.MustCompile(`"identity": "[^"]*"`)
	sticky   = regexp.MustCompile(`"name": "[^"]*:[0-9a-f-]{36}"`)
)

// history is a run's history as the replayer reads it.
func (s *stage) history(ctx context.Context, r run) ([]byte, error) {
	var history historypb.History
	events := s.client.GetWorkflowHistory(ctx, r.workflow, r.id, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return nil, err
		}
		history.Events = append(history.Events, event)
	}
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(&history)
	if err != nil {
		return nil, err
	}
	text = identity.ReplaceAll(text, []byte(`"identity": "recorder"`))
	text = sticky.ReplaceAll(text, []byte(`"name": "recorder:sticky"`))
	return append(text, '\n'), nil
}

// gate is a database that can be taken away.
type gate struct {
	activities.Store
	away atomic.Bool
}

var errAway = errors.New("the database is away")

// PublishConnection implements activities.Store.
func (g *gate) PublishConnection(ctx context.Context, row catalog.ConnectionState) (catalog.ConnectionState, error) {
	if g.away.Load() {
		return catalog.ConnectionState{}, errAway
	}
	return g.Store.PublishConnection(ctx, row)
}
