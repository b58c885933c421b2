package store

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/resilience"
)

// ClaimProbe asks for the one probe of a half-open provider, across all replicas. It is a
// compare-and-set on the provider's row: the claim is won when nobody else's is running and
// the row knows of no opening that lasts longer. Otherwise heldFor says for how long another
// owner holds the probe, or the provider stays open. A claim of the present owner renews it.
//
// The provider's workflow may not have published yet; then the claim leaves the row with the
// opening that the claimant knows, older than anything a workflow publishes.
func (s *Store) ClaimProbe(ctx context.Context, provider models.ProviderID, owner string, o resilience.Opening, lease time.Duration) (won bool, heldFor time.Duration, err error) {
	opening, err := json.Marshal(catalog.OpeningState{Provider: resilience.Provider{Opening: o}})
	if err != nil {
		return false, 0, err
	}
	db := s.db.WithContext(ctx)
	claim := db.Exec(`INSERT INTO domain_circuit_breakers
		(name, era, version, state, failure_count, last_failure_time, cycle, until_at, applied_through, opening, probe_owner, probe_until, updated_at)
		VALUES (?, ?, -1, ?, ?, ?, ?, ?, 0, ?, ?, `+s.now+` + ?, `+s.now+`)
		ON CONFLICT (name) DO UPDATE SET
			probe_owner = excluded.probe_owner, probe_until = excluded.probe_until, updated_at = excluded.updated_at
		WHERE (domain_circuit_breakers.probe_owner IN ('', excluded.probe_owner) OR domain_circuit_breakers.probe_until <= `+s.now+`)
			AND (domain_circuit_breakers.state <> 'OPEN' OR domain_circuit_breakers.until_at <= `+s.now+`
				OR domain_circuit_breakers.until_at <= excluded.until_at)`,
		provider, o.Era, breakerState(o), o.Failures, millis(o.OpenedAt), o.Cycle, millis(o.Until), string(opening),
		owner, lease.Milliseconds())
	if claim.Error != nil {
		return false, 0, s.fail("claim the probe", claim.Error)
	}
	if claim.RowsAffected > 0 {
		return true, 0, nil
	}
	heldFor, err = s.probeHeldFor(db, provider, owner)
	return false, heldFor, s.fail("read who holds the probe", err)
}

// probeHeldFor is the longer of another owner's lease and the rest of the opening. It is at
// least a millisecond: the claim was lost, so something held it a moment ago.
func (s *Store) probeHeldFor(db *gorm.DB, provider models.ProviderID, owner string) (time.Duration, error) {
	var row struct{ Probe, Opening int64 }
	err := db.Raw(`SELECT
		CASE WHEN probe_owner NOT IN ('', ?) THEN probe_until - `+s.now+` ELSE 0 END AS probe,
		CASE WHEN state = 'OPEN' THEN until_at - `+s.now+` ELSE 0 END AS opening
		FROM domain_circuit_breakers WHERE name = ?`, owner, provider).Scan(&row).Error
	return time.Duration(max(row.Probe, row.Opening, 1)) * time.Millisecond, err
}

// ReleaseProbe gives the probe back before its lease ends, for one that said nothing about
// the provider. A probe that somebody else holds by now is left alone.
func (s *Store) ReleaseProbe(ctx context.Context, provider models.ProviderID, owner string) error {
	return s.fail("release the probe", s.db.WithContext(ctx).Exec(
		"UPDATE domain_circuit_breakers SET probe_owner = '', probe_until = 0 WHERE name = ? AND probe_owner = ?",
		provider, owner).Error)
}
