package live

import (
	"slices"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// renamed are the families of a provider that a catalog change has left without a model, each
// with the keys that name its models from now on.
type renamed map[models.ProviderID]map[string][]resilience.LockKey

// renamedFamilies compares two catalogs. A family that has kept any model is the same family; a
// model that has left it is a matter of another quota.
func renamedFamilies(old, next *catalog.Snapshot) renamed {
	type family struct {
		provider models.ProviderID
		name     string
	}
	kept := map[family]bool{}
	for ref, model := range next.Models {
		kept[family{ref.Provider, model.Family}] = true
	}
	all := renamed{}
	for ref, model := range old.Models {
		if model.Family == "" || kept[family{ref.Provider, model.Family}] {
			continue
		}
		if all[ref.Provider] == nil {
			all[ref.Provider] = map[string][]resilience.LockKey{}
		}
		keys := all[ref.Provider][model.Family]
		if now := next.Models[ref]; now != nil {
			if key := resilience.KeyOf(models.LockFamily, ref.Model, now.Family); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		all[ref.Provider][model.Family] = keys
	}
	return all
}

// rename keeps locked out what was locked out as one of those families, and tells the others:
// who starts from now on knows nothing of the old name.
func (l *Live) rename(c *connection, families map[string][]resilience.LockKey, now time.Time) {
	c.mu.Lock()
	shared, changed := c.shared(), false
	for name, keys := range families {
		from := resilience.LockKey{Scope: models.LockFamily, Name: name}
		if next, moved := shared.Rekey(from, keys, now); moved {
			shared, changed = next, true
		}
	}
	if !changed {
		c.mu.Unlock()
		return
	}
	c.provisional = shared
	c.refresh()
	news := shared.News(c.durable)
	c.mu.Unlock()
	l.offerConnection(c, news, now)
}
