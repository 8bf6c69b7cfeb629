package wire

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// TestChecksums reads the first segment of a connection into a sandbox, as a machine's card gets it.
// A machine's kernel drops a segment with a wrong checksum.
func TestChecksums(t *testing.T) {
	for _, want := range []bool{true, false} {
		w := New(Options{})
		defer w.Close()
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		inside := os.NewFile(uintptr(fds[1]), "inside")
		defer inside.Close()
		l, err := w.Attach(t.Context(), driver.LinkSpec{ID: carrel.NewID(), MTU: 1500, Checksums: want}, os.NewFile(uintptr(fds[0]), "host"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		dialled := make(chan struct{})
		go func() { defer close(dialled); _, _ = l.Dial(ctx, 80) }()
		frame := make([]byte, 2048)
		n := 0
		for {
			if n, err = unix.Read(fds[1], frame); err != nil {
				t.Fatal(err)
			}
			ip := header.IPv4(frame[header.EthernetMinimumSize:n])
			if header.Ethernet(frame).Type() != header.IPv4ProtocolNumber || ip.Protocol() != uint8(header.TCPProtocolNumber) {
				continue
			}
			tcp := header.TCP(ip.Payload())
			if got := tcp.IsChecksumValid(ip.SourceAddress(), ip.DestinationAddress(), 0, 0); got != want {
				t.Errorf("with Checksums %v: the checksum is right: %v", want, got)
			}
			break
		}
		cancel()
		<-dialled
	}
}
