package live

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"omniroute/models"
	"omniroute/models/catalog"
	"omniroute/models/failure"
	"omniroute/models/resilience"
	"omniroute/models/routing"
)

// maxTracks bounds how many pairs of a connection and a model are remembered. Where there are
// more, those that have seen nothing for the longest time go, an eighth at once: finding them
// takes a look at all, which pays only for many.
const (
	maxTracks  = 10_000
	keptTracks = maxTracks - maxTracks/8
)

// track is what is remembered of one model through one connection for strategies to go by. It
// neither keeps a target out nor lets it in.
type track struct {
	used  atomic.Int64 // time of the latest evidence, in nanoseconds since the epoch
	quota quota        // where the provider limits by model

	mu    sync.Mutex
	own   routing.Statistics // what this replica has seen
	peers routing.Statistics // what the others said when they were last read
}

// tracks finds a connection's tracks by the model's id at the provider. Readers take no lock; the
// map is replaced as a whole when a model is tried for the first time.
type tracks = map[string]*track

// Facts fills in what strategies may know of a candidate: of its connection and model as the
// catalog has them, of what attempts have shown, and of quotas. Nothing is allocated, but once in
// a second for a connection whose plan was entered; f.Quota is shared, and not to be changed.
func (l *Live) Facts(conn *catalog.ConnectionView, model *catalog.ModelView, now time.Time, f *routing.Facts) {
	*f = routing.Facts{
		MaxConcurrent: conn.MaxConcurrent, Quality: -1,
		Price: model.Price, ContextWindow: model.ContextWindow, Capabilities: model.Capabilities,
		Class: conn.Provider.Class,
	}
	if conn.Plan != nil {
		f.Tier = routing.Tier(conn.Plan.Tier)
	}
	c := l.index.Load().connections[conn.ID]
	if c == nil || c.provider.id != model.Ref.Provider { // since the caller took its snapshot
		return
	}
	f.InFlight = c.inFlight()
	f.Opening = c.provider.halfOpen(now)
	t := c.known(model.Ref.Model)
	if t != nil {
		t.fill(f, now)
	}
	f.Quota, f.Exhausted = c.quotas(t, conn.Plan, now)
}

// fill tells what this replica and the others have seen together.
func (t *track) fill(f *routing.Facts, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.peers.Empty() {
		t.own.Fill(f, now)
		return
	}
	both := t.own
	both.Join(&t.peers)
	both.Fill(f, now)
}

// inFlight is how many attempts are under way through the connection.
func (c *connection) inFlight() int { return int(c.slots.Load()) }

// halfOpen reports whether the next attempt is to show if the provider is back.
func (p *provider) halfOpen(now time.Time) bool {
	if p.calm.Load() != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.breaker.State(now) == resilience.BreakerHalfOpen
}

// FirstContent takes in how long the attempt took from being sent to the first content of its
// answer. It may come before or after the attempt's ending, or never.
func (p *pass) FirstContent(after time.Duration, now time.Time) {
	t := p.live.track(p.connection, p.model.Model, now)
	t.mu.Lock()
	t.own.Began(after, now)
	t.mu.Unlock()
}

// noteSuccess remembers that the answer was whole.
func (p *pass) noteSuccess(now time.Time) {
	t := p.live.track(p.connection, p.model.Model, now)
	t.mu.Lock()
	t.own.Succeeded(now)
	t.mu.Unlock()
	p.count(catalog.UnitRequests, 1, now)
}

// noteFailure remembers a failure of the upstream or of the way to it. What the client or we did
// says nothing of the target.
func (p *pass) noteFailure(v *failure.Verdict, now time.Time) {
	if v.Blame != models.BlameUpstream && v.Blame != models.BlameNetwork {
		return
	}
	t := p.live.track(p.connection, p.model.Model, now)
	t.mu.Lock()
	t.own.Failed(useless(v.Reason), now)
	t.mu.Unlock()
	if useless(v.Reason) { // it was an answer all the same
		p.count(catalog.UnitRequests, 1, now)
	}
}

// useless reports whether a failure is an answer that was of no use: it was empty, made no sense
// or broke off.
func useless(r models.Reason) bool {
	return r == models.ReasonEmptyResponse || r == models.ReasonMalformed || r == models.ReasonCutStream
}

// known is a model's track; nil when nothing was seen of it.
func (c *connection) known(model string) *track {
	if all := c.tracks.Load(); all != nil {
		return (*all)[model]
	}
	return nil
}

// track is a model's track for evidence that comes now.
func (l *Live) track(c *connection, model string, now time.Time) *track {
	t := c.known(model)
	if t == nil {
		return l.newTrack(c, model, now)
	}
	t.used.Store(now.UnixNano())
	return t
}

func (l *Live) newTrack(c *connection, model string, now time.Time) *track {
	l.tracking.Lock()
	defer l.tracking.Unlock()
	if t := c.known(model); t != nil {
		return t
	}
	next := tracks{}
	if all := c.tracks.Load(); all != nil {
		next = maps.Clone(*all)
	}
	t := &track{}
	t.used.Store(now.UnixNano())
	next[model] = t
	c.tracks.Store(&next)
	if l.tracked++; l.tracked > maxTracks {
		l.forgetTracks()
	}
	return t
}

// forgetTracks makes room by forgetting what was of use the longest time ago. What went with its
// connection is not counted any more. Callers hold tracking.
func (l *Live) forgetTracks() {
	index := l.index.Load()
	var used []int64
	for _, c := range index.connections {
		if all := c.tracks.Load(); all != nil {
			for _, t := range *all {
				used = append(used, t.used.Load())
			}
		}
	}
	l.tracked = len(used)
	if l.tracked <= maxTracks {
		return
	}
	slices.Sort(used)
	oldestKept := used[len(used)-keptTracks]
	older, _ := slices.BinarySearch(used, oldestKept)
	ties := len(used) - keptTracks - older // of the same moment, which go as well
	for _, c := range index.connections {
		all := c.tracks.Load()
		if all == nil {
			continue
		}
		kept := maps.Clone(*all)
		maps.DeleteFunc(kept, func(_ string, t *track) bool {
			at := t.used.Load()
			if at == oldestKept && ties > 0 {
				ties--
				return true
			}
			return at < oldestKept
		})
		c.tracks.Store(&kept)
		l.tracked -= len(*all) - len(kept)
	}
	l.metrics.tracksForgotten.Add(float64(len(used) - l.tracked))
}
