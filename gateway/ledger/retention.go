package ledger

import (
	"context"
	"time"

	"omniroute/models"
)

const (
	retainEvery = time.Hour
	retainChunk = 1000 // rows of one delete: short locks, short transactions
)

// retain deletes records past their retention, at start and then hourly. Several replicas
// may do so at once; they then share the work.
func (l *Ledger) retain() {
	ticker := time.NewTicker(retainEvery)
	defer ticker.Stop()
	for {
		l.deleteExpired(time.Now().Add(-l.retention))
		select {
		case <-ticker.C:
		case <-l.stopping:
			return
		}
	}
}

func (l *Ledger) deleteExpired(before time.Time) {
	total := int64(0)
	for {
		select {
		case <-l.stopping:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(l.lifetime, insertTimeout)
		deleted, err := l.rows.DeleteRequestsBefore(ctx, before, retainChunk)
		cancel()
		total += deleted
		l.metrics.expired.Add(float64(deleted))
		if err != nil {
			l.log.WithError(models.Root(err)).Warn("expired request records stay until the next hour")
			return
		}
		if deleted < retainChunk {
			break
		}
	}
	if total > 0 {
		l.log.WithField("records", total).Info("expired request records deleted")
	}
}
