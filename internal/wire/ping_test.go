package wire_test

import (
	"bytes"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// ping sends one echo request and reports whether an answer comes.
func (g *guest) ping(t testing.TB, to string, patience time.Duration) bool {
	t.Helper()
	var wq waiter.Queue
	ep, terr := g.NewEndpoint(icmp.ProtocolNumber4, ipv4.ProtocolNumber, &wq)
	if terr != nil {
		t.Fatal(terr)
	}
	defer ep.Close()
	entry, ready := waiter.NewChannelEntry(waiter.ReadableEvents)
	wq.EventRegister(&entry)
	defer wq.EventUnregister(&entry)
	if terr := ep.Connect(tcpip.FullAddress{NIC: 1, Addr: ip(to)}); terr != nil {
		t.Fatal(terr)
	}
	echo := header.ICMPv4(make([]byte, header.ICMPv4MinimumSize+8))
	echo.SetType(header.ICMPv4Echo)
	if _, terr := ep.Write(bytes.NewReader(echo), tcpip.WriteOptions{}); terr != nil {
		t.Fatal(terr)
	}
	select {
	case <-ready:
		return true
	case <-time.After(patience):
		return false
	}
}
