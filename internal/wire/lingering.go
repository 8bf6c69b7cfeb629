package wire

import (
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// A connection that the outside ended first lingers here (TIME-WAIT), while the sandbox, which is through with it, may take the
// same port for the next one at once. gVisor's stack gives such a SYN to whoever listens; here nobody does, connections are
// forwarded, and it is dropped, for the sandbox to repeat it after a second, or answered with a reset if the lingering ends
// just then. So it waits for that end before the stack sees it.

const (
	// lingering is how long TIME-WAIT lasts. On this wire no segment can be late, so that it is only for a last
	// acknowledgement that was lost: a sandbox that repeats its end later gets a reset for it, which nobody reads any more.
	lingering = 10 * time.Millisecond
	// maxWaiting bounds the SYNs of one sandbox that wait, maxWaits how often one does, maxOpening how long one is.
	maxWaiting, maxWaits, maxOpening = maxHalfOpen, 20, 256
)

// wait keeps a frame back that opens a connection while the one before from the same port lingers, and gives it to the stack
// later. It returns false for all others.
func (e *endpoint) wait(proto tcpip.NetworkProtocolNumber, frame *buffer.View, waited int) bool {
	if waited == maxWaits || e.lingers == nil || frame.Size() > maxOpening {
		return false
	}
	id, ok := opens(proto, frame.AsSlice()[header.EthernetMinimumSize:])
	if !ok || !e.lingers(proto, id) {
		return false
	}
	if e.waiting.Add(1) > maxWaiting {
		e.waiting.Add(-1)
		return false
	}
	e.readers.Go(func() {
		time.Sleep(lingering)
		e.waiting.Add(-1)
		e.deliver(frame, waited+1)
	})
	return true
}

// opens finds the connection that a packet opens: a SYN that answers none.
func opens(proto tcpip.NetworkProtocolNumber, b []byte) (id stack.TransportEndpointID, ok bool) {
	var segment header.TCP
	switch proto {
	case header.IPv4ProtocolNumber:
		ip := header.IPv4(b)
		if !ip.IsValid(len(b)) || ip.TransportProtocol() != header.TCPProtocolNumber || ip.FragmentOffset() != 0 {
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = ip.DestinationAddress(), ip.SourceAddress(), ip.Payload()
	case header.IPv6ProtocolNumber:
		ip := header.IPv6(b)
		if !ip.IsValid(len(b)) || ip.NextHeader() != uint8(header.TCPProtocolNumber) {
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = ip.DestinationAddress(), ip.SourceAddress(), ip.Payload()
	default:
		return id, false
	}
	if len(segment) < header.TCPMinimumSize || segment.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return id, false
	}
	id.LocalPort, id.RemotePort = segment.DestinationPort(), segment.SourcePort()
	return id, true
}

// lingers reports whether a connection is over, and still in the stack's books.
func (l *Link) lingers(proto tcpip.NetworkProtocolNumber, id stack.TransportEndpointID) bool {
	ep, ok := l.stack.FindTransportEndpoint(proto, tcp.ProtocolNumber, id, nicID).(*tcp.Endpoint)
	if !ok {
		return false
	}
	switch tcp.EndpointState(ep.State()) {
	case tcp.StateTimeWait, tcp.StateClose, tcp.StateError:
		return true
	}
	return false
}
