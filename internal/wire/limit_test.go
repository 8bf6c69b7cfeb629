package wire_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

func withLimits(rule, total carrel.TrafficLimits) carrel.Network {
	return carrel.Network{Policy: &carrel.Policy{Limits: total, Rules: []carrel.Rule{
		{Name: "good", Allow: []string{goodIPv4}, Limits: rule}, {Name: "echo", Allow: []string{"203.0.113.7"}}}}}
}

// TestLimits shows that each limit refuses what is beyond it, names itself in the reason, and gives
// places back.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name        string
		rule, total carrel.TrafficLimits
		says        string
	}{
		{"a rule's connections", carrel.TrafficLimits{Connections: 2}, carrel.TrafficLimits{}, "2 connections at once"},
		{"the sandbox's connections", carrel.TrafficLimits{}, carrel.TrafficLimits{Connections: 2}, "the sandbox's limit of 2 connections at once"},
		{"a rule's new connections", carrel.TrafficLimits{ConnectionsPerSecond: 0.01, Connections: 9}, carrel.TrafficLimits{}, "0.01 new connections per second"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			var log decisions
			_, _, _, g := w.link(t, withLimits(c.rule, c.total), wire.Options{Audit: log.add})
			var open []net.Conn
			refused := 0
			for range 3 {
				conn, err := g.dial(within(t, time.Minute), goodIPv4, 80)
				if err != nil {
					refused++
					continue
				}
				defer conn.Close()
				open = append(open, conn)
			}
			if refused == 0 || len(open) == 0 {
				t.Fatalf("%d open, %d refused", len(open), refused)
			}
			if !slices.ContainsFunc(log.all(), func(d carrel.Decision) bool {
				return !d.Allowed && strings.Contains(d.Reason, c.says) && strings.Contains(d.Rule, "good")
			}) {
				t.Errorf("the log does not say which limit: %+v", log.all())
			}
			if c.rule.ConnectionsPerSecond > 0 {
				return
			}
			for _, o := range open {
				o.Close()
			}
			testenv.EventuallyNil(t, "a place is given back", func() error {
				conn, err := g.dial(within(t, time.Minute), goodIPv4, 80)
				if err == nil {
					conn.Close()
				}
				return err
			})
		})
	}
}

// TestPace shows that bytes are slowed down in the limited direction, and arrive complete.
func TestPace(t *testing.T) {
	t.Parallel()
	tcp, _ := canary(t)
	for _, c := range []struct {
		name  string
		total carrel.TrafficLimits
	}{{"out", carrel.TrafficLimits{SendBytesPerSecond: 200_000}}, {"in", carrel.TrafficLimits{ReceiveBytesPerSecond: 200_000}}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.Dial["203.0.113.7:7"] = tcp
			_, _, _, g := w.link(t, withLimits(carrel.TrafficLimits{}, c.total), wire.Options{})
			conn, err := g.dial(within(t, time.Minute), "203.0.113.7", 7)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			data := bytes.Repeat([]byte("0123456789"), 40_000)
			start := time.Now()
			_ = conn.SetDeadline(start.Add(60 * time.Second))
			go func() { _, _ = conn.Write(data); _ = conn.CloseWrite() }()
			back, err := io.ReadAll(conn)
			if err != nil || !bytes.Equal(back, data) {
				t.Fatalf("%d bytes came back, %v", len(back), err)
			}
			// One second's amount passes at once. The rest must take longer.
			if took := time.Since(start); took < 800*time.Millisecond {
				t.Errorf("400 kB at 200 kB/s took %v", took)
			}
		})
	}
}

// TestPaceUDP shows that datagrams over a limit are dropped, and those under it pass.
func TestPaceUDP(t *testing.T) {
	t.Parallel()
	_, udp := canary(t)
	w := newWorld(t)
	w.Dial["203.0.113.7:9"] = udp
	_, _, _, g := w.link(t, withLimits(carrel.TrafficLimits{}, carrel.TrafficLimits{SendBytesPerSecond: 1000}), wire.Options{})
	u := g.udp("203.0.113.7", 9)
	const all = 30
	came := 0
	for range all {
		_ = u.SetDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = u.Write(make([]byte, 8_000))
		if n, _ := u.Read(make([]byte, 1<<16)); n > 0 {
			came++
		}
	}
	if came == 0 || came == all {
		t.Errorf("%d of %d datagrams came back", came, all)
	}
}
