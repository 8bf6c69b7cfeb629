package wire_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/wire"
)

// whoIs is the frame in which a sandbox asks for its gateway's hardware address (RFC 826).
func whoIs(t *testing.T) []byte {
	t.Helper()
	mac, err := net.ParseMAC(driver.GuestMAC)
	if err != nil {
		t.Fatal(err)
	}
	f := bytes.Repeat([]byte{0xff}, 6)
	f = append(f, mac...)
	for _, n := range []uint16{0x0806, 1, 0x0800, 6<<8 | 4, 1} {
		f = binary.BigEndian.AppendUint16(f, n)
	}
	f = append(append(f, mac...), net.ParseIP(driver.GuestIPv4).To4()...)
	return append(append(f, make([]byte, 6)...), net.ParseIP(driver.GatewayIPv4).To4()...)
}

// TestEarlyFrames: what a sandbox sends before its link is ready is answered. A program that starts
// at once would otherwise wait 5 s, until its resolver asks again.
func TestEarlyFrames(t *testing.T) {
	t.Parallel()
	w := wire.New(wire.Options{})
	defer w.Close()
	for i := range 50 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		host, guest := os.NewFile(uintptr(fds[0]), "host"), fds[1]
		if err := unix.Send(guest, whoIs(t), 0); err != nil {
			t.Fatal(err)
		}
		l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: testMTU}, host)
		if err != nil {
			t.Fatal(err)
		}
		wait := unix.NsecToTimeval(int64(10 * time.Second))
		if err := unix.SetsockoptTimeval(guest, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, testMTU)
		n, _, err := unix.Recvfrom(guest, answer, 0)
		if err != nil || !bytes.Equal(answer[12:14], []byte{0x08, 0x06}) {
			t.Fatalf("link %d: the first frame got the answer %x, %v", i, answer[:max(n, 0)], err)
		}
		_ = l.Close()
		_ = unix.Close(guest)
	}
}
