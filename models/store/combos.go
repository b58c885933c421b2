package store

import (
	"strings"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
)

func (a *applier) model(c catalog.Change) error {
	m := find(a.result.Models, func(x catalog.DocModel) bool { return string(x.Provider)+"/"+x.ID == c.ID })
	row := &catalog.Model{
		ProviderID: string(m.Provider), ID: m.ID, ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput,
		Capabilities: m.Capabilities, CreatedAt: a.now, UpdatedAt: a.now,
	}
	if m.Price != nil {
		row.PriceInput, row.PriceOutput, row.PriceKnown = m.Price.Input, m.Price.Output, true
	}
	return a.save(c, row)
}

func (l *loader) models() error {
	var rows []catalog.Model
	if err := l.tx.Order("provider_id, id").Find(&rows).Error; err != nil {
		return err
	}
	l.stored.Models = make([]catalog.DocModel, len(rows))
	for i, r := range rows {
		l.stored.Models[i] = catalog.DocModel{
			ID: r.ID, Provider: models.ProviderID(r.ProviderID), ContextWindow: r.ContextWindow, MaxOutput: r.MaxOutput,
			Capabilities: r.Capabilities,
		}
		// A version that knew only prices above zero may have written the row.
		if r.PriceKnown || r.PriceInput > 0 || r.PriceOutput > 0 {
			l.stored.Models[i].Price = &catalog.DocPrice{Input: r.PriceInput, Output: r.PriceOutput}
		}
		l.stored.ModelsCreated[models.ModelRef{Provider: models.ProviderID(r.ProviderID), Model: r.ID}] = time.UnixMilli(r.CreatedAt)
	}
	return nil
}

func (a *applier) combo(c catalog.Change) error {
	combo := find(a.result.Combos, func(x catalog.DocCombo) bool { return x.Name == c.ID })
	err := a.save(c, &catalog.Combo{
		Name: c.ID, Strategy: combo.Strategy, Config: combo.Config, Description: combo.Description,
		AllowedProviders: combo.AllowedProviders, ContextLength: combo.ContextLength, Disabled: combo.Disabled,
		CreatedAt: a.now, UpdatedAt: a.now,
	})
	if err != nil || len(combo.Targets) == 0 {
		return err
	}
	rows := make([]catalog.ComboTarget, len(combo.Targets))
	for i := range combo.Targets {
		rows[i] = targetRow(&combo.Targets[i])
		rows[i].ComboName, rows[i].Position = c.ID, i
	}
	return a.tx.Create(&rows).Error
}

func targetRow(t *catalog.DocTarget) catalog.ComboTarget {
	row := catalog.ComboTarget{
		StepID: t.StepID(), Weight: t.Weight, AllowedConnections: t.AllowedConnections,
		Label: t.Label, Tags: t.Tags, Prompt: t.Prompt, OnlyOnQuota: t.FallbackOnlyOnQuotaExhaustion,
	}
	if t.Combo != "" {
		row.InnerCombo = &t.Combo
		return row
	}
	provider, model, _ := strings.Cut(t.Model, "/")
	row.ProviderID = &provider
	if t.Wildcard() {
		row.Pattern = &model
	} else {
		row.ModelID = &model
	}
	if t.Connection != "" {
		pinned := string(t.Connection)
		row.ConnectionID = &pinned
	}
	return row
}

func (l *loader) combos() error {
	var rows []catalog.Combo
	if err := l.tx.Order("name").Find(&rows).Error; err != nil {
		return err
	}
	var targets []catalog.ComboTarget
	if err := l.tx.Order("combo_name, position").Find(&targets).Error; err != nil {
		return err
	}
	index := map[string]int{}
	l.stored.Combos = make([]catalog.DocCombo, len(rows))
	for i, r := range rows {
		index[r.Name] = i
		l.stored.Combos[i] = catalog.DocCombo{
			Name: r.Name, Description: r.Description, Strategy: r.Strategy, Config: r.Config,
			AllowedProviders: r.AllowedProviders, ContextLength: r.ContextLength, Disabled: r.Disabled,
		}
	}
	for i := range targets {
		combo := &l.stored.Combos[index[targets[i].ComboName]]
		combo.Targets = append(combo.Targets, targetFromRow(&targets[i]))
	}
	return nil
}

func targetFromRow(r *catalog.ComboTarget) catalog.DocTarget {
	t := catalog.DocTarget{
		Weight: r.Weight, AllowedConnections: r.AllowedConnections,
		Label: r.Label, Tags: r.Tags, Prompt: r.Prompt, FallbackOnlyOnQuotaExhaustion: r.OnlyOnQuota,
	}
	switch {
	case r.InnerCombo != nil:
		t.Combo = *r.InnerCombo
	case r.Pattern != nil:
		t.Model = *r.ProviderID + "/" + *r.Pattern
	default:
		t.Model = *r.ProviderID + "/" + *r.ModelID
	}
	if r.ConnectionID != nil {
		t.Connection = models.ConnectionID(*r.ConnectionID)
	}
	if r.StepID != t.StepID() {
		t.ID = r.StepID
	}
	return t
}
