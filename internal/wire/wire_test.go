package wire_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/keeper"
	"github.com/carrel-dev/carrel/internal/linux/tap"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/wire"
)

func TestMain(m *testing.M) {
	if reexec.Run(tap.Parts(), keeper.Parts(), insideParts()) {
		return
	}
	goleak.VerifyTestMain(m)
}

// echo serves a listener until it is closed, and waits for it. At the end it closes all
// connections, because one whose link was cut sees no other end.
func echo(t testing.TB, l net.Listener) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	closed, open := false, map[net.Conn]bool{}
	track := func(c net.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		open[c] = true
		return !closed
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				if !track(c) {
					return
				}
				_, _ = io.Copy(c, c)
				if h, ok := c.(interface{ CloseWrite() error }); ok {
					_ = h.CloseWrite()
				}
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		closed = true
		for c := range open {
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		if s, ok := l.(interface{ Shutdown() }); ok {
			s.Shutdown()
		}
		l.Close()
	})
}

// say sends text, half-closes and returns the answer.
func say(t testing.TB, c net.Conn, text string) string {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDial(t *testing.T) {
	_, _, l, g := newLink(t, wire.Options{})
	echo(t, g.listen(8080))
	c, err := l.Dial(within(t, time.Minute), 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := say(t, c, "hello"); got != "hello" {
		t.Fatalf("echo gave %q", got)
	}
}

func TestDialRefused(t *testing.T) {
	_, _, l, _ := newLink(t, wire.Options{})
	_, err := l.Dial(within(t, time.Minute), 81)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("error is %v, want ECONNREFUSED", err)
	}
}

// TestDialWhileBooting reaches a guest that comes up after the first attempt. TCP itself would wait
// before it repeats a SYN, and double that wait each time. Dial avoids this: it begins anew from
// another port.
func TestDialWhileBooting(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	host, fd := pair(t, 8<<20)
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, host)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := l.Dial(ctx, 8080); carrel.KindOf(err) != carrel.TimedOut || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nobody there: error is %v", err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		// Discard the frames, as a kernel that is not ready does. Wait for three ports: one is the
		// first Dial's.
		if ports := callers(fd, 3); len(ports) < 3 {
			t.Errorf("there are attempts from the ports %v alone", ports)
		}
		echo(t, newGuest(t, fd, testMTU).listen(8080))
	}()
	c, err := l.Dial(within(t, time.Minute), 8080)
	<-ready
	for errors.Is(err, syscall.ECONNREFUSED) { // the stack was up before the listener
		c, err = l.Dial(within(t, time.Minute), 8080)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// callers reads frames until it has seen IPv4 SYNs from n ports, and returns these ports.
func callers(fd, n int) map[uint16]bool {
	ports, b := map[uint16]bool{}, make([]byte, 1<<17)
	for end := time.Now().Add(time.Minute); len(ports) < n && time.Now().Before(end); {
		if ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000); ready == 0 || err != nil {
			continue
		}
		size, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			return ports
		}
		const link = header.EthernetMinimumSize
		if size < link+header.IPv4MinimumSize+header.TCPMinimumSize || header.Ethernet(b).Type() != header.IPv4ProtocolNumber {
			continue
		}
		ip := header.IPv4(b[link:size])
		if tcp := header.TCP(ip.Payload()); ip.TransportProtocol() == header.TCPProtocolNumber && tcp.Flags() == header.TCPFlagSyn {
			ports[tcp.SourcePort()] = true
		}
	}
	return ports
}

func TestDeadlines(t *testing.T) {
	_, _, l, g := newLink(t, wire.Options{})
	ln := g.listen(9)
	c, err := l.Dial(within(t, time.Minute), 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	var ne net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("read after the deadline gave %v", err)
	}
	// Nobody reads: the writer must come back at its deadline too.
	_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	for err = nil; err == nil; {
		_, err = c.Write(make([]byte, 1<<20))
	}
	if !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("write gave %v", err)
	}
}

