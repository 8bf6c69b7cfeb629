package wire_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestBlockedConnections has many connections block in the middle of a transfer, in both
// directions, and hold every big buffer. Other connections must go on and lose no byte.
func TestBlockedConnections(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			_ = c.(*net.TCPConn).SetWriteBuffer(64 << 10)
			mu.Unlock()
			wg.Go(func() { // sends for ever and never reads
				for block := make([]byte, 1<<20); ; {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			})
		}
	})
	defer wg.Wait()
	defer func() {
		_ = silent.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	}()
	tcp, _ := canary(t)
	outside := &wire.Table{Dial: map[string]string{"203.0.113.9:80": tcp, "203.0.113.10:80": silent.Addr().String()}}
	_, _, _, g := newLink(t, wire.Options{Dialer: outside, Egress: always(carrel.Network{Internet: true})})
	var blocked sync.WaitGroup
	for range 80 { // more than the big buffers, and than the growing windows
		c, err := g.dial(within(t, time.Minute), "203.0.113.10", 80)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		blocked.Go(func() {
			for block := make([]byte, 1<<20); ; {
				if _, err := c.Write(block); err != nil {
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Errorf("write gave %v", err)
					}
					return
				}
			}
		})
	}
	blocked.Wait()
	for range 3 {
		c, err := g.dial(within(t, time.Minute), "203.0.113.9", 80)
		if err != nil {
			t.Fatal(err)
		}
		transfer(t, c, 2<<20)
		_ = c.Close()
	}
}

// TestBrokenTransfer resets one side in the middle of a transfer. The other side must end too,
// after the bytes that came before.
func TestBrokenTransfer(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	outside := &wire.Table{Dial: map[string]string{"203.0.113.9:80": server.Addr().String()}}
	_, _, _, g := newLink(t, wire.Options{Dialer: outside, Egress: always(carrel.Network{Internet: true})})
	for range 5 {
		c, err := g.dial(within(t, time.Minute), "203.0.113.9", 80)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := peer.Write(make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(peer.(*net.TCPConn).SetLinger(0), peer.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the reset: %v", err)
		}
		_ = c.Close()
	}
}
