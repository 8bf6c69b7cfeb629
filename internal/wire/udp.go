package wire

import (
	"context"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/carrel-dev/carrel/internal/policy"
)

// handleUDP takes the first packets of sessions that the policy allows. The stack answers all
// others at once, explained or not, because nothing may wait here.
func (e *egress) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	known := e.flowTo(id, true)
	kind := flowUDP
	if own, _ := e.ownPort(id); own == flowDNS || e.redirected(known) {
		kind = flowDNS
	}
	f, ok := e.begin(kind, id)
	if !ok {
		if kind == flowUDP {
			e.refusals.record(e.decision(time.Now(), known, denied("sessions at once", "the sandbox has too many UDP sessions")))
		}
		return false
	}
	if kind == flowUDP && !e.allowUDP(f, known) {
		return false
	}
	var wq waiter.Queue
	ep, terr := udp.NewForwarderRequest(e.link.stack, id, pkt.Clone()).CreateEndpoint(&wq)
	if terr != nil {
		e.end(f)
		return false
	}
	in := gonet.NewUDPConn(&wq, ep)
	go func() {
		defer e.end(f)
		defer in.Close()
		if kind == flowDNS {
			e.names.servePackets(f, in)
			return
		}
		defer e.answers.hold(f.to.Addr())()
		e.serveUDP(f, in, known)
	}()
	return true
}

// allowUDP judges a session. When it is refused, f has ended or will soon.
func (e *egress) allowUDP(f *flow, known policy.Flow) bool {
	r, v := e.settle(f, known)
	if v.Allow && r.proxy != nil {
		v = proxyUDP
	}
	if v.Allow && !v.Inspect {
		return true
	}
	v.Allow = false
	d := e.decision(f.started, known, v)
	if !e.refusals.unexplained(d) {
		e.refusals.record(d)
		e.end(f)
		return false
	}
	go func() {
		defer e.end(f)
		e.refusals.explain(f.ctx, &d, f.from, true)
		e.refusals.record(d)
	}()
	return false
}

var proxyUDP = denied("egress proxy", "only TCP goes through the proxy that is set for this sandbox")

// serveUDP relays one session until it was silent for UDPIdle.
func (e *egress) serveUDP(f *flow, in net.Conn, known policy.Flow) {
	r, v := e.settle(f, known) // the policy may have changed
	if !v.Allow {
		return
	}
	d := e.decision(f.started, known, v)
	bounds := r.limits.of(v.Index)
	leave, full := enterAll(bounds)
	if full != nil {
		e.refusals.record(e.decision(f.started, known, limited(v, full)))
		return
	}
	defer leave()
	out, err := e.connect(f.ctx, r, known, v)
	if err != nil {
		if no, ok := refusedBy(err); ok {
			d = e.decision(f.started, known, no)
		} else {
			d.Reason = err.Error()
		}
		e.refusals.record(d)
		return
	}
	defer out.Close()
	d.Sent, d.Received = relay(f.ctx, in, out, e.link.wire.opts.UDPIdle, bounds)
	d.Duration = time.Since(f.started)
	e.refusals.record(d)
}

// relay moves datagrams both ways until none came for idle, or ctx ends. It drops datagrams over
// the limits, as any wire does.
func relay(ctx context.Context, in, out net.Conn, idle time.Duration, bounds []*limit) (sent, received int64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alive := time.AfterFunc(idle, cancel)
	defer alive.Stop()
	defer context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = in.SetDeadline(past)
		_ = out.SetDeadline(past)
	})()
	var wg sync.WaitGroup
	for _, d := range []struct {
		to, from net.Conn
		count    *int64
		pace     func(*limit) *rate.Limiter
	}{
		{out, in, &sent, func(l *limit) *rate.Limiter { return l.send }},
		{in, out, &received, func(l *limit) *rate.Limiter { return l.receive }},
	} {
		wg.Go(func() {
			defer cancel()
			buf := make([]byte, header.UDPMaximumPacketSize)
			for {
				n, err := d.from.Read(buf)
				if err != nil {
					return
				}
				alive.Reset(idle)
				if !passes(bounds, d.pace, n) {
					continue
				}
				if _, err := d.to.Write(buf[:n]); err != nil && ctx.Err() != nil {
					return
				}
				*d.count += int64(n)
			}
		})
	}
	wg.Wait()
	return sent, received
}

// passes reports whether the limits let n bytes pass now.
func passes(bounds []*limit, pace func(*limit) *rate.Limiter, n int) bool {
	for _, l := range bounds {
		if p := pace(l); p != nil && !p.AllowN(time.Now(), min(n, p.Burst())) {
			return false
		}
	}
	return true
}
