package wire_test

import (
	"io"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestClosedPorts scans the ports of an address that no rule allows. A port is open only where a
// name could still decide, and each refusal is one event. Allowed connections still work.
func TestClosedPorts(t *testing.T) {
	for _, kind := range sandboxKinds {
		t.Run(kind.name, func(t *testing.T) {
			w := newWorld(t)
			w.Dial["203.0.113.25"] = greeter(t)
			var log decisions
			_, _, in := kind.link(t, wire.Options{Resolver: w, Dialer: w.Table, Audit: log.add, Egress: always(carrel.Network{Policy: &carrel.Policy{
				Rules: []carrel.Rule{
					{Allow: []string{"api.example.com"}},
					{Allow: []string{"203.0.113.25"}, Ports: []string{"25"}},
					{Allow: []string{"tls.example.com"}, Ports: []string{"8443"}},
				}}})})
			for _, c := range []struct {
				to   string
				port uint16
				open bool
			}{
				{evilIPv4, 22, false}, {evilIPv4, 5432, false}, {evilIPv6, 5432, false}, {evilIPv4, 8080, false},
				{evilIPv4, 80, true}, {evilIPv4, 443, true}, {evilIPv4, 8443, true},
			} {
				// Connect and leave, as "nc -z" does.
				conn, err := in.dial(within(t, time.Minute), c.to, c.port)
				if (err == nil) != c.open {
					t.Errorf("%s port %d: %v", c.to, c.port, err)
				}
				if conn != nil {
					_ = conn.Close()
				}
			}
			for _, d := range log.until(t, 7) {
				if d.Allowed || d.Repeats > 0 || d.Rule == "" || d.Reason == "" {
					t.Errorf("%+v", d)
				}
			}
			c, err := in.dial(within(t, time.Minute), "203.0.113.25", 25)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			b := make([]byte, 11)
			if _, err := io.ReadFull(c, b); err != nil || string(b) != "220 hello\r\n" {
				t.Errorf("a server that speaks first said %q, %v", b, err)
			}
		})
	}
}
