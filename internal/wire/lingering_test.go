package wire_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestPortUsedAgain shows that a port can be used again at once. A server that ends its connections
// first leaves their ports in TIME-WAIT on the wire. For the sandbox they have ended, so it may use
// one for its next connection to the same server. That connection must not be refused, nor wait
// until the sandbox repeats its SYN a second later.
func TestPortUsedAgain(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("bye"))
			_ = c.Close()
		}
	}()
	defer func() { l.Close(); <-done }()
	to := l.Addr().String()
	d := &table{to: map[string]string{"203.0.113.9:80": to, "[2001:db8::9]:80": to}}
	_, _, _, g := newLink(t, wire.Options{Dialer: d, Egress: always(carrel.Network{Internet: true})})
	const times = 100
	began := time.Now()
	for _, c := range []struct {
		from, to string
		proto    tcpip.NetworkProtocolNumber
	}{{driver.GuestIPv4, "203.0.113.9", ipv4.ProtocolNumber}, {driver.GuestIPv6, "2001:db8::9", ipv6.ProtocolNumber}} {
		from, server := tcpip.FullAddress{NIC: 1, Addr: ip(c.from), Port: 40000}, tcpip.FullAddress{NIC: 1, Addr: ip(c.to), Port: 80}
		for i := range times {
			var conn *gonet.TCPConn
			// The sandbox's own end needs a moment to finish.
			testenv.EventuallyNil(t, "the port is free", func() (err error) {
				if conn, err = gonet.DialTCPWithBind(within(t, time.Minute), g.Stack, from, server, c.proto); err != nil && !strings.Contains(err.Error(), "in use") {
					t.Fatalf("connection %d to %s: %v", i, c.to, err)
				}
				return err
			})
			if said, err := io.ReadAll(conn); err != nil || string(said) != "bye" {
				t.Fatalf("connection %d to %s: %q, %v", i, c.to, said, err)
			}
			conn.Close()
		}
	}
	if took := time.Since(began); took > 2*times*time.Second/4 {
		t.Errorf("%d connections from ports in use until just before took %v", 2*times, took)
	}
}
