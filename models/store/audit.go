package store

import (
	"context"

	"gorm.io/gorm"

	"omniroute/models/catalog"
)

// Audit writes what operators did that is no change of the catalog, which Apply writes by
// itself. Ids and times of the entries are given here.
func (s *Store) Audit(ctx context.Context, entries []catalog.Audit) error {
	if len(entries) == 0 {
		return nil
	}
	err := s.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		now, err := s.nowMs(tx)
		if err != nil {
			return err
		}
		rows := make([]catalog.Audit, len(entries))
		for i, entry := range entries {
			entry.ID, entry.At = 0, now
			rows[i] = entry
		}
		return tx.CreateInBatches(rows, auditBatch).Error
	})
	return s.fail("write the audit log", err)
}

// AuditLog lists the newest entries first: at most limit, older than the entry before, or from
// the newest when before is 0.
func (s *Store) AuditLog(ctx context.Context, limit int, before int64) ([]catalog.Audit, error) {
	query := s.db.WithContext(ctx).Order("id DESC").Limit(limit)
	if before > 0 {
		query = query.Where("id < ?", before)
	}
	var rows []catalog.Audit
	if err := query.Find(&rows).Error; err != nil {
		return nil, s.fail("read the audit log", err)
	}
	return rows, nil
}

const auditBatch = 500
