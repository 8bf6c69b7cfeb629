package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/policy"
	"github.com/carrel-dev/carrel/internal/wire/hello"
	"github.com/carrel-dev/carrel/internal/wire/web"
)

// inspect accepts a connection and judges it by its first bytes.
func (e *egress) inspect(f *flow, in *arrival, known policy.Flow) {
	if !in.accept() {
		return
	}
	defer context.AfterFunc(f.ctx, in.conn.abort)()
	p := e.newPeeker(in.conn)
	if len(known.Names) == 0 {
		p.end = time.Now().Add(peekUnknown)
	}
	defer p.close()
	s, err := p.look(false)
	if errors.Is(err, errSilent) {
		if done := e.listen(f, in, known, p); done {
			return
		}
		if s, err = p.look(true); errors.Is(err, errPeekSlow) && len(p.bytes) == 0 {
			asked, done := e.listenHeld(f, in, known, p)
			if done {
				return
			}
			if asked {
				p.end = time.Now().Add(peekTime)
				s, err = p.look(true)
			}
		}
	}
	switch {
	case f.ctx.Err() != nil:
		in.refuse()
	case errors.Is(err, errPeekSlow) || errors.Is(err, errPeekMemory) || errors.Is(err, hello.ErrShort) || errors.Is(err, hello.ErrMalformed):
		known.App = s.app
		e.refuse(f, in, known, denied("unreadable", err.Error()))
	case err != nil: // broken by the sandbox
		in.refuse()
	default:
		e.decide(f, in, known, s, p)
	}
}

// listen serves a connection whose sandbox waits for the other side to speak, if the policy allows
// this address alone. It returns false when the sandbox must speak first, or speaks. Then the
// sandbox's bytes decide.
func (e *egress) listen(f *flow, in *arrival, known policy.Flow, p *peeker) (done bool) {
	known.App = policy.AppOther
	r, v := e.settle(f, known)
	if !v.Allow {
		return false
	}
	return e.hear(f, in, known, r, v, p)
}

// hear serves an allowed connection until either side speaks, and then as listen says.
func (e *egress) hear(f *flow, in *arrival, known policy.Flow, r *rules, v policy.Verdict, p *peeker) (done bool) {
	bounds := r.limits.of(v.Index)
	leave, full := enterAll(bounds)
	if full != nil {
		e.refuse(f, in, known, limited(v, full))
		return true
	}
	defer leave()
	raw, err := e.connect(f.ctx, r, known, v)
	if err != nil {
		e.failed(f, in, known, v, err)
		return true
	}
	out := paced(f.ctx, raw, bounds)
	defer out.Close()
	greeting, err := firstWord(f.ctx, in.conn, out, p)
	switch {
	case f.ctx.Err() != nil:
		in.refuse()
		return true
	case len(p.bytes) > 0 && len(greeting) == 0:
		return false
	case err != nil && !errors.Is(err, io.EOF):
		in.refuse()
		return true
	}
	_ = in.conn.SetWriteDeadline(time.Now().Add(dialTimeout))
	if _, err := in.conn.Write(greeting); err != nil {
		in.refuse()
		return true
	}
	_ = in.conn.SetWriteDeadline(time.Time{})
	e.splice(f, in, known, v, out, p)
	return true
}

// firstWord waits until either side speaks. It returns the other side's bytes. The sandbox's bytes
// are in p.
func firstWord(ctx context.Context, in, out net.Conn, p *peeker) ([]byte, error) {
	past := time.Unix(1, 0)
	defer context.AfterFunc(ctx, func() { _ = out.SetDeadline(past) })()
	type word struct {
		b   []byte
		err error
	}
	heard := make(chan word, 1)
	go func() {
		b := make([]byte, 4<<10)
		n, err := out.Read(b)
		heard <- word{b[:n], err}
		_ = in.SetReadDeadline(past)
	}()
	// The end of the sandbox's stream does not count as speaking: the other side may still answer.
	err := p.fill() // sets no deadline: the other side's goroutine may have set one
	if err == nil && !p.ended {
		_ = out.SetReadDeadline(past)
	}
	w := <-heard
	_ = in.SetReadDeadline(time.Time{})
	_ = out.SetReadDeadline(time.Time{})
	if isTimeout(w.err) {
		w.err = nil
	}
	return w.b, w.err
}

