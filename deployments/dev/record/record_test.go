package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	querypb "go.temporal.io/api/query/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/sync/errgroup"

	"omniroute/activities"
	"omniroute/integration/fakeprovider"
	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
	"omniroute/worker"
	"omniroute/workflows"
	"omniroute/workflows/contract"
	"omniroute/workflows/dial"
)

func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

func newTestStage(t *testing.T) (context.Context, *stage) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s, err := newStage(ctx, t.TempDir(), quiet(), shortLives)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.close()) })
	return ctx, s
}

// Every scene runs on a real server with a real database, ends well, and its fresh history
// replays: a scene that the recorder would refuse to keep is noticed here.
func TestEverySceneEndsWellAndReplays(t *testing.T) {
	ctx, s := newTestStage(t)
	for _, scene := range scenes {
		r, err := scene.play(ctx, s)
		require.NoError(t, err, scene.name)
		status, err := s.ended(ctx, r)
		require.NoError(t, err, scene.name)
		want := enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED
		if scene.name == "connection-hands-over" {
			want = enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW
		}
		require.Equal(t, want, status, scene.name)
		history, err := s.history(ctx, r)
		require.NoError(t, err, scene.name)
		require.NoError(t, replay(t, history), scene.name)
	}
}

func replay(t *testing.T, history []byte) error {
	events, err := client.HistoryFromJSON(bytes.NewReader(history), client.HistoryJSONOptions{})
	require.NoError(t, err)
	replayer := sdkworker.NewWorkflowReplayer()
	replayer.RegisterWorkflowWithOptions(workflows.Connection, workflow.RegisterOptions{Name: contract.WorkflowConnection})
	replayer.RegisterWorkflowWithOptions(workflows.Provider, workflow.RegisterOptions{Name: contract.WorkflowProvider})
	return replayer.ReplayWorkflowHistory(nil, events)
}

func TestACoolingConnectionIsListedWithWhatAnOperatorWantsToKnow(t *testing.T) {
	ctx, s := newTestStage(t)
	begun := time.Now()
	change, r, err := begin(ctx, s, resilience.Failure{Hint: 5 * time.Second})
	require.NoError(t, err)

	query := `WorkflowType = "Connection" AND OmniProvider = "openai" AND OmniConnection = "` + string(change.Connection) +
		`" AND OmniPhase = "cooling" AND OmniReason = "rate_limit_exceeded" AND OmniUntil > "` + time.Now().UTC().Format(time.RFC3339) + `"`
	require.NoError(t, s.await(ctx, func(ctx context.Context) (bool, error) {
		listed, err := s.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		return len(listed.GetExecutions()) == 1, err
	}))
	require.Less(t, time.Since(begun), 2*time.Second)

	described, err := s.client.DescribeWorkflow(ctx, r.workflow, r.id)
	require.NoError(t, err)
	summary, err := described.GetStaticSummary()
	require.NoError(t, err)
	require.Equal(t, "Health of connection "+string(change.Connection)+" at openai", summary)
	require.Contains(t, s.currentDetails(ctx, t, r), "cooling until "+change.Health.Cooldown.Until.Format("15:04:05")+" UTC, 429 rate_limit_exceeded from openai, level 1")

	status, err := s.ended(ctx, r)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, status)
	require.InDelta(t, 5, time.Since(begun).Seconds(), 1)
}

// currentDetails asks as the Web UI does.
func (s *stage) currentDetails(ctx context.Context, t *testing.T, r run) string {
	answer, err := s.client.WorkflowService().QueryWorkflow(ctx, &workflowservice.QueryWorkflowRequest{
		Namespace: dial.DefaultNamespace,
		Execution: &commonpb.WorkflowExecution{WorkflowId: r.workflow, RunId: r.id},
		Query:     &querypb.WorkflowQuery{QueryType: "__temporal_workflow_metadata"},
	})
	require.NoError(t, err)
	var metadata sdkpb.WorkflowMetadata
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(answer.GetQueryResult(), &metadata))
	return metadata.GetCurrentDetails()
}

