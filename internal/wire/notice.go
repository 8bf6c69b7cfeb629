package wire

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	// refusedTimeout is how long a refusal waits until the sandbox has been told why. A sandbox
	// that is too busy to answer in this time is told later.
	refusedTimeout = time.Second
	// explainEvery is how long equal refusals are not explained again.
	explainEvery = 30 * time.Second
	// foldEvery is the time in which equal refusals become one event of the audit log.
	foldEvery = 10 * time.Second
	// maxRefusals bounds how many refusals are remembered, because the sandbox chooses the names.
	maxRefusals = 1024
	// maxExplaining bounds how many explanations are under way.
	maxExplaining = 8
)

// refusals explains refusals to the sandbox and keeps the audit log short. A program that tries
// again and again causes one event and one explanation.
type refusals struct {
	link *Link
	// The sandbox decides how many different refusals there are. Beyond these rates, they are only
	// counted.
	explained, recorded *rate.Limiter
	explaining          chan struct{}

	mu     sync.Mutex
	said   map[saidKey]time.Time
	folded map[foldKey]*fold
	flush  *time.Timer
	closed bool
}

// saidKey and foldKey say which refusals are equal. Those with the same saidKey are explained once.
// Those with the same foldKey are folded in the log.
type saidKey struct {
	host string
	port uint16
}

type foldKey struct {
	protocol, name, address, method, path, rule, reason string
	port                                                uint16
}

type fold struct {
	last  carrel.Decision
	since time.Time
	more  int // that were not recorded
}

func newRefusals(l *Link) *refusals {
	return &refusals{link: l, explained: rate.NewLimiter(10, 20), recorded: rate.NewLimiter(100, 1000),
		explaining: make(chan struct{}, maxExplaining), said: make(map[saidKey]time.Time), folded: make(map[foldKey]*fold)}
}

func keyOf(d carrel.Decision) saidKey {
	k := saidKey{d.Name, d.Port}
	if k.host == "" {
		k.host = d.Address
	}
	return k
}

// unexplained reports whether a refusal was not explained to the sandbox lately.
func (s *refusals) unexplained(d carrel.Decision) bool {
	if s.link.wire.opts.Refused == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.said[keyOf(d)]
	return !ok || time.Since(at) > explainEvery
}

// explain tells the sandbox of a refusal that was not explained lately, and fills in the program.
// It waits at most refusedTimeout.
func (s *refusals) explain(ctx context.Context, d *carrel.Decision, from uint16, udp bool) {
	if s.link.wire.opts.Refused == nil || !s.first(*d) {
		return
	}
	if got, ok := s.tell(ctx, guest.Refusal{Event: *d, Line: guest.RefusalLine(*d), SourcePort: from, UDP: udp}); ok {
		d.Process = got.Process
	}
}

// tell tells the sandbox something, and waits for its reply, at most refusedTimeout. ok is false
// without one, and if the sandbox is being told enough already.
func (s *refusals) tell(ctx context.Context, r guest.Refusal) (got guest.RefusalReply, ok bool) {
	select {
	case s.explaining <- struct{}{}:
	default:
		return got, false
	}
	reply := make(chan guest.RefusalReply, 1)
	s.link.out.busy.Go(func() {
		defer func() { <-s.explaining }()
		reply <- s.link.wire.opts.Refused(s.link.ctx, s.link.id, r)
	})
	late := time.NewTimer(refusedTimeout)
	defer late.Stop()
	select {
	case got = <-reply:
		return got, true
	case <-late.C:
	case <-ctx.Done():
	}
	return got, false
}

// first reports whether a refusal must be explained, and notes that it was.
func (s *refusals) first(d carrel.Decision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, now := keyOf(d), time.Now()
	if at, ok := s.said[k]; ok && now.Sub(at) <= explainEvery || !s.explained.Allow() {
		return false
	}
	if len(s.said) >= maxRefusals {
		clear(s.said)
	}
	s.said[k] = now
	return true
}

// record writes a decision to the audit log. It folds equal refusals: it writes the first at once,
// and the others together after foldEvery.
func (s *refusals) record(d carrel.Decision) {
	s.link.wire.decisions.count(d.Protocol, d.Allowed)
	write := s.link.wire.opts.Audit
	if write == nil {
		return
	}
	if d.Allowed {
		write(d)
		return
	}
	k := foldKey{d.Protocol, d.Name, d.Address, d.Method, d.Path, d.Rule, d.Reason, d.Port}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	f := s.folded[k]
	if f == nil && (len(s.folded) >= maxRefusals || !s.recorded.Allow()) {
		// There are too many different refusals, so they are counted together.
		k = foldKey{rule: tooMany}
		d = carrel.Decision{Time: d.Time, ID: d.ID, Protocol: d.Protocol, Rule: "built-in: " + tooMany,
			Reason: "more refusals than the audit log takes from one sandbox"}
		f = s.folded[k]
	}
	if f != nil {
		f.more++
		f.last = d
		s.mu.Unlock()
		return
	}
	s.folded[k] = &fold{last: d, since: time.Now()}
	if s.flush == nil {
		s.flush = time.AfterFunc(foldEvery, s.sweep)
	}
	s.mu.Unlock()
	write(d)
}

const tooMany = "too many refusals"

// sweep writes the folds that are old enough.
func (s *refusals) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.writeFolded(func(f *fold) bool { return time.Since(f.since) >= foldEvery })
	s.flush = nil
	if len(s.folded) > 0 {
		s.flush = time.AfterFunc(foldEvery/2, s.sweep)
	}
}

// writeFolded writes the folds that over selects. An event stands for itself and its Repeats.
func (s *refusals) writeFolded(over func(*fold) bool) {
	for k, f := range s.folded {
		if !over(f) {
			continue
		}
		delete(s.folded, k)
		if f.more > 0 {
			f.last.Repeats = f.more - 1
			s.link.wire.opts.Audit(f.last)
		}
	}
}

// close writes the remaining folds. After that, nothing is recorded.
func (s *refusals) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	if s.flush != nil {
		s.flush.Stop()
	}
	s.writeFolded(func(*fold) bool { return true })
}

// decision describes the verdict on a flow.
func (e *egress) decision(at time.Time, f policy.Flow, v policy.Verdict) carrel.Decision {
	d := carrel.Decision{Time: at, ID: e.link.id, Allowed: v.Allow, Protocol: "tcp", Name: f.Name, Port: f.Port,
		Rule: v.Rule, Reason: v.Reason, Hint: v.Hint, Answer: v.Answer}
	switch {
	case f.UDP:
		d.Protocol = "udp"
	case f.App == policy.AppTLS:
		d.Protocol = "tls"
	case f.App == policy.AppHTTP:
		d.Protocol = "http"
	}
	if f.Addr.IsValid() {
		d.Address = f.Addr.String()
	}
	if d.Name == "" {
		d.Name = v.ByName
	}
	if d.Name == "" && len(f.Names) > 0 {
		d.Name = f.Names[0]
	}
	return d
}
