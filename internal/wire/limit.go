package wire

import (
	"context"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/carrel-dev/carrel"
)

const (
	// byteBurst is the least that a limit of bytes lets pass at once, so that slow limits don't cut
	// the stream into tiny pieces.
	byteBurst = 16 << 10
	// requestPatience is how long a request waits for its turn.
	requestPatience = 10 * time.Second
)

// limits are the limits of one policy, with their counters: those of the whole sandbox, and those
// of each rule.
type limits struct {
	total *limit
	rules []*limit
}

func newLimits(rules []carrel.TrafficLimits, total carrel.TrafficLimits) *limits {
	l := &limits{total: newLimit("the sandbox", total)}
	for i, r := range rules {
		l.rules = append(l.rules, newLimit(fmt.Sprintf("rule %d", i+1), r))
	}
	return l
}

// of returns the limits of a flow that the rule with this index allowed. See policy.Verdict.
func (l *limits) of(index int) []*limit {
	var out []*limit
	if l.total != nil {
		out = append(out, l.total)
	}
	if index >= 0 && index < len(l.rules) && l.rules[index] != nil {
		out = append(out, l.rules[index])
	}
	return out
}

// limit is one carrel.TrafficLimits with its counters. A rate is nil when it is not bounded.
type limit struct {
	whose             string
	conns             int
	perSecond, asking *rate.Limiter
	send, receive     *rate.Limiter

	mu   sync.Mutex
	open int
}

func newLimit(whose string, t carrel.TrafficLimits) *limit {
	if t == (carrel.TrafficLimits{}) {
		return nil
	}
	return &limit{whose: whose, conns: t.Connections, perSecond: pace(t.ConnectionsPerSecond), asking: pace(t.RequestsPerSecond),
		send: pace(float64(t.SendBytesPerSecond), byteBurst), receive: pace(float64(t.ReceiveBytesPerSecond), byteBurst)}
}

// pace makes a limiter that lets one second's amount pass at once, and at least least.
func pace(perSecond float64, least ...int) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	burst := int(math.Ceil(min(perSecond, math.MaxInt32)))
	for _, l := range least {
		burst = max(burst, l)
	}
	return rate.NewLimiter(rate.Limit(perSecond), burst)
}

// limitError says which limit refused a flow.
type limitError struct{ whose, what string }

func (e *limitError) Error() string {
	return fmt.Sprintf("%s's limit of %s is reached", e.whose, e.what)
}

// enter takes a place for a connection; leave gives it back. It returns nil on success.
func (l *limit) enter() *limitError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns > 0 && l.open >= l.conns {
		return &limitError{l.whose, fmt.Sprintf("%d connections at once", l.conns)}
	}
	if l.perSecond != nil && !l.perSecond.Allow() {
		return &limitError{l.whose, fmt.Sprintf("%g new connections per second", float64(l.perSecond.Limit()))}
	}
	l.open++
	return nil
}

func (l *limit) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// enterAll takes a place in each limit or in none.
func enterAll(ls []*limit) (leave func(), err *limitError) {
	for i, l := range ls {
		if err := l.enter(); err != nil {
			for _, entered := range ls[:i] {
				entered.leave()
			}
			return nil, err
		}
	}
	return func() {
		for _, l := range ls {
			l.leave()
		}
	}, nil
}

// request waits until each limit lets another request pass.
func request(ctx context.Context, ls []*limit) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	for _, l := range ls {
		if l.asking == nil {
			continue
		}
		if err := l.asking.Wait(ctx); err != nil {
			return &limitError{l.whose, fmt.Sprintf("%g requests per second", float64(l.asking.Limit()))}
		}
	}
	return nil
}

// paced slows a connection to the outside down if a limit bounds its bytes.
func paced(ctx context.Context, c net.Conn, ls []*limit) net.Conn {
	p := &pacedConn{Conn: c, ctx: ctx}
	for _, l := range ls {
		if l.send != nil {
			p.send = append(p.send, l.send)
		}
		if l.receive != nil {
			p.receive = append(p.receive, l.receive)
		}
	}
	if p.send == nil && p.receive == nil {
		return c
	}
	return p
}

// pacedConn is a connection to the outside with a limit on its bytes.
type pacedConn struct {
	net.Conn
	ctx           context.Context // of the flow: ends waiting
	send, receive []*rate.Limiter
}

// most is the largest piece that every limiter can let pass at once.
func most(ls []*rate.Limiter, n int) int {
	for _, l := range ls {
		n = min(n, l.Burst())
	}
	return n
}

func (p *pacedConn) wait(ls []*rate.Limiter, n int) error {
	for _, l := range ls {
		if err := l.WaitN(p.ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// Read reads first and waits afterwards, because the amount is not known before.
func (p *pacedConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b[:most(p.receive, len(b))])
	if n > 0 {
		if werr := p.wait(p.receive, n); werr != nil {
			return n, werr
		}
	}
	return n, err
}

func (p *pacedConn) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		piece := b[done:]
		piece = piece[:most(p.send, len(piece))]
		if err := p.wait(p.send, len(piece)); err != nil {
			return done, err
		}
		n, err := p.Conn.Write(piece)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// CloseWrite ends the sending direction, as splice needs it.
func (p *pacedConn) CloseWrite() error {
	if h, ok := p.Conn.(half); ok {
		return h.CloseWrite()
	}
	return net.ErrClosed
}