func TestLockedModelsAreFoundByTheirNameAndEnabledByHand(t *testing.T) {
	ctx, s := newTestStage(t)
	change := locking(s.connection(), resilience.Connection{}, models.LockModel, "gpt-x", time.Minute)
	change = locking(change.Connection, change.Health, models.LockFamily, "spark", time.Hour)
	_, r, err := beginWith(ctx, s, change)
	require.NoError(t, err)
	query := `WorkflowType = "Connection" AND OmniProvider = "openai" AND OmniPhase = "locked" AND OmniModel = "spark" AND OmniModel IN ("gpt-x", "gpt-y")` +
		` AND ExecutionStatus = "Running"`
	require.NoError(t, s.await(ctx, func(ctx context.Context) (bool, error) {
		listed, err := s.client.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: query})
		return len(listed.GetExecutions()) == 1, err
	}))
	require.Contains(t, s.currentDetails(ctx, t, r), "ready; 2 models locked: gpt-x until")

	answer, err := s.byHand(ctx, r.workflow, contract.UpdateEnableModel, `{"models": ["gpt-x", "spark"]}`)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"era": 0., "published": true}, answer)
	row, _, err := s.store.LoadConnectionState(ctx, change.Connection)
	require.NoError(t, err)
	require.True(t, row.State.Settled())
	status, err := s.ended(ctx, r)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, status)
}

func TestARequestByHandThatMakesNoSenseSaysWhatIsValid(t *testing.T) {
	ctx, s := newTestStage(t)
	_, r, err := begin(ctx, s, resilience.Failure{Hint: time.Minute})
	require.NoError(t, err)
	for text, want := range map[string]string{
		`{}`:                       `name models, as in {"models": ["gpt-x"]}`,
		`{"models": "gpt-x"}`:      "cannot unmarshal",
		`{"keys":[{"scope":"x"}]}`: `keys[0].scope is "x", not one of exact, model, family`,
		`{"models":["a"],"requestedAt":"2020-01-01T00:00:00Z"}`: "old and was not carried out",
	} {
		_, err := s.byHand(ctx, r.workflow, contract.UpdateEnableModel, text)
		require.ErrorContains(t, err, want, text)
	}
}

// The Web UI's field for data may be left empty.
func TestARequestByHandWithoutDataWorksWhereNothingNeedsToBeSaid(t *testing.T) {
	ctx, s := newTestStage(t)
	_, r, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseBanned})
	require.NoError(t, err)
	handle, err := s.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: r.workflow, UpdateName: contract.UpdateReset, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	require.NoError(t, err)
	var answer contract.Answer
	require.NoError(t, handle.Get(ctx, &answer))
	require.Equal(t, contract.Answer{Era: 1, Published: true}, answer)
}

func TestARefreshThatNoWorkerTakesIsGivenUpInTimeAndHoldsNothingUp(t *testing.T) {
	ctx, s := newTestStage(t)
	s.worker.Stop(ctx)
	s.worker = worker.New(worker.Options{Client: s.client, States: activities.States{Store: s.store}, Log: quiet()})
	s.worker.Start()
	_, r, err := begin(ctx, s, resilience.Failure{Hint: 2 * time.Minute})
	require.NoError(t, err)
	begun := time.Now()
	var asking errgroup.Group
	asking.Go(func() error {
		_, err := s.durable.Renew(ctx, models.ConnectionID(strings.TrimPrefix(r.workflow, "connection/")), 0)
		return err
	})
	require.NoError(t, s.phase(ctx, r, "cooling until"))
	require.NoError(t, s.durable.ClearCooldown(ctx, models.ConnectionID(strings.TrimPrefix(r.workflow, "connection/"))))
	require.Less(t, time.Since(begun), 5*time.Second, "other requests are answered meanwhile")
	var coded *models.Error
	require.ErrorAs(t, asking.Wait(), &coded)
	require.Equal(t, models.CodeDurableUnavailable, coded.Code)
	require.Contains(t, coded.Message, "no worker took it")
	require.InDelta(t, 10, time.Since(begun).Seconds(), 3)
	_, err = s.ended(ctx, r)
	require.NoError(t, err)
}

// A worker that comes up late must not carry out what its sender was told did not arrive.
func TestAResetThatNoWorkerTookIsNotCarriedOutMinutesLater(t *testing.T) {
	ctx, s := newTestStage(t)
	banned, r, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseBanned})
	require.NoError(t, err)
	late := fmt.Sprintf(`{"requestId":"late","requestedAt":%q}`, time.Now().Add(-61*time.Second).Format(time.RFC3339))
	_, err = s.byHand(ctx, r.workflow, contract.UpdateReset, late)
	require.ErrorContains(t, err, "was not carried out")
	row, _, err := s.store.LoadConnectionState(ctx, banned.Connection)
	require.NoError(t, err)
	require.Equal(t, models.PhaseBanned, row.State.Cooldown.Terminal)
}

func TestAResetReachesTheRowBeforeItIsAnswered(t *testing.T) {
	ctx, s := newTestStage(t)
	banned, _, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseBanned})
	require.NoError(t, err)
	require.NoError(t, s.durable.Reset(ctx, banned.Connection))
	row, found, err := s.store.LoadConnectionState(ctx, banned.Connection)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, int64(1), row.Era)
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(time.Now()).Phase)
}

