package wire

import (
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// talker is a guest whose port 8000 sends zeros for ever. Its port 8001 answers each byte with 1
// MiB.
func talker(t *testing.T) (*Wire, *Link) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, err := NewInside(os.NewFile(uintptr(fds[1]), "inside"), maxMTU)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	w := New(Options{})
	t.Cleanup(func() { _ = w.Close() })
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: maxMTU},
		os.NewFile(uintptr(fds[0]), "host"))
	if err != nil {
		t.Fatal(err)
	}
	listen(t, in, 8000, func(c net.Conn) {
		zeros := make([]byte, 64<<10)
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	listen(t, in, 8001, func(c net.Conn) {
		answer := make([]byte, 1<<20)
		for {
			if _, err := io.ReadFull(c, answer[:1]); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	})
	return w, l.(*Link)
}

// listen serves the connections to a guest's port.
func listen(t *testing.T, in *Inside, port uint16, serve func(net.Conn)) {
	t.Helper()
	ln, err := gonet.ListenTCP(in.stack, tcpip.FullAddress{NIC: nicID, Port: port},
		ipv4.ProtocolNumber)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

// now is the size of the buffer.
func (in *inbound) now() int {
	in.shared.mu.Lock()
	defer in.shared.mu.Unlock()
	return in.size
}

// queued is how many bytes nobody has read.
func (in *inbound) queued(t *testing.T) int {
	t.Helper()
	n, terr := in.endpoint.GetSockOptInt(tcpip.ReceiveQueueSizeOption)
	if terr != nil {
		t.Fatal(terr)
	}
	return n
}

func read(t *testing.T, c net.Conn, n int64) {
	t.Helper()
	if _, err := io.CopyN(io.Discard, c, n); err != nil {
		t.Error(err)
	}
}

// TestUnreadBuffers shows who may have a large receive buffer. A connection gets one when its
// reader has read a lot, and a reader that only made the host's sockets full gets none. Readers
// that stop keep what they have, but leave some for others. Everything comes back when connections
// end.
func TestUnreadBuffers(t *testing.T) {
	w, l := talker(t)
	const budget = 24 << 20 // enough for two large buffers, and soon read full
	w.inbounds.budget = budget
	var all []*inbound
	dial := func() *inbound {
		t.Helper()
		c, err := l.Dial(t.Context(), 8000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all = append(all, c.(*inbound))
		return c.(*inbound)
	}
	sizes := func() (taken, sum int) {
		w.inbounds.mu.Lock()
		defer w.inbounds.mu.Unlock()
		for _, in := range all {
			sum += in.size - in.first
			if got := in.endpoint.SocketOptions().GetReceiveBufferSize(); got != int64(in.size) {
				t.Errorf("a buffer of %d bytes is counted as %d", got, in.size)
			}
		}
		return w.inbounds.taken, sum
	}

	lazy := dial()
	read(t, lazy, 4<<20)
	if taken, _ := sizes(); taken != 0 {
		t.Errorf("after 4 MiB, %d bytes of the budget are taken", taken)
	}
	testenv.Eventually(t, "the unread bytes fill the buffer",
		func() bool { return lazy.queued(t) >= 64<<10 })

	for range 14 {
		in := dial()
		read(t, in, (inboundMost+64<<10)*inboundEarned)
		if _, sum := sizes(); sum > budget {
			t.Fatalf("%d connections took %d bytes of %d", len(all), sum, budget)
		}
	}
	if got := all[1].now(); got != inboundMost {
		t.Errorf("the first connection has %d bytes, want %d", got, inboundMost)
	}
	if last := all[len(all)-1]; last.now() <= last.first {
		t.Error("14 stalled connections left nothing for the last one")
	}
	taken, sum := sizes()
	if taken != sum {
		t.Errorf("%d bytes are counted as taken, and connections have %d", taken, sum)
	}
	for _, in := range all {
		if n := in.queued(t); n > inboundMost {
			t.Errorf("%d bytes wait in a buffer of at most %d", n, inboundMost)
		}
	}
	read(t, lazy, 16<<20)
	for _, in := range all {
		_ = in.Close()
		_ = in.Close()
	}
	w.inbounds.mu.Lock()
	defer w.inbounds.mu.Unlock()
	if w.inbounds.taken != 0 || w.inbounds.open != 0 || len(w.inbounds.large) != 0 {
		t.Errorf("at the end, %d bytes are taken, %d connections open", w.inbounds.taken, w.inbounds.open)
	}
}

// TestSilentBuffers shows that a connection in a pool, which was read and is silent, gives back
// what it took, and earns it again.
func TestSilentBuffers(t *testing.T) {
	w, l := talker(t)
	c, err := l.Dial(t.Context(), 8001)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	in := c.(*inbound)
	for round := range 2 {
		const n = 2 * inboundMost * inboundEarned
		for sent := 0; sent < n; sent += 1 << 20 { // the guest sends what it is asked for
			if _, err := c.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			read(t, c, 1<<20)
		}
		if got := in.got.Load(); in.now() <= in.first {
			t.Fatalf("round %d: after %d bytes the buffer has %d", round, got, in.now())
		}
		testenv.Eventually(t, "the silent connection gives its part back",
			func() bool { return in.now() == in.first })
	}
	w.inbounds.mu.Lock()
	defer w.inbounds.mu.Unlock()
	if w.inbounds.taken != 0 {
		t.Errorf("%d bytes are still taken", w.inbounds.taken)
	}
}
