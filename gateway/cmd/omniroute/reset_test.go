package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

func TestWhatAResetMeansIsReadFromTheCatalogAndThePublishedStates(t *testing.T) {
	now := time.Now()
	openai, azure := &catalog.ProviderView{ID: "openai"}, &catalog.ProviderView{ID: "azure"}
	snapshot := &catalog.Snapshot{
		Providers:   map[models.ProviderID]*catalog.ProviderView{"openai": openai, "azure": azure},
		Connections: map[models.ConnectionID]*catalog.ConnectionView{},
		Models:      map[models.ModelRef]*catalog.ModelView{},
	}
	for _, ref := range []models.ModelRef{{Provider: "openai", Model: "gpt-x"}, {Provider: "openai", Model: "spark-1"}, {Provider: "azure", Model: "gpt-x"}} {
		snapshot.Models[ref] = &catalog.ModelView{Ref: ref}
	}
	snapshot.Models[models.ModelRef{Provider: "openai", Model: "spark-1"}].Family = "spark"
	policy := resilience.CooldownPolicy{Base: time.Minute, Max: time.Hour}
	failure := resilience.Failure{At: now, Reason: models.ReasonRateLimited}
	locked := func(scope models.LockScope, name string) resilience.Connection {
		state, _ := resilience.Connection{}.FailModel(resilience.LockKey{Scope: scope, Name: name}, failure, policy)
		return state
	}
	cooling, _ := resilience.Connection{}.Fail(failure, resilience.ConnectionPolicy{Cooldown: policy})
	states := &catalog.States{Complete: true}
	for _, c := range []catalog.ConnectionState{
		{Connection: "openai-1", Provider: "openai", State: locked(models.LockExact, "gpt-x")},
		{Connection: "openai-2", Provider: "openai", State: locked(models.LockFamily, "spark")},
		{Connection: "openai-3", Provider: "openai", State: cooling},
		{Connection: "openai-4", Provider: "openai"},
		{Connection: "azure-1", Provider: "azure", State: locked(models.LockModel, "gpt-x")},
	} {
		states.Connections = append(states.Connections, c)
		snapshot.Connections[c.Connection] = &catalog.ConnectionView{ID: c.Connection, Provider: snapshot.Providers[c.Provider]}
	}
	held, _ := resilience.Provider{}.Fail(failure, policy)
	states.Providers = []catalog.ProviderState{{Provider: "openai", State: held}, {Provider: "azure"}}

	for _, c := range []struct {
		reset resetCmd
		want  []string
	}{
		{resetCmd{Connection: "openai-4"}, []string{"connection openai-4: reset"}},
		{resetCmd{Provider: "azure"}, []string{"provider azure: reset"}},
		{resetCmd{Model: "openai/gpt-x"}, []string{"connection openai-1: openai/gpt-x enabled"}},
		{resetCmd{Model: "gpt-x"}, []string{"connection azure-1: azure/gpt-x enabled", "connection openai-1: openai/gpt-x enabled"}},
		{resetCmd{Model: "openai/spark-1"}, []string{"connection openai-2: openai/spark-1 enabled"}},
		{resetCmd{Model: "gpt-x", Connection: "openai-4"}, []string{"connection openai-4: openai/gpt-x enabled"}},
		{resetCmd{All: true}, []string{
			"provider openai: reset", "connection openai-1: reset", "connection openai-2: reset", "connection openai-3: reset", "connection azure-1: reset",
		}},
	} {
		steps, err := c.reset.plan(snapshot, states, now)
		require.NoError(t, err)
		var got []string
		for _, step := range steps {
			got = append(got, step.done)
		}
		require.Equal(t, c.want, got)
	}
}
