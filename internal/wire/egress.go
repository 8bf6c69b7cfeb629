package wire

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/policy"
)

const (
	// dialTimeout bounds a connection attempt to the outside.
	dialTimeout = 30 * time.Second
	// maxHalfOpen bounds one sandbox's handshakes under way.
	maxHalfOpen = 512
	// maxResolving bounds one sandbox's DNS sessions.
	maxResolving = 128
	// maxLocal bounds one sandbox's connections to its host.
	maxLocal = 8
	dnsPort  = 53
	httpPort = 80
)

// egress handles the packets that the sandbox sends out. The stack itself answers packets that
// egress does not take, with a reset or port unreachable. This costs no goroutine, and it is how a
// closed sandbox is served.
type egress struct {
	link     *Link
	tcp      *tcp.Forwarder
	once     sync.Once
	answers  *answers
	refusals *refusals
	names    *nameService
	buffers  buffers // for what is carried

	mu       sync.Mutex
	closed   bool
	flows    map[*flow]struct{}
	conns    int // of flows, TCP ones
	sessions int // UDP ones
	dns      int // at the gateway
	local    int // connections to the gateway, for Options.Local
	busy     sync.WaitGroup
}

func newEgress(l *Link) *egress {
	e := &egress{link: l, flows: make(map[*flow]struct{}), answers: newAnswers()}
	e.refusals = newRefusals(l)
	e.names = newNameService(e)
	return e
}

// gateway reports whether an address is the gateway's own.
func (e *egress) gateway(a tcpip.Address) bool {
	for _, g := range e.link.ep.gw {
		if g == a {
			return true
		}
	}
	return false
}

func netipAddr(a tcpip.Address) netip.Addr {
	n, _ := netip.AddrFromSlice(a.AsSlice())
	return n.Unmap()
}

var metadata = addr(guest.MetadataIPv4)

// ownPort reports whether a connection is for one of the gateway's own ports, and of which kind it
// is.
func (e *egress) ownPort(id stack.TransportEndpointID) (flowKind, bool) {
	gateway, serves := e.gateway(id.LocalAddress), e.link.wire.opts.Local != nil
	switch {
	case gateway && id.LocalPort == dnsPort:
		return flowDNS, true
	case gateway && serves && (id.LocalPort == guest.HostPort || id.LocalPort == httpPort),
		serves && id.LocalAddress == metadata && id.LocalPort == httpPort:
		return flowLocal, true
	}
	return flowTCP, false
}

// redirected reports whether our resolver answers a question to another name server. It does where
// all destinations are open and only names are denied. A server that a rule opens is asked itself.
func (e *egress) redirected(known policy.Flow) bool {
	if known.Port != dnsPort {
		return false
	}
	r := e.link.rules.Load()
	v := r.Judge(known)
	return (v.Allow || v.Inspect) && r.everywhere(known, v)
}

// flowTo describes a connection at its first packet.
func (e *egress) flowTo(id stack.TransportEndpointID, udp bool) policy.Flow {
	to := netipAddr(id.LocalAddress)
	return policy.Flow{UDP: udp, Addr: to, Port: id.LocalPort, Names: e.answers.names(to)}
}

// handleTCP takes SYNs that the policy may allow, and those to the gateway's own ports. The stack
// answers refusals that were explained already.
func (e *egress) handleTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	if f := header.TCP(pkt.TransportHeader().Slice()).Flags(); !f.Contains(header.TCPFlagSyn) || f.Contains(header.TCPFlagAck) {
		return false
	}
	if _, own := e.ownPort(id); !own {
		known := e.flowTo(id, false)
		r := e.link.rules.Load()
		if v := r.Judge(known); !v.Allow && !v.Inspect && v.Ask == "" && !r.nameable(known) {
			d := e.decision(time.Now(), known, v)
			if !e.refusals.unexplained(d) {
				e.refusals.record(d)
				return false
			}
		}
	}
	e.once.Do(func() {
		e.tcp = tcp.NewForwarder(e.link.stack, firstWindow, maxHalfOpen, e.serveTCP)
	})
	return e.tcp.HandlePacket(id, pkt)
}

func (e *egress) serveTCP(r *tcp.ForwarderRequest) {
	id := r.ID()
	in := &arrival{request: r, fit: e.fit}
	kind, own := e.ownPort(id)
	if !own && e.redirected(e.flowTo(id, false)) {
		kind, own = flowDNS, true
	}
	f, ok := e.begin(kind, id)
	if !ok {
		if kind == flowTCP {
			e.refusals.record(e.decision(time.Now(), e.flowTo(id, false), denied("connections at once", "the sandbox has too many open connections")))
		}
		in.refuse()
		return
	}
	defer e.end(f)
	defer in.close()
	if own {
		e.serveOwn(f, in)
		return
	}
	defer e.answers.hold(f.to.Addr())()
	e.serveOut(f, in, e.flowTo(id, false))
}

