package net

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/test/daemontest"
)

// TestClosedPorts connects as "nc -z" does, from inside sandboxes of each tier. An address that no
// rule allows must be refused before its handshake, unless a name could still decide for that port.
// Each refusal must be one event, and allowed connections must work.
func TestClosedPorts(t *testing.T) { closedPorts(t, open, carrel.Sim, carrel.NS, carrel.GVisor) }

// TestMachineClosedPorts does the same from a virtual machine.
func TestMachineClosedPorts(t *testing.T) { closedPorts(t, openMachines, carrel.MicroVM) }

func closedPorts(t *testing.T, open func(*testing.T, *outside) *house, tiers ...carrel.Tier) {
	o := newOutside(t)
	o.serve(t, "api.example.com", "203.0.113.9", webSite())
	greet(t, o.listen(t, "203.0.113.25:25"))
	h := open(t, o)
	policy := &carrel.Policy{Rules: []carrel.Rule{
		{Name: "api", Allow: []string{"api.example.com"}},
		{Name: "mail", Allow: []string{"203.0.113.25"}, Ports: []string{"25"}},
	}}
	for _, tier := range tiers {
		t.Run(string(tier), func(t *testing.T) {
			sb, err := h.svc.Create(t.Context(), carrel.CreateOptions{Tier: tier, Network: carrel.Network{Policy: policy}, Timeout: 30 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			c, err := h.svc.Computer(t.Context(), sb.ID)
			if err != nil {
				t.Fatal(err)
			}
			d := &desk{Computer: c, t: t, id: sb.ID}
			connects := "(exec 3<>/dev/tcp/198.51.100.20/%d) 2>/dev/null && echo open || echo closed"
			if tier == carrel.Sim { // its only client is curl: 7 means that it could not connect
				connects = "curl -s -m 30 http://198.51.100.20:%d/; [ $? = 7 ] && echo closed || echo open"
			}
			for _, p := range []struct {
				port int
				want string
			}{{22, "closed"}, {5432, "closed"}, {80, "open"}} {
				d.must(t, fmt.Sprintf(connects, p.port), p.want)
			}
			daemontest.Eventually(t, time.Minute, "each refusal is one event", func() bool { return len(h.refused(t, sb.ID)) == 3 })
			for _, e := range h.refused(t, sb.ID) {
				if e.Address != "198.51.100.20" || e.Repeats > 0 || e.Reason == "" {
					t.Errorf("%+v", e)
				}
			}
			if tier != carrel.Sim {
				d.must(t, "exec 3<>/dev/tcp/203.0.113.25/25; read -r line <&3; echo \"$line\"", "220 hello")
			}
			d.must(t, "curl -sS http://api.example.com/", "hello api.example.com")
		})
	}
	if n := o.strays.Load(); n > 0 {
		t.Errorf("%d requests reached a server that no policy allowed", n)
	}
}

// refused returns the refusals of one sandbox so far.
func (h *house) refused(t *testing.T, id carrel.ID) []carrel.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out []carrel.Decision
	for d, err := range h.svc.(carrel.Audits).Audit(ctx, carrel.AuditOptions{ID: id, Allowed: new(bool)}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// greet serves connections; it speaks first.
func greet(t *testing.T, l net.Listener) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = strings.NewReader("220 hello\r\n").WriteTo(c)
				_, _ = c.Read(make([]byte, 1)) // until the sandbox goes
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
}
