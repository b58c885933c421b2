package durable_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"omniroute/gateway/durable"
	"omniroute/models"
	"omniroute/workflows/contract"
)

// busy is a Temporal whose workflow hands over again and again: it gives requests back.
type busy struct {
	client.Client
	gives []error // the next ones; then every request is carried out
	asked []string
}

type operation struct {
	client.WithStartWorkflowOperation
}

func (*busy) NewWithStartWorkflowOperation(client.StartWorkflowOptions, any, ...any) client.WithStartWorkflowOperation {
	return &operation{}
}

func (b *busy) UpdateWithStartWorkflow(_ context.Context, o client.UpdateWithStartWorkflowOptions) (client.WorkflowUpdateHandle, error) {
	b.asked = append(b.asked, o.UpdateOptions.UpdateID)
	if len(b.gives) > 0 {
		given := b.gives[0]
		if len(b.gives) > 1 || !errors.Is(given, errAlways) {
			b.gives = b.gives[1:]
		}
		return nil, given
	}
	return published{}, nil
}

type published struct{ client.WorkflowUpdateHandle }

func (published) Get(_ context.Context, answer any) error {
	*answer.(*contract.Answer) = contract.Answer{Era: 1, Published: true}
	return nil
}

var (
	errAlways   = errors.New("always")
	errNotReady = serviceerror.NewWorkflowNotReady("Unable to perform workflow execution update due to unexpected workflow task failure.")
	errEnded    = serviceerror.NewNotFound("workflow update was aborted by closing workflow")
)

func through(b *busy) *durable.Durable {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return durable.New(durable.Options{Client: b, Log: log, ProviderOf: func(models.ConnectionID) (models.ProviderID, bool) { return "openai", true }})
}

// A signal that arrives while a run hands over makes the server give back the updates that came
// along, which the SDK does not repeat: an operator's reset of a connection that is being hit
// hard would fail now and then.
func TestARequestThatMeetsARunAtItsEndIsSentAgainUnderTheSameId(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{gives: []error{errNotReady, errEnded, errNotReady}}
		begun := time.Now()
		require.NoError(t, through(b).Reset(t.Context(), "openai-1"))
		require.Len(t, b.asked, 4)
		for _, id := range b.asked {
			require.Equal(t, b.asked[0], id)
		}
		require.Less(t, time.Since(begun), 300*time.Millisecond)
	})
}

func TestARequestIsSentAgainForAsLongAsItHasTimeAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &busy{gives: []error{errors.Join(errAlways, errNotReady)}}
		begun := time.Now()
		var coded *models.Error
		require.ErrorAs(t, through(b).Reset(t.Context(), "openai-1"), &coded)
		require.Equal(t, models.CodeDurableUnavailable, coded.Code)
		require.Equal(t, 8*time.Second, time.Since(begun))
		require.Greater(t, len(b.asked), 10)
		require.Less(t, len(b.asked), 40, "and not in a busy loop")
	})
}

func TestARequestThatWasRefusedIsNotSentAgain(t *testing.T) {
	for _, refusal := range []error{
		temporal.NewNonRetryableApplicationError("no", contract.ErrorInvalidRequest, nil),
		serviceerror.NewInvalidArgument("no"),
		serviceerror.NewPermissionDenied("no", ""),
	} {
		b := &busy{gives: []error{refusal}}
		require.Error(t, through(b).Reset(t.Context(), "openai-1"))
		require.Len(t, b.asked, 1)
	}
}
