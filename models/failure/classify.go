package failure

import (
	"net/http"
	"time"

	"omniroute/models"
)

// Classify turns a failed attempt into a verdict; doc.go has the order on one page. Nothing may
// be tried elsewhere once bytes have reached the client.
func Classify(s Signal, now time.Time) Verdict {
	f := observe(s, now)
	v := f.decide()
	v.UpstreamStatus = f.status
	if limits(v.Reason) && f.sharesEgress() {
		v.Scope, v.Lock, v.Address = models.ScopeConnection, "", true
	}
	if f.restated != nil {
		v.RestatedFrom = f.sent
		if v.Rule == "" {
			v.Rule = f.restated.id
		}
		if f.hint == 0 {
			v.ClientRetryAfter = f.restated.retryAfter
		}
	}
	if f.Dressed != nil && v.Rule == "" {
		v.Rule = f.Dressed.ID
	}
	v.Failover = v.Failover && !f.Committed
	return v
}

// facts is what the rules look at: the signal with its error object parsed once.
type facts struct {
	Signal
	upstreamError
	now      time.Time
	sent     int          // the HTTP status, or what an error inside a 200 answer amounts to
	status   int          // the same, or what the provider means by it
	restated *restatement // the rule that says so; nil when none does
	hint     time.Duration
	asked    time.Duration // the hint as the upstream gave it, before any cap
}

func observe(s Signal, now time.Time) *facts {
	f := &facts{Signal: s, now: now, sent: s.Status, status: s.Status}
	if !f.answered() {
		return f
	}
	root := object(s.Body)
	f.parse(root)
	switch {
	case s.Dressed != nil:
		f.sent = s.Dressed.status()
	case s.Kind == KindInStream && (f.sent < 400 || f.sent > 599):
		f.sent = f.impliedStatus()
	}
	f.status = f.sent
	if f.restated = s.Rules.restatement(f); f.restated != nil {
		f.status = f.restated.to
	}
	f.hint, f.asked, _ = hintOf(f.status, s.Headers, root, prose(&f.upstreamError, root, s.Body), now)
	return f
}

// answered reports that the upstream itself has said that it failed, or an operator for it.
func (f *facts) answered() bool {
	return f.Kind == KindHTTP || f.Kind == KindInStream || f.Kind == KindDressed
}

func (f *facts) decide() Verdict {
	if f.answered() {
		if p := f.Dressed; p != nil && p.Reason != "" {
			return f.ruled(f.byReason(p.ID, p.Reason))
		}
		if r := f.Rules.ruling(f); r != nil {
			return f.ruled(*r)
		}
	}
	for i := range table {
		if table[i].applies(f) {
			return table[i].verdict(f)
		}
	}
	return unexplained.verdict(f)
}

// perModel reports that what the account's quota explains is about the model's family alone.
func (f *facts) perModel() bool { return f.PerModelQuota && !f.sharesEgress() }

// sharesEgress reports that a limit of the address is the explanation.
func (f *facts) sharesEgress() bool { return f.EgressShared && f.status == http.StatusTooManyRequests }

// say is the client's sentence: a fixed one, or else the upstream's own message.
func (f *facts) say(fixed string) string {
	if fixed != "" {
		return fixed
	}
	if f.message() == "" && f.Kind == KindDressed {
		return sayDressed
	}
	return clientMessage(f.message(), f.Credential, f.sent)
}

func oneOf[T comparable](set []T, x T) bool {
	for _, member := range set {
		if member == x {
			return true
		}
	}
	return len(set) == 0
}