// TestRestart shows that a new stack on the same socket takes over. Open connections are reset, and
// new ones work.
func TestRestart(t *testing.T) {
	host, fd := pair(t, 8<<20)
	kept, err := unix.FcntlInt(host.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := newGuest(t, fd, testMTU)
	echo(t, g.listen(8080))
	spec := driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}
	first := wire.New(wire.Options{})
	l, err := first.Attach(t.Context(), spec, host)
	if err != nil {
		t.Fatal(err)
	}
	old, err := l.Dial(within(t, time.Minute), 8080)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(old); err == nil {
		t.Error("a connection of the closed stack ended without an error")
	}
	if _, err := l.Dial(within(t, time.Second), 8080); err == nil {
		t.Error("a closed link can still dial")
	}
	for range 3 {
		dup, err := unix.FcntlInt(uintptr(kept), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		w := wire.New(wire.Options{})
		l, err := w.Attach(t.Context(), spec, os.NewFile(uintptr(dup), "kept"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := l.Dial(within(t, time.Minute), 8080)
		if err != nil {
			t.Fatal(err)
		}
		if got := say(t, c, "again"); got != "again" {
			t.Fatalf("echo gave %q", got)
		}
		c.Close()
		w.Close()
	}
	unix.Close(kept)
}

// TestPeerGone lets the sandbox die. Its connections must end at once, and a dial must not hang.
func TestPeerGone(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	host, fd := pair(t, 0)
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, host)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := l.Dial(within(t, time.Minute), 80)
		failed <- err
	}()
	time.Sleep(20 * time.Millisecond)
	unix.Close(fd)
	select {
	case err := <-failed:
		if err == nil {
			t.Error("dialled a dead sandbox")
		}
	case <-time.After(time.Minute):
		t.Error("dial hangs after the sandbox died")
	}
}

// TestStalledGuest shows that a sandbox that does not read its link can't hang the daemon's side.
func TestStalledGuest(t *testing.T) {
	w := wire.New(wire.Options{})
	host, fd := pair(t, 0)
	defer unix.Close(fd)
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 1500}, host)
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 300*time.Millisecond)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { _, _ = l.Dial(ctx, 80) })
	}
	wg.Wait()
	start := time.Now()
	w.Close()
	if d := time.Since(start); d > time.Minute {
		t.Errorf("closing a stalled link took %v", d)
	}
}

func TestAttachRefuses(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wr.Close()
	if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 1500}, r); err == nil {
		t.Error("a pipe was taken for a link")
	}
	if _, err := r.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Attach failed and left the file open (%v)", err)
	}
	host, fd := pair(t, 0)
	defer unix.Close(fd)
	if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 99}, host); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("MTU 99 gave %v", err)
	}
}

// TestGarbageFrames shows that frames of any content and size can't harm the stack.
func TestGarbageFrames(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	host, fd := pair(t, 8<<20)
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, host)
	if err != nil {
		t.Fatal(err)
	}
	head := append(append(mac(driver.GatewayMAC), mac(driver.GuestMAC)...), 0x08, 0x00)
	for _, f := range [][]byte{{0}, bytes.Repeat([]byte{0xff}, 13), head, append(head, 0x45), append(head, bytes.Repeat([]byte{0x45}, 60)...),
		append(bytes.Repeat([]byte{0xff}, 12), bytes.Repeat([]byte{0x86, 0xdd}, 900)...), bytes.Repeat([]byte{1}, 70000)} {
		if err := unix.Send(fd, f, 0); err != nil {
			t.Fatal(err)
		}
	}
	g := newGuest(t, fd, testMTU)
	echo(t, g.listen(1))
	c, err := l.Dial(within(t, time.Minute), 1)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func mac(s string) []byte {
	m, _ := net.ParseMAC(s)
	return m
}
