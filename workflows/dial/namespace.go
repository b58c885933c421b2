package dial

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"omniroute/workflows/contract"
)

// Retention is how long closed workflows stay visible in a namespace we make.
const Retention = 7 * 24 * time.Hour

// namespaceRetry paces the wait for a frontend that does not know a new namespace yet.
const namespaceRetry = 200 * time.Millisecond

// SearchAttributes are the attributes our workflows set, with their types.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		contract.AttributeProvider:   enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		contract.AttributeConnection: enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		contract.AttributeModel:      enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		contract.AttributePhase:      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		contract.AttributeReason:     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		contract.AttributeUntil:      enumspb.INDEXED_VALUE_TYPE_DATETIME,
	}
}

// EnsureNamespace registers the namespace unless it exists; the retention of one that exists
// is left alone.
func EnsureNamespace(ctx context.Context, c client.Client, namespace string, retention time.Duration) error {
	_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	var missing *serviceerror.NamespaceNotFound
	if err == nil {
		return nil
	}
	if !errors.As(err, &missing) {
		return fmt.Errorf("describe namespace %q: %w", namespace, err)
	}
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace:                        namespace,
		WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("register namespace %q: %w", namespace, err)
	}
	return nil
}

// EnsureSearchAttributes registers our attributes and checks that each has our type: the
// server takes a known name with another type without a word and changes nothing. A client
// that may not register them is fine when they are there.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string) error {
	wanted := SearchAttributes()
	addErr := addSearchAttributes(ctx, c, namespace, wanted)
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return errors.Join(addErr, fmt.Errorf("list search attributes of %q: %w", namespace, err))
	}
	for name, kind := range wanted {
		found, ok := have.GetCustomAttributes()[name]
		switch {
		case !ok && addErr != nil:
			return fmt.Errorf("register search attribute %s in %q: %w", name, namespace, addErr)
		case !ok:
			return fmt.Errorf("search attribute %s is not in %q yet", name, namespace)
		case found != kind:
			return fmt.Errorf("search attribute %s in %q is %s, not %s: remove it or use another namespace", name, namespace, found, kind)
		}
	}
	return nil
}

// addSearchAttributes retries while the frontend's cache has not seen a new namespace.
func addSearchAttributes(ctx context.Context, c client.Client, namespace string, wanted map[string]enumspb.IndexedValueType) error {
	for {
		_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
			Namespace: namespace, SearchAttributes: wanted,
		})
		var unseen *serviceerror.NamespaceNotFound
		if !errors.As(err, &unseen) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(namespaceRetry):
		}
	}
}
