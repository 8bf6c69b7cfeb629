package wire_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// TestOverStream runs the tests of a link again, on a stream.
func TestOverStream(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"Dial": TestDial, "DialRefused": TestDialRefused, "DialWhileBooting": TestDialWhileBooting, "Deadlines": TestDeadlines,
		"PeerGone": TestPeerGone, "StalledGuest": TestStalledGuest, "AttachRefuses": TestAttachRefuses, "GarbageFrames": TestGarbageFrames,
		"Inside": TestInside, "Hammer": TestHammer, "NothingGetsOut": TestNothingGetsOut, "Internet": TestInternet, "Questions": TestQuestions,
		"ServerFirst": TestServerFirst, "SetNetwork": TestSetNetwork, "Ping": TestPing, "Local": TestLocal, "BrokenTransfer": TestBrokenTransfer,
		"PortUsedAgain": TestPortUsedAgain, "Bypasses": TestBypasses,
	} {
		t.Run(name, test)
	}
}

// overStream reports whether a test is part of TestOverStream, or is the benchmark of a stream.
func overStream(t testing.TB) bool {
	return strings.HasPrefix(t.Name(), "TestOverStream/") || strings.Contains(t.Name(), "/stream-")
}

// streamPair is pair with a stream at the host's end. Between the stream and the guest runs a
// relay, as in a virtual machine: it takes a frame from one side and gives it to the other.
func streamPair(t testing.TB) (host *os.File, guestFD int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	cards, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range cards {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20)
	}
	stream, card := connOf(t, ends[1]), connOf(t, cards[0])
	t.Cleanup(func() { stream.Close(); card.Close() })
	go func() { // out of the guest
		defer stream.Close()
		b := make([]byte, 4+1<<17)
		for {
			n, err := card.Read(b[4:])
			if err != nil || n == 0 {
				return
			}
			binary.BigEndian.PutUint32(b, uint32(n))
			if _, err := stream.Write(b[:4+n]); err != nil {
				return
			}
		}
	}()
	go func() { // into it
		defer card.Close()
		r, b := bufio.NewReaderSize(stream, 1<<18), make([]byte, 1<<17)
		for {
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			n := int(binary.BigEndian.Uint32(head[:]))
			if n > len(b) {
				t.Errorf("a frame of %d bytes", n)
				return
			}
			if _, err := io.ReadFull(r, b[:n]); err != nil {
				return
			}
			if _, err := card.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	return os.NewFile(uintptr(ends[0]), "host"), cards[1]
}

func connOf(t testing.TB, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "end")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStreamLengthsEndTheLink shows that a senseless length ends the link and its open connections,
// and nothing else.
func TestStreamLengthsEndTheLink(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	peer := connOf(t, fds[1])
	defer peer.Close()
	l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 1500}, os.NewFile(uintptr(fds[0]), "host"))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := l.Dial(within(t, time.Minute), 80)
		failed <- err
	}()
	if _, err := peer.Write([]byte{0x7f, 0, 0, 0, 1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		if err == nil {
			t.Error("dialled over a broken stream")
		}
	case <-time.After(time.Minute):
		t.Error("dial hangs after the stream broke")
	}
}

// TestNoStreamFromElsewhere shows that a TCP connection is refused as a link.
func TestNoStreamFromElsewhere(t *testing.T) {
	w := wire.New(wire.Options{})
	defer w.Close()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 1500}, os.NewFile(uintptr(fd), "tcp")); err == nil {
		t.Error("a TCP socket was taken for a link")
	}
}
