package live_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omniroute/models"
	"omniroute/models/failure"
)

// Whether a request came to a combo or to a plain model changes nothing of what its failure
// leaves behind, here and for the other replicas.
func TestAVerdictMetInAComboIsKeptLikeAnyOther(t *testing.T) {
	noCredit := failure.Verdict{Reason: models.ReasonCreditsExhausted, Scope: models.ScopeConnection, Terminal: models.PhaseCreditsExhausted, Failover: true, UpstreamStatus: 402}
	for name, verdict := range map[string]failure.Verdict{
		"a rejected key":       rejectedKey(),
		"an account in debt":   noCredit,
		"a rate limit":         rateLimited(time.Minute),
		"a model out of reach": locked(models.LockModel, time.Minute),
		"a whole provider":     wholeProvider(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plain, combo := alone(t, 2), alone(t, 2)
				for r, inCombo := range map[*replica]bool{plain: false, combo: true} {
					pass, out := r.Admit(t.Context(), r.conn(1), gpt, inCombo, time.Now())
					require.Nil(t, out)
					pass.Failed(verdict, time.Now())
					require.NotEmpty(t, r.out(1, gpt))
				}
				require.Equal(t, plain.connection(1), combo.connection(1))
				require.Equal(t, plain.offered(), combo.offered())
				require.Len(t, combo.offered(), 1)

				time.Sleep(time.Hour)
				require.Equal(t, verdict.Terminal != "", combo.out(1, gpt) != "")
			})
		})
	}
}
