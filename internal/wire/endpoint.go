package wire

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// The bounds of a link's MTU: the smallest that IPv6 allows, and the size of the largest IPv4
// packet.
const (
	minMTU = 1280
	maxMTU = 65535
)

var errMTU = errors.New("the link's MTU must be between 1280 and 65535")

// stallLimit is how long one frame waits for a sandbox that does not read its link, for example a
// frozen one. After that, frames are dropped at once until the sandbox reads again, and TCP repairs
// the loss. So the stack's goroutines never hang for ever.
const stallLimit = time.Second

// endpoint carries Ethernet frames between the stack and a link's file (see device). It waits in
// the runtime's network poller, so an idle link costs one parked goroutine and no thread. gVisor's
// own fdbased endpoint needs a thread for each link, which is too much for hundreds of sandboxes.
type endpoint struct {
	device
	mtu uint32
	// checksums is LinkSpec.Checksums.
	checksums bool
	mac       tcpip.LinkAddress
	// peer is the address of the link's other end, the only one there. With it, packets need no
	// address resolution, and the stack needs no caches for that, 43 KiB each link.
	peer tcpip.LinkAddress
	gw   []tcpip.Address // the gateway's own addresses; only they answer pings
	// lingers reports whether a connection has ended but the stack still remembers it. waiting
	// counts the frames that wait for such a connection.
	lingers func(tcpip.NetworkProtocolNumber, stack.TransportEndpointID) bool
	waiting atomic.Int32

	// tx serialises writers. So frames keep their order while one waits.
	tx      sync.Mutex
	stalled bool // under tx: the last frame timed out
	dropped atomic.Uint64
	inward  atomic.Int64 // bytes of all frames that the other end sent
	outward atomic.Int64 // bytes of all frames that it was sent
	closing atomic.Bool

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher

	readers sync.WaitGroup
	onDown  func() // called once when the other end is gone
}

var (
	_ stack.LinkEndpoint = (*endpoint)(nil)
	_ stack.GSOEndpoint  = (*endpoint)(nil)
)

// newEndpoint takes over fd.
func newEndpoint(fd *os.File, mtu int, mac, peer string) (*endpoint, error) {
	self, err := tcpip.ParseMACAddress(mac)
	if err != nil {
		_ = fd.Close()
		return nil, err
	}
	other, err := tcpip.ParseMACAddress(peer)
	if err != nil {
		_ = fd.Close()
		return nil, err
	}
	d, err := openDevice(fd, mtu)
	if err != nil {
		return nil, err
	}
	return &endpoint{device: d, mtu: uint32(mtu), mac: self, peer: other}, nil
}

// close stops the reader, fails every waiting writer and waits for the reader.
func (e *endpoint) close() {
	e.closing.Store(true)
	_ = e.file.Close()
	e.readers.Wait()
}

// read delivers frames until the file is closed here or at the other end.
func (e *endpoint) read() {
	defer e.readers.Done()
	for {
		frame, err := e.receive()
		if err != nil {
			if !e.closing.Load() && e.onDown != nil {
				e.onDown()
			}
			return
		}
		e.inward.Add(int64(frame.Size()))
		e.deliver(frame, 0)
	}
}

// deliver gives one frame to the stack, and releases it. waited is how often the frame has waited
// for a lingering connection.
func (e *endpoint) deliver(frame *buffer.View, waited int) {
	b := frame.AsSlice()
	if len(b) < header.EthernetMinimumSize {
		frame.Release()
		return
	}
	eth := header.Ethernet(b)
	dst := eth.DestinationAddress()
	group := b[0]&1 == 1
	e.mu.RLock()
	d := e.dispatcher
	e.mu.RUnlock()
	if d == nil || !group && dst != e.mac || e.strayEcho(eth.Type(), b[header.EthernetMinimumSize:]) {
		frame.Release()
		return
	}
	if e.wait(eth.Type(), frame, waited) {
		return
	}
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(frame)})
	defer pkt.DecRef()
	pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	pkt.NetworkProtocolNumber = eth.Type()
	// The frame came through memory, so nothing could damage it on the way.
	pkt.RXChecksumValidated = true
	switch {
	case dst == header.EthernetBroadcastAddress:
		pkt.PktType = tcpip.PacketBroadcast
	case group:
		pkt.PktType = tcpip.PacketMulticast
	}
	d.DeliverNetworkPacket(pkt.NetworkProtocolNumber, pkt)
}

// strayEcho finds pings to addresses other than the gateway. The stack accepts packets for every
// address, so it would answer these pings, and the sandbox would believe that it reaches the world.
func (e *endpoint) strayEcho(proto tcpip.NetworkProtocolNumber, b []byte) bool {
	var to tcpip.Address
	switch proto {
	case header.IPv4ProtocolNumber:
		ip := header.IPv4(b)
		if !ip.IsValid(len(b)) || ip.TransportProtocol() != header.ICMPv4ProtocolNumber ||
			len(ip.Payload()) == 0 || header.ICMPv4Type(ip.Payload()[0]) != header.ICMPv4Echo {
			return false
		}
		to = ip.DestinationAddress()
	case header.IPv6ProtocolNumber:
		ip := header.IPv6(b)
		if !ip.IsValid(len(b)) || ip.NextHeader() != uint8(header.ICMPv6ProtocolNumber) ||
			len(ip.Payload()) == 0 || header.ICMPv6Type(ip.Payload()[0]) != header.ICMPv6EchoRequest {
			return false
		}
		to = ip.DestinationAddress()
	default:
		return false
	}
	for _, a := range e.gw {
		if a == to {
			return false
		}
	}
	return true
}

