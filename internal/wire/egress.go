package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// dialTimeout bounds a connection attempt to the outside.
	dialTimeout = 30 * time.Second
	// maxHalfOpen bounds one sandbox's handshakes under way.
	maxHalfOpen = 512
	// maxResolving bounds one sandbox's DNS sessions.
	maxResolving = 128
	dnsPort      = 53
)

// egress is what a link does with what the sandbox sends out. A packet that it
// does not take is answered by the stack itself, with a reset or port
// unreachable, which costs no goroutine: that is how a closed sandbox is served.
type egress struct {
	link *Link
	tcp  *tcp.Forwarder
	once sync.Once

	mu       sync.Mutex
	closed   bool
	flows    map[*flow]struct{}
	conns    int // of flows, TCP ones
	sessions int // UDP ones
	dns      int // at the gateway
	busy     sync.WaitGroup
}

// flow is one connection, session or question of the sandbox that the daemon
// serves. cut ends it.
type flow struct {
	kind   flowKind
	to     netip.Addr
	ctx    context.Context
	cancel context.CancelFunc
}

type flowKind int

const (
	flowTCP flowKind = iota
	flowUDP
	flowDNS
)

func newEgress(l *Link) *egress { return &egress{link: l, flows: make(map[*flow]struct{})} }

// begin registers a flow, or says no: closing, or over the limit.
func (e *egress) begin(kind flowKind, to netip.Addr) (*flow, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	count, limit := e.counter(kind)
	if e.closed || *count >= limit {
		return nil, false
	}
	*count++
	f := &flow{kind: kind, to: to}
	f.ctx, f.cancel = context.WithCancel(e.link.ctx)
	e.flows[f] = struct{}{}
	e.busy.Add(1)
	return f, true
}

func (e *egress) end(f *flow) {
	f.cancel()
	e.mu.Lock()
	count, _ := e.counter(f.kind)
	*count--
	delete(e.flows, f)
	e.mu.Unlock()
	e.busy.Done()
}

func (e *egress) counter(kind flowKind) (count *int, limit int) {
	switch kind {
	case flowTCP:
		return &e.conns, e.link.wire.opts.MaxConns
	case flowUDP:
		return &e.sessions, e.link.wire.opts.MaxSessions
	default:
		return &e.dns, maxResolving
	}
}

// cutAll ends every flow without waiting.
func (e *egress) cutAll() { e.cut(func(*flow) bool { return true }) }

// recheck ends the flows that the policy of now forbids.
func (e *egress) recheck() {
	e.cut(func(f *flow) bool { return f.kind != flowDNS && !e.allows(f.to) })
}

func (e *egress) cut(which func(*flow) bool) {
	e.mu.Lock()
	var cut []*flow
	for f := range e.flows {
		cut = append(cut, f)
	}
	e.mu.Unlock()
	for _, f := range cut {
		if which(f) {
			f.cancel()
		}
	}
}

// close ends every flow and waits.
func (e *egress) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cutAll()
	e.busy.Wait()
}

func (e *egress) allows(to netip.Addr) bool {
	return e.link.policy.Load().Allows(to) && !e.link.wire.host.has(to)
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

// handleTCP takes SYNs that the policy allows, and questions to the resolver.
func (e *egress) handleTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	resolver := e.gateway(id.LocalAddress) && id.LocalPort == dnsPort
	if !resolver && !e.allows(netipAddr(id.LocalAddress)) {
		return false
	}
	e.once.Do(func() {
		e.tcp = tcp.NewForwarder(e.link.stack, firstWindow, maxHalfOpen, e.serveTCP)
	})
	return e.tcp.HandlePacket(id, pkt)
}

// serveTCP connects to what the sandbox asked for and only then completes its
// handshake: a refusal outside is a refusal inside.
func (e *egress) serveTCP(r *tcp.ForwarderRequest) {
	id := r.ID()
	to := netipAddr(id.LocalAddress)
	kind := flowTCP
	if e.gateway(id.LocalAddress) {
		kind = flowDNS
	}
	f, ok := e.begin(kind, to)
	if !ok {
		r.Complete(true)
		return
	}
	defer e.end(f)
	if kind == flowDNS {
		if in, ok := accept(r); ok {
			defer in.Close()
			e.resolveStream(f, in)
		}
		return
	}
	out, err := e.dial(f, "tcp", netip.AddrPortFrom(to, id.LocalPort))
	if err != nil {
		r.Complete(true)
		return
	}
	defer out.Close()
	in, ok := accept(r)
	if !ok {
		return
	}
	defer in.Close()
	splice(f.ctx, in, out)
}

// dial asks the policy once more, since it may have changed, and connects.
func (e *egress) dial(f *flow, network string, to netip.AddrPort) (net.Conn, error) {
	if !e.allows(to.Addr()) {
		return nil, errors.New("denied")
	}
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	return e.link.wire.opts.Dialer.DialContext(ctx, network, to.String())
}

// accept completes the sandbox's handshake.
func accept(r *tcp.ForwarderRequest) (*gonet.TCPConn, bool) {
	var wq waiter.Queue
	ep, terr := r.CreateEndpoint(&wq)
	if terr != nil {
		r.Complete(true)
		return nil, false
	}
	r.Complete(false)
	ep.SocketOptions().SetDelayOption(false)
	ep.SocketOptions().SetKeepAlive(true)
	return gonet.NewTCPConn(&wq, ep), true
}

// half is a connection whose two directions close separately.
type half interface {
	net.Conn
	CloseWrite() error
}

// splice copies both ways until both have ended or ctx ends. The end of one
// direction closes only that one.
func splice(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = a.SetDeadline(past)
		_ = b.SetDeadline(past)
	})
	defer stop()
	var wg sync.WaitGroup
	for _, d := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, err := io.Copy(d[0], d[1])
			h, ok := d[0].(half)
			if err != nil || !ok || h.CloseWrite() != nil {
				// Broken, not ended: the other direction has no use either.
				past := time.Unix(1, 0)
				_ = a.SetDeadline(past)
				_ = b.SetDeadline(past)
			}
		})
	}
	wg.Wait()
}

// handleUDP takes first packets of sessions that the policy allows.
func (e *egress) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	to := netipAddr(id.LocalAddress)
	kind := flowUDP
	if e.gateway(id.LocalAddress) && id.LocalPort == dnsPort {
		kind = flowDNS
	} else if !e.allows(to) {
		return false
	}
	f, ok := e.begin(kind, to)
	if !ok {
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
			e.resolvePackets(f, in)
		} else {
			e.serveUDP(f, in, netip.AddrPortFrom(to, id.LocalPort))
		}
	}()
	return true
}

// serveUDP relays one session until it is silent for UDPIdle.
func (e *egress) serveUDP(f *flow, in net.Conn, to netip.AddrPort) {
	out, err := e.dial(f, "udp", to)
	if err != nil {
		return
	}
	defer out.Close()
	idle := e.link.wire.opts.UDPIdle
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	alive := time.AfterFunc(idle, cancel)
	defer alive.Stop()
	stop := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		_ = in.SetDeadline(past)
		_ = out.SetDeadline(past)
	})
	defer stop()
	var wg sync.WaitGroup
	for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			defer cancel()
			buf := make([]byte, header.UDPMaximumPacketSize)
			for {
				n, err := d[1].Read(buf)
				if err != nil {
					return
				}
				alive.Reset(idle)
				if _, err := d[0].Write(buf[:n]); err != nil && ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}
