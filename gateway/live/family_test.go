package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

var big = models.ModelRef{Provider: openai, Model: "gpt-big"}

// families is a catalog with these models in these families; in none when it is empty.
func families(of map[models.ModelRef]string) *catalog.Snapshot {
	s := newCatalog(2)
	s.Models = map[models.ModelRef]*catalog.ModelView{}
	for ref, name := range of {
		s.Models[ref] = &catalog.ModelView{Ref: ref, Family: name}
	}
	return s
}

// The operator changes the name of a family while its quota is used up.
func TestAFamilyThatGetsAnotherNameIsOutForAsLongAsBefore(t *testing.T) {
	type lock struct {
		scope models.LockScope
		name  string
	}
	for name, c := range map[string]struct {
		next map[models.ModelRef]string
		out  []models.ModelRef
		keys []lock
	}{
		"renamed":    {map[models.ModelRef]string{gpt: "new", mini: "new", big: "new"}, []models.ModelRef{gpt, mini, big}, []lock{{models.LockFamily, "new"}}},
		"split":      {map[models.ModelRef]string{gpt: "a", mini: "b", big: "b"}, []models.ModelRef{gpt, mini, big}, []lock{{models.LockFamily, "a"}, {models.LockFamily, "b"}}},
		"given up":   {map[models.ModelRef]string{gpt: "", mini: "", big: ""}, []models.ModelRef{gpt, mini}, []lock{{models.LockModel, "gpt-mini"}, {models.LockModel, "gpt-x"}}},
		"kept":       {map[models.ModelRef]string{gpt: "old", mini: "other", big: ""}, []models.ModelRef{gpt}, []lock{{models.LockFamily, "old"}}},
		"left empty": {map[models.ModelRef]string{big: ""}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, "a", nil, families(map[models.ModelRef]string{gpt: "old", mini: "old", big: ""}))
				r.fail(t, 1, gpt, locked(models.LockFamily, 20*time.Minute))
				told := r.offered()[0].Health
				r.read(publishedWhole("openai-1", 1, told))
				time.Sleep(5 * time.Minute)

				r.CatalogChanged(families(c.next))
				check := func(who *replica) {
					var out []models.ModelRef
					for _, ref := range []models.ModelRef{gpt, mini, big} {
						if who.out(1, ref) != "" {
							require.Equal(t, 15*time.Minute, who.left(1, ref))
							out = append(out, ref)
						}
						require.Empty(t, who.out(2, ref))
					}
					require.Equal(t, c.out, out)
					var keys []lock
					for _, l := range who.Report(time.Now()).Lockouts {
						keys = append(keys, lock{l.Scope, l.Model})
					}
					require.Equal(t, c.keys, keys, "and no ghost is listed")
				}
				check(r)
				for _, change := range r.offered()[1:] {
					told = resilience.JoinConnection(told, change.Health)
				}
				r.resync(publishedWhole("openai-1", 2, told))
				check(r)
				require.Zero(t, r.Report(time.Now()).Unpublished.Entities)

				late := newReplica(t, "b", nil, families(c.next)) // knows nothing of the old name
				late.read(publishedWhole("openai-1", 2, told))
				check(late)
			})
		})
	}
}
