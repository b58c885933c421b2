package dial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"omniroute/workflows/contract"
)

// Client is the SDK's client, for those who hand it on without speaking to it.
type Client = client.Client

// Answers says why the cluster's frontend does not answer, or nil.
func Answers(ctx context.Context, c client.Client) error {
	_, err := c.CheckHealth(ctx, &client.CheckHealthRequest{})
	return err
}

// Inspection says what a process would miss, without changing anything. A check that could
// not be made because an earlier one failed carries errUnchecked.
type Inspection struct {
	Reachable  error
	Namespace  error
	Attributes error
	Workers    error
}

var errUnchecked = errors.New("not checked")

// Inspect looks at the cluster, the namespace and its search attributes.
func Inspect(ctx context.Context, c client.Client, namespace string) Inspection {
	found := Inspection{Namespace: errUnchecked, Attributes: errUnchecked, Workers: errUnchecked}
	if found.Reachable = Answers(ctx, c); found.Reachable != nil {
		return found
	}
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	var missing *serviceerror.NamespaceNotFound
	if errors.As(err, &missing) {
		err = fmt.Errorf("namespace %q does not exist; a worker registers it when it starts", namespace)
	}
	if found.Namespace = err; err == nil {
		found.Attributes = inspectSearchAttributes(ctx, c, namespace)
		found.Workers = inspectWorkers(ctx, c)
	}
	return found
}

// inspectWorkers asks who has lately polled for workflow tasks. Without a worker everything
// answers, and no cooldown is durable or shared.
func inspectWorkers(ctx context.Context, c client.Client) error {
	queue, err := c.DescribeTaskQueue(ctx, contract.TaskQueueState, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	if err != nil {
		return err
	}
	if len(queue.GetPollers()) == 0 {
		return fmt.Errorf("no worker polls %s: start 'omniroute worker'", contract.TaskQueueState)
	}
	return nil
}

func inspectSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return err
	}
	var wrong []string
	for name, kind := range SearchAttributes() {
		switch registered, ok := have.GetCustomAttributes()[name]; {
		case !ok:
			wrong = append(wrong, name+" is not registered")
		case registered != kind:
			wrong = append(wrong, fmt.Sprintf("%s is %s, not %s", name, registered, kind))
		}
	}
	if len(wrong) > 0 {
		slices.Sort(wrong)
		return fmt.Errorf("%s; a worker registers what is missing when it starts", strings.Join(wrong, ", "))
	}
	return nil
}
