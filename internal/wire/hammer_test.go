package wire_test

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	guestwords "github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestHammer does everything at once, and closes in the middle of it.
func TestHammer(t *testing.T) {
	tcp, udp := canary(t)
	d := &table{to: map[string]string{"203.0.113.9:80": tcp, "203.0.113.9:9": udp}}
	z := &zone{records: map[string]string{"api.example.com.": "203.0.113.9"}}
	w, id, l, g := newLink(t, wire.Options{Dialer: d, Resolver: z, Egress: always(carrel.Network{Internet: true})})
	echo(t, g.listen(8080))
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	loop := func(n int, f func()) {
		for range n {
			wg.Go(func() {
				for ctx.Err() == nil {
					f()
				}
			})
		}
	}
	loop(4, func() {
		c, err := l.Dial(ctx, 8080)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		data := bytes.Repeat([]byte{7}, 100_000)
		go func() { _, _ = c.Write(data) }()
		if n, err := io.ReadFull(c, make([]byte, len(data))); err == nil && n != len(data) {
			t.Errorf("%d bytes came back", n)
		}
	})
	loop(3, func() {
		if c, err := g.dial(ctx, "203.0.113.9", 80); err == nil {
			_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
			_, _ = io.WriteString(c, "x")
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	})
	loop(2, func() {
		u := g.udp("203.0.113.9", 9)
		_ = u.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_, _ = io.WriteString(u, "x")
		_, _ = u.Read(make([]byte, 1))
		u.Close()
	})
	loop(1, func() {
		q := new(dns.Msg)
		q.SetQuestion("api.example.com.", dns.TypeA)
		u := g.udp(driver.GatewayIPv4, 53)
		c := &dns.Conn{Conn: packetConn{u}}
		_ = c.SetDeadline(time.Now().Add(50 * time.Millisecond))
		_ = c.WriteMsg(q)
		_, _ = c.ReadMsg()
		u.Close()
	})
	loop(1, func() {
		_ = w.SetNetwork(id, ready(carrel.Network{Internet: false}))
		time.Sleep(5 * time.Millisecond)
		_ = w.SetNetwork(id, ready(carrel.Network{Internet: true}))
		time.Sleep(20 * time.Millisecond)
	})
	time.Sleep(500 * time.Millisecond)
	start := time.Now()
	wg.Go(func() { _ = l.Close() })
	_ = l.Close()
	if d := time.Since(start); d > time.Minute {
		t.Errorf("closing took %v", d)
	}
	wg.Wait()
}

// TestHammerPolicy makes connections of all kinds, while the policy changes all the time and the
// stack is replaced.
func TestHammerPolicy(t *testing.T) {
	w := newWorld(t)
	w.Dial["203.0.113.25"] = greeter(t)
	var log decisions
	wr, id, _, g := w.link(t, onlyAPI, wire.Options{Audit: log.add,
		Refused: func(context.Context, carrel.ID, guestwords.Refusal) guestwords.RefusalReply {
			return guestwords.RefusalReply{}
		}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, b := range [][]byte{
		tlsHello(sni("api.example.com")), inRecords(tlsHello(sni("api.example.com")), 40), tlsHello(sni("evil.example.net")),
		[]byte("GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"), []byte("SSH-2.0-x\r\n"), {0}, nil,
	} {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c, err := g.dial(ctx, []string{goodIPv4, goodIPv6, evilIPv4, "203.0.113.25", "10.0.0.5"}[i%5], 443)
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
				_, _ = c.Write(b)
				_, _ = c.Read(make([]byte, 100))
				c.Close()
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			u := g.udp(evilIPv4, 53)
			_ = u.SetDeadline(time.Now().Add(20 * time.Millisecond))
			_, _ = u.Write(packed(t, "api.example.com."))
			_, _ = u.Read(make([]byte, 100))
			u.Close()
		}
	})
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			n := []carrel.Network{onlyAPI, everything, notEvil, {}, everythingPrivate}[i%5]
			if err := wr.SetNetwork(id, ready(n)); err != nil && carrel.KindOf(err) != carrel.NotFound {
				t.Error(err)
			}
			time.Sleep(7 * time.Millisecond)
		}
	})
	time.Sleep(time.Second)
	testenv.Eventually(t, "something is in the log", func() bool { return len(log.all()) > 0 })
	wr.Close()
	time.Sleep(300 * time.Millisecond)
	cancel()
	wg.Wait()
}

// FuzzFrame feeds one frame to a live stack.
func FuzzFrame(f *testing.F) {
	w := wire.New(wire.Options{})
	f.Cleanup(func() { _ = w.Close() })
	host, fd := pair(f, 1<<20)
	f.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := w.Attach(context.Background(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, host); err != nil {
		f.Fatal(err)
	}
	head := append(mac(driver.GatewayMAC), mac(driver.GuestMAC)...)
	f.Add(append(head, 0x08, 0x00, 0x45, 0, 0, 20))
	f.Add(append(head, 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1))
	f.Add(append(head, 0x86, 0xdd, 0x60, 0, 0, 0))
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) == 0 || len(frame) > 1<<16 {
			return
		}
		if err := unix.Send(fd, frame, 0); err != nil {
			t.Fatal(err)
		}
		drain(fd) // read the answers: unread, they would stall the stack
	})
}

// drain reads and discards all frames.
func drain(fd int) {
	b := make([]byte, 1<<17)
	for {
		if n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT); err != nil || n == 0 {
			return
		}
	}
}
