package harness

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
)

// Temporal is a real Temporal server in a process of its own.
type Temporal struct {
	Address string
	dataDir string
	process *Process
}

// Namespace is where the tests' workflows live.
const Namespace = "default"

// StartTemporal starts a server with empty data and returns once it serves.
func StartTemporal(t testing.TB) *Temporal {
	t.Helper()
	s := &Temporal{Address: FreeAddress(t), dataDir: t.TempDir()}
	s.Start(t)
	return s
}

// Start starts the server again, with the data it had.
func (s *Temporal) Start(t testing.TB) {
	t.Helper()
	s.process = Spawn(t, "temporal", nil, DevBinary(t), "temporal", "--temporal-address", s.Address, "--temporal-ui=", "--data-dir", s.dataDir)
	s.process.Says(t, 60*time.Second, "temporal "+s.Address)
}

// Freeze stops the server without closing a connection: calls hang.
func (s *Temporal) Freeze(t testing.TB) { s.process.Signal(t, syscall.SIGSTOP) }

// Thaw ends a Freeze.
func (s *Temporal) Thaw(t testing.TB) { s.process.Signal(t, syscall.SIGCONT) }

// Kill ends the server at once: calls are refused.
func (s *Temporal) Kill() { s.process.Kill() }

// Client is a client of the server for looking at workflows.
func (s *Temporal) Client(t testing.TB) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{HostPort: s.Address, Namespace: Namespace, Logger: silent{}})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// Workflow is what the list and the detail page of the Web UI show of one workflow.
type Workflow struct {
	ID, Type, Status string
	Attributes       map[string]string
	Summary          string // static
	Details          string // current; needs a running workflow and worker
}

// Workflows are those of the namespace that match a visibility query.
func (s *Temporal) Workflows(t testing.TB, c client.Client, query string) []Workflow {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	list, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: Namespace, Query: query})
	if err != nil {
		return nil // the attribute is not known yet; callers poll
	}
	var found []Workflow
	for _, e := range list.GetExecutions() {
		w := Workflow{ID: e.GetExecution().GetWorkflowId(), Type: e.GetType().GetName(), Status: e.GetStatus().String(), Attributes: map[string]string{}}
		for name, payload := range e.GetSearchAttributes().GetIndexedFields() {
			w.Attributes[name] = text(payload)
		}
		found = append(found, w)
	}
	return found
}

// Describe adds the summary and, for a running workflow, the current details.
func (s *Temporal) Describe(t testing.TB, c client.Client, id string) (Workflow, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	described, err := c.DescribeWorkflow(ctx, id, "")
	if err != nil {
		return Workflow{}, err
	}
	w := Workflow{ID: id, Status: described.Status.String(), Attributes: map[string]string{}}
	if w.Summary, err = described.GetStaticSummary(); err != nil {
		return w, err
	}
	metadata, err := c.QueryWorkflow(ctx, id, "", "__temporal_workflow_metadata")
	if err != nil {
		return w, err
	}
	var shown sdkpb.WorkflowMetadata
	if err := metadata.Get(&shown); err != nil {
		return w, fmt.Errorf("metadata of %s: %w", id, err)
	}
	w.Details = shown.GetCurrentDetails()
	return w, nil
}

// Histories are the event histories of all workflows, as JSON.
func (s *Temporal) Histories(t testing.TB, c client.Client) map[string]string {
	t.Helper()
	histories := map[string]string{}
	for _, w := range s.Workflows(t, c, "") {
		var all string
		events := c.GetWorkflowHistory(t.Context(), w.ID, "", false, 1)
		for events.HasNext() {
			event, err := events.Next()
			require.NoError(t, err)
			all += event.String()
		}
		histories[w.ID] = all
	}
	return histories
}

func text(p *commonpb.Payload) string {
	var v any
	if err := converter.GetDefaultDataConverter().FromPayload(p, &v); err != nil {
		return ""
	}
	return fmt.Sprint(v)
}

type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}