// decide judges a connection by its first bytes.
func (e *egress) decide(f *flow, in *arrival, known policy.Flow, s said, p *peeker) {
	known.App, known.Name, known.ECH = s.app, s.hello.ServerName, s.hello.ECH
	e.relearn(f, &known)
	r, v := e.settle(f, known)
	r, v = e.admit(f, in, known, r, v)
	switch {
	case !v.Allow:
		e.refuse(f, in, known, v)
	case v.Terminate || v.Requests:
		e.serveWeb(f, in, known, p.take())
	default:
		e.carry(f, in, known, r, v, p)
	}
}

// relearn looks up the name that a connection says, if this name is not among those that we
// remember for its address. After a restart of the daemon, or in a restored sandbox, programs go on
// with addresses that they already have. relearn changes nothing unless the name has that address
// and may be asked for.
func (e *egress) relearn(f *flow, known *policy.Flow) {
	if known.Name == "" || slices.Contains(known.Names, known.Name) || !known.Addr.IsValid() {
		return
	}
	if known.Names = e.answers.names(known.Addr); slices.Contains(known.Names, known.Name) {
		return
	}
	r := e.link.rules.Load()
	if !r.JudgeName(known.Name).Allow || !e.names.pace.Allow() {
		return
	}
	if _, err := e.names.lookup(f.ctx, r, known.Name, known.Addr); err == nil {
		known.Names = e.answers.names(known.Addr)
	}
}

// serveWeb hands a connection to the HTTP proxy. first holds the bytes that were read already.
func (e *egress) serveWeb(f *flow, in *arrival, known policy.Flow, first []byte) {
	// f.request marks the flow as HTTP, even before the first request.
	f.mu.Lock()
	f.request = f.known
	f.mu.Unlock()
	e.link.wire.web.Serve(f.ctx, &replay{in.conn, first}, &web.Session{
		ID: e.link.id, Addr: known.Addr, Port: known.Port, Names: known.Names,
		TLS: known.App == policy.AppTLS, ServerName: known.Name,
		Judge: func(k policy.Flow) policy.Verdict {
			e.relearn(f, &k)
			v := e.judgeRequest(f, in, k)
			if v.Allow {
				f.mu.Lock()
				f.request = &k
				f.mu.Unlock()
			}
			return v
		},
		Dial: func(ctx context.Context, k policy.Flow, v policy.Verdict) (net.Conn, error) {
			return e.dialRequest(ctx, f, k, v)
		},
		Request: func(ctx context.Context, v policy.Verdict) error {
			return request(ctx, e.link.rules.Load().limits.of(v.Index))
		},
		Report: func(ctx context.Context, d carrel.Decision) {
			if !d.Allowed {
				e.refusals.explain(ctx, &d, f.from, false)
			}
			e.refusals.record(d)
		},
	})
}

// dialRequest connects to a request's destination.
func (e *egress) dialRequest(ctx context.Context, f *flow, k policy.Flow, v policy.Verdict) (net.Conn, error) {
	r := e.link.rules.Load()
	bounds := r.limits.of(v.Index)
	leave, full := enterAll(bounds)
	if full != nil {
		e.refuseRequest(ctx, f, k, limited(v, full))
		return nil, full
	}
	c, err := e.connect(ctx, r, k, v)
	if err != nil {
		leave()
		if no, ok := refusedBy(err); ok {
			e.refuseRequest(ctx, f, k, no)
		}
		return nil, err
	}
	return &placed{Conn: paced(f.ctx, c, bounds), leave: leave}, nil
}

// refuseRequest explains and records why an allowed request can't be sent.
func (e *egress) refuseRequest(ctx context.Context, f *flow, k policy.Flow, v policy.Verdict) {
	v.Allow = false
	d := e.decision(time.Now(), k, v)
	if d.Method, d.Path = k.Method, k.Path; k.Opened {
		d.Protocol = "https"
	}
	e.refusals.explain(ctx, &d, f.from, false)
	e.refusals.record(d)
}

// replay is a connection whose first bytes were read already.
type replay struct {
	*guestConn
	first []byte
}

// Read returns the first bytes, and then those of the connection.
func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.guestConn.Read(b)
}
