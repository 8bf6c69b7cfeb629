package wire

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	// dialStagger is how long to wait for one address of a name before the next is tried too.
	dialStagger = 300 * time.Millisecond
	// maxDialled bounds how many addresses of a name are tried.
	maxDialled = 6
)

// refusedError is a refusal that was decided while connecting to the outside.
type refusedError struct{ verdict policy.Verdict }

func (e *refusedError) Error() string { return e.verdict.Reason }

func refusedBy(err error) (policy.Verdict, bool) {
	var r *refusedError
	if errors.As(err, &r) {
		return r.verdict, true
	}
	return policy.Verdict{}, false
}

// limited returns the verdict when a limit refuses a flow that v allowed.
func limited(v policy.Verdict, full *limitError) policy.Verdict {
	return policy.Verdict{Rule: v.Rule, Index: v.Index, Reason: full.Error(), Hint: "fewer at once, or a higher limit"}
}

// connect connects an allowed flow to its destination. This is its address, or the name that it was
// allowed for, looked up again, or the proxy.
func (e *egress) connect(ctx context.Context, r *rules, f policy.Flow, v policy.Verdict) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	network := "tcp"
	if f.UDP {
		network = "udp"
	}
	switch {
	case v.Host: // never through a proxy, whose host is another
		return e.dialHost(ctx, f)
	case r.proxy != nil && f.UDP:
		return nil, &refusedError{denied("egress proxy", "only TCP goes through the proxy that is set for this sandbox")}
	case r.proxy != nil:
		return e.dialProxy(ctx, r, f, v)
	case v.ByName != "":
		// Try the address that the sandbox chose among the name's addresses first.
		to, err := e.targets(ctx, r, f, v)
		if err != nil {
			return nil, err
		}
		return e.dialFirst(ctx, network, to, f.Port)
	}
	return e.link.wire.opts.Dialer.DialContext(ctx, network, netip.AddrPortFrom(f.Addr, f.Port).String())
}

// dialHost connects to a service of this host. The policy allows it; whoever runs the wire has to
// do so too.
func (e *egress) dialHost(ctx context.Context, f policy.Flow) (net.Conn, error) {
	if f.UDP {
		return nil, &refusedError{denied("host services", "a service of the host is reached by TCP alone")}
	}
	if no := e.hostForbidden(f.Port); no != nil {
		return nil, &refusedError{*no}
	}
	// Not the wire's dialer, which may have another world outside: this is the machine itself.
	var d net.Dialer
	return d.DialContext(ctx, "tcp4", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), f.Port).String())
}

// hostForbidden is why no sandbox reaches a port of the host here, whatever its policy says; nil
// where nothing is against it. Port 0 asks about the host's services as such.
func (e *egress) hostForbidden(port uint16) *policy.Verdict {
	may := e.link.wire.opts.HostService
	if may == nil {
		v := denied("host services", "whoever runs this machine does not open its services to sandboxes")
		v.Hint = "carrel serve --allow-host-services own, or all"
		return &v
	}
	if port == 0 {
		return nil
	}
	if err := may(e.link.id, port); err != nil {
		v := denied("host services", err.Error())
		return &v
	}
	return nil
}

// dialFirst connects to the first of several addresses that answers.
func (e *egress) dialFirst(ctx context.Context, network string, to []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		c   net.Conn
		err error
	}
	results := make(chan result)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the wait
	start := func(a netip.Addr) {
		wg.Go(func() {
			c, err := e.link.wire.opts.Dialer.DialContext(ctx, network, netip.AddrPortFrom(a, port).String())
			select {
			case results <- result{c, err}:
			case <-ctx.Done():
				if c != nil {
					_ = c.Close()
				}
			}
		})
	}
	next, open := 0, 0
	var last error
	for {
		if next < len(to) {
			start(to[next])
			next++
			open++
		}
		var stagger <-chan time.Time
		if next < len(to) {
			stagger = time.After(dialStagger)
		}
		select {
		case got := <-results:
			if got.err == nil {
				return got.c, nil
			}
			last = got.err
			if open--; open == 0 && next == len(to) {
				return nil, last
			}
		case <-stagger:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// targets returns the present addresses of the name that v is for, without those that this flow may not reach. If
// none are left, it returns a refusal.
func (e *egress) targets(ctx context.Context, r *rules, f policy.Flow, v policy.Verdict) ([]netip.Addr, error) {
	all, err := e.names.lookup(ctx, r, v.ByName, f.Addr)
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, a := range all {
		if t := r.JudgeTarget(f, a); !v.Permits(t) {
			t.Ask = ""
			err = &refusedError{t}
			continue
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, err
	}
	return out[:min(len(out), maxDialled)], nil
}

func rank(a, prefer netip.Addr) int {
	switch {
	case a == prefer:
		return 0
	case a.Is4() == (prefer.Is4() || !prefer.IsValid()):
		return 1
	}
	return 2
}

// placed is a connection that holds places in limits.
type placed struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close gives the places back.
func (p *placed) Close() error {
	p.once.Do(p.leave)
	return p.Conn.Close()
}

// CloseWrite ends what is sent.
func (p *placed) CloseWrite() error {
	if h, ok := p.Conn.(half); ok {
		return h.CloseWrite()
	}
	return net.ErrClosed
}
