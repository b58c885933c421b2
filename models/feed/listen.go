package feed

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"

	"omniroute/models/catalog"
)

const (
	connectTimeout = 5 * time.Second
	// A connection that has been silent this long is asked for a sign of life: a peer that
	// vanished without a word would otherwise stay "connected" for hours.
	quietBeforePing = 30 * time.Second
	pingTimeout     = 5 * time.Second
	reconnectFirst  = 200 * time.Millisecond
	reconnectMost   = 5 * time.Second
	closeTimeout    = time.Second
)

// hints are what the reading goroutine wakes for. Each channel holds one: a second hint of a
// kind adds nothing to one that is not yet acted on.
type hints struct {
	catalog, states, reconnected chan struct{}
}

func newHints() hints {
	return hints{make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)}
}

func (h hints) give(what string) {
	switch what {
	case catalog.ChangedCatalog:
		offer(h.catalog)
	case catalog.ChangedState:
		offer(h.states)
	default: // a later version's word: look at everything
		offer(h.catalog)
		offer(h.states)
	}
}

func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listen keeps one dedicated connection on the channel of changes and connects again, with
// growing pauses, whenever it is lost. Every connect asks for a complete read: what was
// notified in between went unheard.
func (f *Feed) listen(ctx context.Context, address string) {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = reconnectFirst, reconnectMost
	for {
		heard, err := f.listenOnce(ctx, address)
		if ctx.Err() != nil {
			return
		}
		if heard {
			pauses.Reset()
		}
		pause := pauses.NextBackOff()
		f.metrics.reconnects.Inc()
		f.log.WithError(err).WithField("pause", pause.String()).Debug("not listening for changes; polling goes on")
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// listenOnce listens until the connection fails. heard reports whether it ever worked.
func (f *Feed) listenOnce(ctx context.Context, address string) (heard bool, err error) {
	connection, err := connect(ctx, address)
	if err != nil {
		return false, err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		connection.Close(ending) //nolint:errcheck // it is broken or no longer needed
	}()
	if err := exec(ctx, connection, "LISTEN "+pgx.Identifier{catalog.ChangeChannel}.Sanitize()); err != nil {
		return false, err
	}
	f.metrics.listening.Set(1)
	defer f.metrics.listening.Set(0)
	offer(f.hints.reconnected)
	for {
		what, err := wait(ctx, connection)
		if err != nil {
			return true, err
		}
		if what != "" {
			f.metrics.hints.WithLabelValues(label(what)).Inc()
			f.hints.give(what)
		}
	}
}

func connect(ctx context.Context, address string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed") // pgx's error may quote it
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "omniroute-feed"
	}
	return pgx.ConnectConfig(ctx, config)
}

// wait returns the next notification, or "" after a quiet time in which the peer proved alive.
func wait(ctx context.Context, connection *pgx.Conn) (string, error) {
	quiet, cancel := context.WithTimeout(ctx, quietBeforePing)
	defer cancel()
	notification, err := connection.WaitForNotification(quiet)
	switch {
	case err == nil:
		return notification.Payload, nil
	case ctx.Err() != nil || quiet.Err() == nil:
		return "", err
	default:
		return "", exec(ctx, connection, "SELECT 1")
	}
}

func exec(ctx context.Context, connection *pgx.Conn, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	_, err := connection.Exec(ctx, statement)
	return err
}
