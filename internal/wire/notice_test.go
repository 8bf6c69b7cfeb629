package wire_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	guestwords "github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestExplained shows that the sandbox hears the reason, once, before it notices the refusal. The
// log has each decision, with equal refusals folded.
func TestExplained(t *testing.T) {
	w := newWorld(t)
	var log decisions
	var mu sync.Mutex
	var told []guestwords.Refusal
	wr, id, _, g := w.link(t, onlyAPI, wire.Options{Audit: log.add,
		Refused: func(_ context.Context, id carrel.ID, r guestwords.Refusal) guestwords.RefusalReply {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, r)
			return guestwords.RefusalReply{Process: "curl (pid 12)"}
		}})
	for range 5 {
		if c, err := g.dial(within(t, time.Minute), "10.0.0.5", 443); err == nil {
			c.Close()
			t.Error("connected")
		}
		ask(t, g, "evil.example.net.", dns.TypeA)
		g.lookup("api.example.com")
		g.send(goodIPv4, 443, tlsHello(sni("evil.example.org")))
	}
	g.send(goodIPv4, 443, tlsHello(sni("api.example.com"), alpn("allowed")))
	mu.Lock()
	var lines []string
	for _, r := range told {
		if r.Event.ID != id || r.SourcePort == 0 || r.UDP != (r.Event.Protocol == "dns") || r.Event.Allowed || r.Event.Reason == "" {
			t.Errorf("told %+v", r)
		}
		lines = append(lines, r.Line)
	}
	mu.Unlock()
	if len(lines) != 3 || !slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, "10.0.0.5") }) ||
		!slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, "evil.example.net") }) ||
		!slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, "evil.example.org") }) {
		t.Errorf("told:\n%s", strings.Join(lines, "\n"))
	}
	wr.Close() // writes what was folded
	for _, c := range []struct{ protocol, name, address string }{
		{"tcp", "", "10.0.0.5"}, {"dns", "evil.example.net", ""}, {"tls", "evil.example.org", goodIPv4},
	} {
		count, events, process := 0, 0, ""
		for _, d := range log.all() {
			if d.Protocol == c.protocol && d.Name == c.name && d.Address == c.address && !d.Allowed {
				events++
				count += 1 + d.Repeats
				process += d.Process
			}
			if d.ID != id || d.Time.IsZero() || d.Rule == "" {
				t.Errorf("%+v", d)
			}
		}
		if count != 5 || events < 2 || events > 4 || process != "curl (pid 12)" {
			t.Errorf("%+v: %d refusals in %d events, by %q", c, count, events, process)
		}
	}
	if !slices.ContainsFunc(log.all(), func(d carrel.Decision) bool {
		return d.Allowed && d.Protocol == "tls" && d.Name == "api.example.com" && d.Address == goodIPv4 && d.Port == 443 &&
			d.Rule == "rule 1 (api)" && d.Sent > 50 && d.Received == 2 && d.Duration > 0
	}) {
		t.Errorf("the allowed connection is not in the log: %+v", log.all())
	}
}

// TestExplainedSlowly shows that a slow guest delays neither refusals nor the link's end.
func TestExplainedSlowly(t *testing.T) {
	w := newWorld(t)
	wr, _, _, g := w.link(t, onlyAPI, wire.Options{Refused: func(ctx context.Context, _ carrel.ID, _ guestwords.Refusal) guestwords.RefusalReply {
		<-ctx.Done()
		return guestwords.RefusalReply{}
	}})
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			if c, err := g.dial(within(t, time.Minute), "10.0.0.5", uint16(1000+i)); err == nil {
				c.Close()
				t.Error("connected")
			} else if isTimeout(err) {
				t.Error("a refusal is held up")
			}
		})
	}
	wg.Wait()
	g.datagram(evilIPv4, 9, []byte("x"))
	wr.Close()
}

// TestExplainedLate shows that a busy sandbox is told of a refusal later, although the refusal did
// not wait.
func TestExplainedLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	refused, told := make(chan struct{}), make(chan error, 1)
	_, _, _, g := w.link(t, onlyAPI, wire.Options{Refused: func(ctx context.Context, _ carrel.ID, _ guestwords.Refusal) guestwords.RefusalReply {
		<-refused
		told <- ctx.Err()
		return guestwords.RefusalReply{}
	}})
	if c, err := g.dial(within(t, time.Minute), "10.0.0.5", 443); err == nil {
		c.Close()
		t.Error("connected")
	}
	close(refused)
	if err := <-told; err != nil {
		t.Errorf("the telling was cut off: %v", err)
	}
}

// TestFlood shows that a sandbox with ever new refusals does not fill the log: beyond a bound they
// are counted together.
func TestFlood(t *testing.T) {
	w := newWorld(t)
	var log decisions
	wr, _, _, g := w.link(t, onlyAPI, wire.Options{Audit: log.add})
	c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, 53)
	if err != nil {
		t.Fatal(err)
	}
	conn := &dns.Conn{Conn: c}
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	const all = 3000
	go func() {
		for i := range all {
			if conn.WriteMsg(new(dns.Msg).SetQuestion(strings.Repeat("x", i%60+1)+"."+strings.Repeat("y", i/60+1)+".example.net.", dns.TypeA)) != nil {
				return
			}
		}
	}()
	for range all {
		if a, err := conn.ReadMsg(); err != nil || a.Rcode != dns.RcodeNameError {
			t.Fatal(a, err)
		}
	}
	c.Close()
	wr.Close()
	count := 0
	for _, d := range log.all() {
		count += 1 + d.Repeats
	}
	if events := len(log.all()); count != all || events > all*2/3 {
		t.Errorf("%d refusals in %d events, want %d in fewer", count, events, all)
	}
}
