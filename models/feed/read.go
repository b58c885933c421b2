package feed

import (
	"context"
	"errors"
	"time"

	"omniroute/models/catalog"
)

// want says what a read is to bring.
type want int

const (
	wantCatalog want = 1 << iota // the snapshot, if the revision moved
	wantStates                   // what changed within the overlap
	wantLatest                   // what changed a moment ago
	wantEvery                    // all states

	wantAll = wantCatalog | wantEvery
)

// latestReaches is how many local intervals a look at the latest changes goes back.
const latestReaches = 8

// read brings what is wanted to the sink and tells it how that went. After a failure the next
// read is complete: changes in between may have passed the overlap unseen.
func (f *Feed) read(ctx context.Context, w want) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if f.away != nil {
		w = wantAll
	}
	err := f.deliver(ctx, w)
	if err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return err // Stop, not the database
	}
	f.metrics.read(err)
	switch {
	case err != nil && f.away == nil:
		f.log.WithError(err).Warn("the database is away; serving by the last catalog and states")
	case err == nil && f.away != nil:
		f.log.Info("the database is back; catalog and states are current")
	}
	f.away = err
	f.sink.FeedHealth(err)
	return err
}

// deliver reads the states first and the catalog after them, and hands them over the other way
// round: new credentials are committed together with the era that they begin, so no era reaches
// the sink before its credentials, and nothing old is taken for the new era's doing.
func (f *Feed) deliver(ctx context.Context, w want) error {
	moved := false
	if w&wantCatalog != 0 {
		revision, err := f.source.CatalogRevision(ctx)
		if err != nil {
			return err
		}
		if moved = revision != f.revision; moved {
			w |= wantEvery // states of connections that are new to the catalog were not delivered before
		}
	}
	states, err := f.readStates(ctx, w)
	if err != nil {
		return err
	}
	if !moved && states != nil { // it may have moved since it was asked
		revision, err := f.source.CatalogRevision(ctx)
		if err != nil {
			return err
		}
		moved = revision != f.revision
	}
	if moved {
		snapshot, err := f.source.LoadSnapshot(ctx)
		if err != nil {
			return err
		}
		f.sink.CatalogChanged(snapshot)
		// Not the revision asked for: the snapshot may already be of a later one.
		f.revision = snapshot.Revision
		f.metrics.revision.Set(float64(snapshot.Revision))
	}
	if states != nil {
		f.sink.StatesChanged(states)
	}
	return nil
}

// readStates reads what is wanted of the states; nil when there is nothing to deliver.
func (f *Feed) readStates(ctx context.Context, w want) (*catalog.States, error) {
	var since time.Duration
	switch {
	case w&wantEvery != 0:
	case w&wantStates != 0:
		since = f.options.Overlap
	case w&wantLatest != 0:
		since = latestReaches * f.options.Local
	default:
		return nil, nil //nolint:nilnil // nothing was asked for
	}
	now := time.Now()
	if now.Sub(f.statesRead) > since/2 {
		since = 0 // too long ago for the overlap to cover what happened since
	}
	states, err := f.source.States(ctx, since)
	if err != nil {
		return nil, err
	}
	f.statesRead = now
	f.compareClocks(states.Now, now, time.Now())
	states.Asked, states.Skew = now, f.skew
	if !states.Complete && len(states.Connections)+len(states.Providers) == 0 {
		return nil, nil //nolint:nilnil // nothing changed
	}
	return states, nil
}

// longestComparison is how long a read may take that still tells what time the database has:
// half of it is how wrong the comparison can be.
const longestComparison = 500 * time.Millisecond

// compareClocks takes the database's clock to have been read in the middle of the read. A read
// that was too slow to tell leaves the last comparison standing.
func (f *Feed) compareClocks(database, asked, answered time.Time) {
	took := answered.Sub(asked)
	if database.IsZero() || took > longestComparison {
		return
	}
	f.skew = database.Sub(asked.Add(took / 2)).Round(time.Millisecond)
}