// serveOwn serves a connection to one of the gateway's own ports.
func (e *egress) serveOwn(f *flow, in *arrival) {
	if !in.accept() {
		return
	}
	if f.kind == flowDNS {
		e.names.serveStream(f, in.conn)
		return
	}
	defer context.AfterFunc(f.ctx, func() { _ = in.conn.Close() })()
	e.link.wire.opts.Local(e.link.id, in.conn)
}

// serveOut serves a connection to the outside. If the address alone can't decide, it accepts the
// connection and inspects it. Nothing leaves before the connection is allowed.
func (e *egress) serveOut(f *flow, in *arrival, known policy.Flow) {
	r, v := e.settle(f, known)
	if v.Ask != "" {
		r, v = e.admit(f, in, known, r, v)
	} else if v.Inspect || !v.Allow && r.nameable(known) {
		e.inspect(f, in, known)
		return
	}
	if !v.Allow {
		e.refuse(f, in, known, v)
		return
	}
	e.carry(f, in, known, r, v, nil)
}

// refuse explains a refusal, records it and resets the connection.
func (e *egress) refuse(f *flow, in *arrival, known policy.Flow, v policy.Verdict) {
	v.Allow = false
	d := e.decision(f.started, known, v)
	e.refusals.explain(f.ctx, &d, f.from, known.UDP)
	e.refusals.record(d)
	in.refuse()
}

// carry connects an allowed connection to the outside, and only then completes its handshake, if
// that is not done. So the sandbox sees a refusal from outside as a refusal. first, if not nil,
// holds the bytes that were read already.
func (e *egress) carry(f *flow, in *arrival, known policy.Flow, r *rules, v policy.Verdict, first *peeker) {
	bounds := r.limits.of(v.Index)
	leave, full := enterAll(bounds)
	if full != nil {
		e.refuse(f, in, known, limited(v, full))
		return
	}
	defer leave()
	out, err := e.connect(f.ctx, r, known, v)
	if err != nil {
		e.failed(f, in, known, v, err)
		return
	}
	defer out.Close()
	e.splice(f, in, known, v, paced(f.ctx, out, bounds), first)
}

// failed ends an allowed connection that could not be made.
func (e *egress) failed(f *flow, in *arrival, known policy.Flow, v policy.Verdict, err error) {
	if no, ok := refusedBy(err); ok {
		e.refuse(f, in, known, no)
		return
	}
	d := e.decision(f.started, known, v)
	d.Reason, d.Duration = err.Error(), time.Since(f.started)
	e.refusals.record(d)
	in.refuse()
}

// splice moves the bytes of an allowed connection until it ends, and records it.
func (e *egress) splice(f *flow, in *arrival, known policy.Flow, v policy.Verdict, out net.Conn, first *peeker) {
	if f.ctx.Err() != nil || !in.accept() {
		return
	}
	d := e.decision(f.started, known, v)
	var said int64
	if first != nil {
		_ = out.SetWriteDeadline(time.Now().Add(dialTimeout))
		n, err := out.Write(first.take())
		if err != nil {
			in.refuse()
			return
		}
		_ = out.SetWriteDeadline(time.Time{})
		said = int64(n)
	}
	d.Sent, d.Received = splice(f.ctx, &e.buffers, in.conn, out)
	d.Sent += said
	d.Duration = time.Since(f.started)
	e.refusals.record(d)
	if f.ctx.Err() != nil {
		in.refuse() // cut: the sandbox must not take it for a normal end
	}
}

// arrival is a connection that the sandbox is opening.
type arrival struct {
	request *tcp.ForwarderRequest // nil once it is answered
	fit     func(tcpip.Endpoint)  // sizes its buffers
	conn    *guestConn            // once it is accepted
}

// guestConn is the sandbox's connection.
type guestConn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint

	mu     sync.Mutex
	closed bool
}

// Close ends it in good order.
func (c *guestConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	return c.TCPConn.Close()
}

// abort resets it.
func (c *guestConn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.endpoint.Abort()
	}
}

// accept completes the sandbox's handshake, if that is not done.
func (a *arrival) accept() bool {
	if a.conn != nil {
		return true
	}
	if a.request == nil {
		return false
	}
	r := a.request
	a.request = nil
	var wq waiter.Queue
	ep, terr := r.CreateEndpoint(&wq)
	if terr != nil {
		r.Complete(true)
		return false
	}
	r.Complete(false)
	ep.SocketOptions().SetDelayOption(false)
	ep.SocketOptions().SetKeepAlive(true)
	a.fit(ep)
	a.conn = &guestConn{TCPConn: gonet.NewTCPConn(&wq, ep), endpoint: ep}
	return true
}

// refuse resets the connection, accepted or not.
func (a *arrival) refuse() {
	switch {
	case a.request != nil:
		a.request.Complete(true)
		a.request = nil
	case a.conn != nil:
		a.conn.abort()
	}
}

// close releases everything still held. An arrival that was not answered is refused.
func (a *arrival) close() {
	if a.request != nil {
		a.refuse()
	}
	if a.conn != nil {
		_ = a.conn.Close()
	}
}
