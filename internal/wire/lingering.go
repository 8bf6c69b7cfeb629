package wire

import (
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// When the outside ends a connection first, the connection lingers in the stack (TIME-WAIT). For
// the sandbox it is over, so the sandbox may use the same port for its next connection at once.
// gVisor's stack gives such a SYN to the port's listener. But forwarded connections have no
// listener. So the stack would drop the SYN, and the sandbox would repeat it after a second. Or, if
// the lingering ended just then, the stack would answer with a reset. Therefore the SYN waits here
// until the lingering ends.

const (
	// lingering is how long TIME-WAIT lasts. On this wire no segment can be late, so TIME-WAIT is
	// only needed when a last acknowledgement was lost. A sandbox that repeats its end after that
	// gets a reset, which no program sees any more.
	lingering = 10 * time.Millisecond
	// maxWaiting bounds how many SYNs of one sandbox wait, maxWaits how often one waits, and
	// maxOpening the bytes of one.
	maxWaiting, maxWaits, maxOpening = maxHalfOpen, 20, 256
)

// wait delays a SYN while the previous connection from the same port lingers, and delivers it
// later. It returns false for all other frames.
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

// opens returns the connection that a packet opens. The packet must be a SYN without an ACK.
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

// lingers reports whether a connection has ended but the stack still remembers it.
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
