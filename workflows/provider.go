package workflows

import (
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"omniroute/models/resilience"
	"omniroute/workflows/contract"
)

// Provider shares what keeps a whole provider away among the replicas: its breaker's openings,
// the cooldown of a rule and that of the window gate. It is started by the first of them and
// ends when all have passed or were closed; probing is the gateways'.
func Provider(ctx workflow.Context, start contract.Start[resilience.Provider]) error {
	p := &provider{}
	p.entity = newEntity(contract.WorkflowProvider, start, p)
	return p.run(ctx)
}

type provider struct {
	*entity[resilience.Provider]
}

func (*provider) load() contract.Activity[contract.Entity, contract.Row[resilience.Provider]] {
	return contract.LoadProvider
}

func (*provider) publish() contract.Activity[contract.Publish[resilience.Provider], contract.Stood[resilience.Provider]] {
	return contract.PublishProvider
}

func (*provider) join(a, b resilience.Provider) resilience.Provider {
	return resilience.JoinProvider(a, b)
}

func (*provider) equal(a, b resilience.Provider) bool { return a.Equal(b) }

func (*provider) era(s resilience.Provider) int64 { return s.Era() }

func (*provider) enter(s resilience.Provider, era int64, began time.Time) resilience.Provider {
	return s.Enter(era, began)
}

func (*provider) reset(s resilience.Provider, now time.Time) resilience.Provider {
	return s.Reset(now)
}

func (*provider) evidence(s resilience.Provider) time.Time { return s.Evidence() }

func (*provider) prune(s resilience.Provider, _ time.Time) resilience.Provider { return s }

func (*provider) weight(resilience.Provider) int { return 1200 }

// rowPhase is that of the opening in the row: that it has turned half-open, and that a cooldown
// has passed, is read from the deadlines.
func (*provider) rowPhase(s resilience.Provider, now time.Time) string {
	if s.Opening.State(now) == resilience.BreakerClosed {
		return string(resilience.BreakerClosed)
	}
	return string(resilience.BreakerOpen)
}

func (p *provider) stands(s resilience.Provider, now time.Time) standing {
	listing := contract.ListProvider(s, now)
	return standing{Listing: listing, sentence: p.sentence(s, now), dormant: listing.Until.IsZero()}
}

// sentence says where a provider stands, in words: "open until 10:30:30 UTC after 12 failures,
// the last 503 server_error from openai, cycle 1".
func (p *provider) sentence(s resilience.Provider, now time.Time) string {
	var words []string
	switch o := s.Opening; o.State(now) {
	case resilience.BreakerOpen:
		words = append(words, fmt.Sprintf("open until %s after %s, cycle %d", clock(o.Until), p.failures(o), o.Cycle))
	case resilience.BreakerHalfOpen:
		words = append(words, fmt.Sprintf("half-open since %s, waiting for a probe to succeed", clock(o.Until)))
	}
	if hold := s.Hold.Standing(now); !s.Hold.Dormant(now) {
		words = append(words, fmt.Sprintf("every request held until %s, %s", clock(hold.Until), causes(hold.Status, hold.Reason, p.id.Provider)))
	}
	if gate := s.Gate.Standing(now); !s.Gate.Dormant(now) {
		words = append(words, fmt.Sprintf("combos stay away until %s, %s", clock(gate.Until), causes(gate.Status, gate.Reason, p.id.Provider)))
	}
	if len(words) == 0 {
		return "closed"
	}
	return strings.Join(words, "; ")
}

func (p *provider) failures(o resilience.Opening) string {
	if o.Failures == 1 {
		return "a failure, " + causes(o.Status, o.Reason, p.id.Provider)
	}
	return fmt.Sprintf("%d failures, the last %s", o.Failures, causes(o.Status, o.Reason, p.id.Provider))
}

// A provider's workflow does no work of its own.

func (*provider) requests(workflow.Context) error { return nil }
func (*provider) settle(workflow.Context)         {}
func (*provider) begin(workflow.Context)          {}
func (*provider) ready() bool                     { return false }
func (*provider) busy() bool                      { return false }
