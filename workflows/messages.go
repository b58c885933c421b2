package workflows

import (
	"go.temporal.io/sdk/workflow"

	"omniroute/models"
	"omniroute/workflows/contract"
)

// signals are an entity's channels.
type signals struct {
	failures, recoveries, credentials workflow.ReceiveChannel
}

func openSignals(ctx workflow.Context) signals {
	return signals{
		failures:    workflow.GetSignalChannel(ctx, contract.SignalFailureObserved),
		recoveries:  workflow.GetSignalChannel(ctx, contract.SignalRecoveryObserved),
		credentials: workflow.GetSignalChannel(ctx, contract.SignalCredentialsChanged),
	}
}

func (s signals) pending() bool {
	return s.failures.Len() > 0 || s.recoveries.Len() > 0 || s.credentials.Len() > 0
}

// takeSignals joins everything that has arrived. Since messages say what is true and not what
// to do, the order in which the channels are read makes no difference.
func (e *entity[S]) takeSignals(ctx workflow.Context) {
	e.takeObservations(ctx, e.signals.failures)
	e.takeObservations(ctx, e.signals.recoveries)
	for {
		var changed contract.CredentialsChanged
		if !e.signals.credentials.ReceiveAsync(&changed) {
			return
		}
		if changed.Era > e.kind.era(e.state) {
			e.state = e.kind.enter(e.state, changed.Era, changed.ChangedAt)
			e.moveTo(changed.Provider)
		}
	}
}

// moveTo notes that the connection is at another provider now. Moving begins an era, so news of
// the present era and of later ones come from where it is.
func (e *entity[S]) moveTo(provider models.ProviderID) {
	if provider != "" {
		e.id.Provider = provider
	}
}

func (e *entity[S]) takeObservations(ctx workflow.Context, channel workflow.ReceiveChannel) {
	for {
		var o contract.Observed[S]
		if !channel.ReceiveAsync(&o) { // the SDK logs and skips what it cannot decode
			return
		}
		if o.Connection != e.id.Connection || o.Connection == "" && o.Provider != e.id.Provider {
			workflow.GetLogger(ctx).Warn("ignored an observation of another entity", "provider", o.Provider, "connection", o.Connection)
			continue
		}
		if e.kind.era(o.State) >= e.kind.era(e.state) {
			e.moveTo(o.Provider)
		}
		e.state = e.kind.join(e.state, o.State)
	}
}