// WritePackets sends frames. It waits while the link is full.
func (e *endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	e.tx.Lock()
	defer e.tx.Unlock()
	all := pkts.AsSlice()
	for sent := 0; sent < len(all); {
		n, err := e.sendSome(all[sent:])
		for _, pkt := range all[sent : sent+n] {
			e.outward.Add(int64(pkt.Size()))
		}
		sent += n
		if err != nil {
			e.dropped.Add(uint64(len(all) - sent))
			if errors.Is(err, os.ErrClosed) || gone(err) {
				return sent, &tcpip.ErrClosedForSend{}
			}
			return sent, &tcpip.ErrNoBufferSpace{}
		}
	}
	return len(all), nil
}

// sendSome writes the first packets. It writes one, or on a stream as many as go at once. The
// caller holds tx.
func (e *endpoint) sendSome(pkts []*stack.PacketBuffer) (sent int, err error) {
	if e.kind != stream {
		parts := e.parts(pkts[0])
		if err := e.send(func(fd int) (bool, error) { return e.write(fd, parts) }); err != nil {
			return 0, err
		}
		return 1, nil
	}
	taken := e.batch.gather(pkts)
	err = e.send(e.writeBatch)
	return e.batch.finish(taken), err
}

// send calls write until it has written everything, or until the link has been full for too long.
// The caller holds tx.
func (e *endpoint) send(write func(fd int) (full bool, err error)) error {
	var err error
	waiting := false
	cerr := e.conn.Write(func(fd uintptr) bool {
		var full bool
		if full, err = write(int(fd)); !full || e.stalled || e.closing.Load() {
			return true
		}
		if !waiting {
			waiting = true
			_ = e.file.SetWriteDeadline(time.Now().Add(stallLimit))
		}
		return false
	})
	if waiting {
		_ = e.file.SetWriteDeadline(time.Time{})
	}
	if cerr != nil {
		err = cerr
	}
	e.stalled = errors.Is(err, os.ErrDeadlineExceeded) || (e.stalled && err != nil)
	return err
}

// MTU is the largest IP packet.
func (e *endpoint) MTU() uint32 { return e.mtu }

// SetMTU does nothing: the MTU is fixed for the link's life.
func (e *endpoint) SetMTU(uint32) {}

// MaxHeaderLength is the size of an Ethernet header.
func (e *endpoint) MaxHeaderLength() uint16 { return header.EthernetMinimumSize }

// LinkAddress is the gateway's MAC address.
func (e *endpoint) LinkAddress() tcpip.LinkAddress { return e.mac }

// SetLinkAddress does nothing: the address is fixed.
func (e *endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities says which checksums the stack may leave out. Frames travel through memory, so a
// socket's other end does not check any, unless it is a machine's. A kernel checks all of them, except those of TCP segments
// that come with a header: see SupportedGSO.
func (e *endpoint) Capabilities() stack.LinkEndpointCapabilities {
	c := stack.LinkEndpointCapabilities(stack.CapabilityRXChecksumOffload)
	if e.kind == socket && !e.checksums {
		c |= stack.CapabilityTXChecksumOffload
	}
	return c
}

// SupportedGSO says whether the stack may send TCP segments larger than the MTU and without their
// checksum. A kernel behind a TAP device with headers accepts those.
func (e *endpoint) SupportedGSO() stack.SupportedGSO {
	if e.headed() {
		return stack.HostGSOSupported
	}
	return stack.GSONotSupported
}

// GSOMaxSize is the size of the largest such segment, which is the largest IPv4 packet.
func (e *endpoint) GSOMaxSize() uint32 { return maxMTU }

// Attach sets the dispatcher. It reads nothing yet: see start.
func (e *endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dispatcher = d
}

// start begins to read. Its caller has enabled the stack's interface: until then the stack drops
// what it is given, and the sandbox may have sent its first question for a name long ago.
func (e *endpoint) start() {
	e.readers.Add(1)
	go e.read()
}

// IsAttached reports whether a dispatcher is set.
func (e *endpoint) IsAttached() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.dispatcher != nil
}

// Wait does nothing: close has waited before the stack is destroyed.
func (e *endpoint) Wait() {}

// ARPHardwareType is Ethernet.
func (e *endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader adds the Ethernet header.
func (e *endpoint) AddHeader(pkt *stack.PacketBuffer) {
	eth := header.Ethernet(pkt.LinkHeader().Push(header.EthernetMinimumSize))
	dst := pkt.EgressRoute.RemoteLinkAddress // set for an answer to ARP or NDP
	if dst == "" {
		dst = e.peer
	}
	eth.Encode(&header.EthernetFields{
		SrcAddr: e.mac,
		DstAddr: dst,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader removes the Ethernet header.
func (e *endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(header.EthernetMinimumSize)
	return ok
}

// Close does nothing: the link closes the file.
func (e *endpoint) Close() {}

// SetOnCloseAction does nothing: there is no device to remove.
func (e *endpoint) SetOnCloseAction(func()) {}