func TestNewsOfAnEraStartsNoWorkflow(t *testing.T) {
	ctx, s := newTestStage(t)
	require.NoError(t, s.durable.Send(ctx, contract.Change{
		Kind: contract.KindConnection, Connection: "quiet", Provider: openai, Health: resilience.Connection{}.Enter(3, time.Now()), At: time.Now(),
	}))
	_, err := s.latest(ctx, contract.ConnectionWorkflowID("quiet"))
	require.ErrorContains(t, err, "not found")
}

func TestNewCredentialsWrittenToTheRowFreeARunningWorkflow(t *testing.T) {
	ctx, s := newTestStage(t)
	expired, r, err := begin(ctx, s, resilience.Failure{Terminal: models.PhaseExpired})
	require.NoError(t, err)
	_, err = s.store.PublishConnection(ctx, catalog.ConnectionState{
		Connection: expired.Connection, Provider: openai, Stamp: models.Stamp{Era: 1}, State: resilience.Connection{}.Enter(1, time.Now()),
	})
	require.NoError(t, err)
	again := failing(expired.Connection, resilience.Connection{}, resilience.Failure{Hint: time.Minute}) // of the old era
	require.NoError(t, s.durable.Send(ctx, again))
	status, err := s.ended(ctx, r)
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, status)
	row, _, err := s.store.LoadConnectionState(ctx, expired.Connection)
	require.NoError(t, err)
	require.Equal(t, int64(1), row.Era)
	require.Equal(t, models.PhaseReady, row.State.Cooldown.Standing(time.Now()).Phase)
}

// Whoever rolls out a new version stops workers in the middle of anything.
func TestAWorkerThatStopsWhileTokensAreFetchedStoresThemAndAnIdleOneStopsAtOnce(t *testing.T) {
	ctx, s := newTestStage(t)
	id, err := s.account(ctx)
	require.NoError(t, err)
	before, _, err := s.store.LoadRefresh(ctx, id)
	require.NoError(t, err)
	s.provider.OnToken(fakeprovider.TokenStep{Times: 1, Hang: true})
	asking, leave := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() {
		_, err := s.durable.Renew(asking, id, before.Generation)
		asked <- err
	}()
	require.NoError(t, s.await(ctx, func(context.Context) (bool, error) { return len(s.provider.TokenCalls()) == 1, nil }))
	time.AfterFunc(4*time.Second, s.provider.Release) // longer than what writes a row is given
	begun := time.Now()
	s.worker.Stop(ctx)
	require.GreaterOrEqual(t, time.Since(begun), 4*time.Second)
	require.Less(t, time.Since(begun), 8*time.Second)
	leave()
	<-asked
	after, _, err := s.store.LoadRefresh(ctx, id)
	require.NoError(t, err)
	require.Equal(t, before.Generation+1, after.Generation)

	s.worker = worker.New(worker.Options{
		Client: s.client, States: activities.States{Store: s.gate}, Credentials: activities.NewCredentials(s.store), Log: quiet(),
	})
	s.worker.Start()
	require.NoError(t, s.await(ctx, func(context.Context) (bool, error) { return s.worker.Running(), nil }))
	begun = time.Now()
	s.worker.Stop(ctx)
	require.Less(t, time.Since(begun), 2*time.Second)
}

func TestAServerThatIsGoneIsAnErrorInTimeAndNotAHang(t *testing.T) {
	ctx, s := newTestStage(t)
	s.worker.Stop(ctx)
	require.NoError(t, s.server.Stop())
	begun := time.Now()
	sending, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	require.Error(t, s.durable.Send(sending, failing("a", resilience.Connection{}, resilience.Failure{})))
	require.Less(t, time.Since(begun), 3*time.Second)

	resetting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var coded *models.Error
	require.ErrorAs(t, s.durable.Reset(resetting, "a"), &coded)
	require.Equal(t, models.CodeDurableUnavailable, coded.Code)
	s.server, s.worker = nil, nil
}

func TestHistoriesNameNoMachine(t *testing.T) {
	ctx, s := newTestStage(t)
	r, err := coolsAndEnds(ctx, s)
	require.NoError(t, err)
	history, err := s.history(ctx, r)
	require.NoError(t, err)
	require.True(t, json.Valid(history))
	require.NotContains(t, string(history), "@")
	require.Equal(t, strings.Count(string(history), `"identity"`), strings.Count(string(history), `"identity": "recorder"`))
}
