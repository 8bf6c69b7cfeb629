package wire_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	guestwords "github.com/carrel-dev/carrel/internal/guest"
	"github.com/carrel-dev/carrel/internal/testenv"
	"github.com/carrel-dev/carrel/internal/wire"
)

// sayID is a Local that answers each connection with the ID of its sandbox.
func sayID(id carrel.ID, c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
	_, _ = fmt.Fprint(c, id)
}

// TestLocal shows that a closed sandbox reaches its host's ports over both families, and nothing
// else there.
func TestLocal(t *testing.T) {
	_, id, _, g := newLink(t, wire.Options{Local: sayID})
	for _, door := range []struct {
		address string
		port    uint16
	}{
		{driver.GatewayIPv4, guestwords.HostPort}, {driver.GatewayIPv6, guestwords.HostPort},
		{driver.GatewayIPv4, 80}, {driver.GatewayIPv6, 80}, {guestwords.MetadataIPv4, 80},
	} {
		c, err := g.dial(within(t, time.Minute), door.address, door.port)
		if err != nil {
			t.Fatal(door, err)
		}
		if got := say(t, c, "who am I?"); got != string(id) {
			t.Errorf("%v: taken for %q, want %q", door, got, id)
		}
		_ = c.Close()
	}
	for _, gateway := range []string{driver.GatewayIPv4, driver.GatewayIPv6, guestwords.MetadataIPv4} {
		for _, port := range []uint16{1, 79, 81, 443, 3000, guestwords.HostPort - 1, guestwords.HostPort + 1, carrel.GuestPort} {
			if c, err := g.dial(within(t, time.Minute), gateway, port); err == nil {
				_ = c.Close()
				t.Errorf("%s: port %d is open", gateway, port)
			}
		}
	}
	// Only the gateway has these ports. Other addresses must not answer.
	for _, other := range []string{"10.73.0.3", "169.254.169.253", "169.254.170.2", "127.0.0.1", "192.0.2.1", "fd73:6361:7272::3", "::1"} {
		if c, err := g.dial(within(t, time.Second), other, guestwords.HostPort); err == nil {
			_ = c.Close()
			t.Errorf("%s answers", other)
		}
	}
}

// TestNoLocal shows that the ports are closed without a Local.
func TestNoLocal(t *testing.T) {
	_, _, _, g := newLink(t, wire.Options{Egress: always(carrel.Network{Internet: true})})
	if c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, guestwords.HostPort); err == nil {
		_ = c.Close()
		t.Error("it is open")
	}
}

// TestLocalOthers mixes the connections of two sandboxes on one wire, with the same addresses. The
// wire must never confuse the two.
func TestLocalOthers(t *testing.T) {
	w := wire.New(wire.Options{Local: sayID})
	t.Cleanup(func() { _ = w.Close() })
	var wg sync.WaitGroup
	for range 2 {
		host, fd := pair(t, 8<<20)
		g := newGuest(t, fd, testMTU)
		id := carrel.NewID()
		if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: id, MTU: testMTU}, host); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			wg.Go(func() {
				for range 10 {
					c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, guestwords.HostPort)
					if err != nil {
						t.Error(err)
						return
					}
					if got := say(t, c, "?"); got != string(id) {
						t.Errorf("taken for %q, want %q", got, id)
					}
					_ = c.Close()
				}
			})
		}
	}
	wg.Wait()
}

// TestLocalBound shows that the ninth connection at once is refused, and that there is room again
// when one has ended.
func TestLocalBound(t *testing.T) {
	entered, proceed := make(chan struct{}, 16), make(chan struct{})
	_, _, _, g := newLink(t, wire.Options{Local: func(carrel.ID, net.Conn) { entered <- struct{}{}; <-proceed }})
	var once sync.Once
	free := func() { once.Do(func() { close(proceed) }) }
	t.Cleanup(free)
	var open []net.Conn
	dial := func() error {
		c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, guestwords.HostPort)
		if err == nil {
			open = append(open, c)
		}
		return err
	}
	for range 8 {
		if err := dial(); err != nil {
			t.Fatal(err)
		}
		<-entered
	}
	for range 3 {
		if err := dial(); err == nil {
			t.Fatal("a ninth connection is served")
		}
	}
	free()
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, syscall.ETIMEDOUT) {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	// The places are given back shortly after the connections have ended.
	testenv.EventuallyNil(t, "there is room again", dial)
	for _, c := range open {
		_ = c.Close()
	}
}

// TestLocalPolicy shows that a policy change does not cut connections to the host. The end of the
// link does, and waits for their Local to return.
func TestLocalPolicy(t *testing.T) {
	broken := make(chan error, 1)
	w, id, l, g := newLink(t, wire.Options{Local: func(_ carrel.ID, c net.Conn) {
		_, _ = c.Write([]byte("hello"))
		b := make([]byte, 1)
		_, err := c.Read(b)
		if err == nil {
			_, _ = c.Write(b)
			_, err = c.Read(b)
		}
		broken <- err
	}})
	c, err := g.dial(within(t, time.Minute), driver.GatewayIPv4, guestwords.HostPort)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if err := w.SetNetwork(id, ready(carrel.Network{DenyOut: []string{"0.0.0.0/0"}})); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal("cut by a policy:", err)
	}
	_ = l.Close()
	select {
	case err := <-broken:
		if err == nil {
			t.Error("no error at the link's end")
		}
	default:
		t.Error("the link has ended and who serves it has not")
	}
}
