package wire

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// kind is the type of a link's file. All types except a stream carry one frame per read and write.
type kind int

const (
	socket        kind = iota // a SOCK_SEQPACKET socket
	tapPlain                  // a TAP device of this kernel
	tapWithHeader             // a TAP device with a struct virtio_net_hdr before each frame
	stream                    // a SOCK_STREAM socket of this machine with a length before each frame
	packetSocket              // a packet socket, with that header, on a device of another namespace
)

// device reads and writes the frames of one link.
type device struct {
	kind kind
	file *os.File
	conn syscall.RawConn
	long bool // the last frame read was long; used by the reader only
	// out is the header of the frame that is being written. The endpoint's tx guards it.
	out  [virtioSize]byte
	outs [][]byte

	in    frameReader // of a stream; the reader's
	batch *frameBatch // only for a stream; guarded by the endpoint's tx
}

// openDevice takes over fd, the file of a link with this MTU.
func openDevice(fd *os.File, mtu int) (device, error) {
	defer fd.Close()
	raw, err := fd.SyscallConn()
	if err != nil {
		return device{}, err
	}
	d, dup := device{}, -1
	cerr := raw.Control(func(s uintptr) {
		if d.kind, err = kindOf(int(s)); err == nil {
			dup, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		return device{}, err
	}
	if err := unix.SetNonblock(dup, true); err != nil {
		_ = unix.Close(dup)
		return device{}, err
	}
	d.file = os.NewFile(uintptr(dup), "link")
	if d.conn, err = d.file.SyscallConn(); err != nil {
		_ = d.file.Close()
		return device{}, err
	}
	if d.kind == stream {
		d.in.limit, d.batch = limitFor(mtu), new(frameBatch)
	}
	return d, nil
}

var errNoLink = errors.New("the link is neither a SOCK_SEQPACKET socket, a SOCK_STREAM socket of this machine, a packet socket nor the TAP device of a live namespace")

func kindOf(fd int) (kind, error) {
	if t, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		switch {
		case t == unix.SOCK_SEQPACKET:
			return socket, nil
		case t == unix.SOCK_STREAM && domain == unix.AF_UNIX:
			return stream, nil
		}
		if header, ok := tap.Packets(fd); ok && header {
			return packetSocket, nil
		}
		return 0, errNoLink
	}
	switch header, ok := tap.Header(fd); {
	case !ok:
		return 0, errNoLink
	case header:
		return tapWithHeader, nil
	}
	return tapPlain, nil
}

// socketBuffer is the buffer size that a link requests for its socket.
const socketBuffer = 8 << 20

// window returns the size for TCP's receive buffers, and enlarges the socket's buffer. The
// sandbox's end drops frames that do not fit its own socket buffer. Repairing such losses is slow,
// so never more than one buffer may be under way. The wire can't read the size of that buffer. But
// the driver sets both ends alike, so it reads the size of its own end before it changes it. A TAP
// device's queue counts frames and has room for a window. A stream loses nothing.
func (d *device) window() int {
	size := 0
	if d.kind == packetSocket { // it loses what does not fit
		_ = d.conn.Control(func(fd uintptr) { size, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
		return min(max(size/2, 64<<10), maxWindow)
	}
	if d.kind != socket {
		return maxWindow
	}
	_ = d.conn.Control(func(fd uintptr) {
		s := int(fd)
		size, _ = unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if size >= socketBuffer {
			return
		}
		// SO_SNDBUFFORCE needs CAP_NET_ADMIN. SO_SNDBUF is capped by the host's settings.
		if unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
	})
	// Half of it, because the kernel also counts its bookkeeping for each frame.
	return min(max(size/2, 64<<10), maxWindow)
}

// Constants of struct virtio_net_hdr, which is in the machine's byte order.
const (
	virtioSize     = 10
	virtioNeedsSum = 1
	virtioTCPv4    = 1
	virtioTCPv6    = 4
)

// Sizes of a frame's memory. Long frames are read into memory that the stack keeps. Short ones are
// copied into memory of their own size. Otherwise a slow peer could make each unread byte hold a
// whole buffer.
const (
	frameSize  = buffer.MaxChunkSize
	shortFrame = frameSize / 4
	// overflowSize is for the end of a frame larger than frameSize. Few frames are.
	overflowSize = maxMTU + header.EthernetMinimumSize + 1 - frameSize
)

// frames holds memory for reading one frame; short frames are copied from it. All links share it,
// and an idle link holds none.
var frames = sync.Pool{New: func() any { return new([frameSize]byte) }}

var errGone = errors.New("the other end is closed")

// receive waits for one frame. It takes memory only when there is a frame to read, so an idle link
// holds none.
func (d *device) receive() (frame *buffer.View, err error) {
	cerr := d.conn.Read(func(fd uintptr) bool {
		frame, err = d.readFrame(int(fd))
		return err != unix.EAGAIN
	})
	if cerr != nil {
		return nil, cerr // readFrame was not called, or found no frame
	}
	return frame, err
}

// readFrame reads one frame. From a stream it returns the next frame, if one was read already. It
// guesses from the last frame whether this one is long or short, because both kinds come in rows. A
// wrong guess is still correct, only slower.
func (d *device) readFrame(fd int) (*buffer.View, error) {
	if d.kind == stream {
		frame, err := d.readStream(fd)
		if err != nil {
			return nil, err
		}
		return buffer.NewViewWithData(frame), nil
	}
	var rest [overflowSize]byte
	if d.long {
		v := buffer.NewViewSize(frameSize)
		n, err := d.readParts(fd, v.AsSlice(), rest[:])
		if err == nil && n > shortFrame && n <= frameSize {
			v.CapLength(n)
			return v, nil
		}
		defer v.Release()
		if err != nil {
			return nil, err
		}
		return d.copyFrame(v.AsSlice(), rest[:], n), nil
	}
	frame := frames.Get().(*[frameSize]byte)
	defer frames.Put(frame)
	n, err := d.readParts(fd, frame[:], rest[:])
	if err != nil {
		return nil, err
	}
	return d.copyFrame(frame[:], rest[:], n), nil
}

// copyFrame copies a frame of n bytes that begins in b and ends in rest.
func (d *device) copyFrame(b, rest []byte, n int) *buffer.View {
	d.long = n > shortFrame
	v := buffer.NewView(n)
	_, _ = v.Write(b[:min(n, len(b))])
	_, _ = v.Write(rest[:max(n-len(b), 0)])
	return v
}

// headed reports whether each frame has a struct virtio_net_hdr before it.
func (d *device) headed() bool { return d.kind == tapWithHeader || d.kind == packetSocket }

// readParts reads one frame without waiting and returns its length.
func (d *device) readParts(fd int, b, rest []byte) (int, error) {
	var head [virtioSize]byte
	parts := [3][]byte{head[:], b, rest}
	use, skip := parts[:], virtioSize
	if !d.headed() {
		use, skip = parts[1:], 0
	}
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Readv(fd, use)
	}
	if err != nil {
		return 0, err
	}
	if n -= skip; n < 0 || n == 0 && d.kind == socket {
		return 0, errGone
	}
	return n, nil
}

// maxParts is the most parts that the kernel accepts for one frame (IOV_MAX).
const maxParts = 1024

// parts returns the slices to write for one packet. They are valid until the next call. If there
// are very many, it joins them. A segment that is sent again holds everything that a program wrote
// since, in as many pieces as the program wrote.
func (d *device) parts(pkt *stack.PacketBuffer) [][]byte {
	all := pkt.AsSlices()
	if len(all) >= maxParts {
		all = [][]byte{slices.Concat(all...)}
	}
	if !d.headed() {
		return all
	}
	d.out = [virtioSize]byte{}
	if o := pkt.GSOOptions; o.Type == stack.GSOTCPv4 || o.Type == stack.GSOTCPv6 {
		if o.NeedsCsum {
			d.out[0] = virtioNeedsSum
			binary.NativeEndian.PutUint16(d.out[6:], header.EthernetMinimumSize+o.L3HdrLen)
			binary.NativeEndian.PutUint16(d.out[8:], o.CsumOffset)
		}
		if pkt.Data().Size() > int(o.MSS) {
			d.out[1] = virtioTCPv4
			if o.Type == stack.GSOTCPv6 {
				d.out[1] = virtioTCPv6
			}
			binary.NativeEndian.PutUint16(d.out[2:], uint16(pkt.HeaderSize()))
			binary.NativeEndian.PutUint16(d.out[4:], o.MSS)
		}
	}
	d.outs = append(append(d.outs[:0], d.out[:]), all...)
	return d.outs
}

// write writes one frame. full means that there is no room, and that the poller reports when there
// is.
func (d *device) write(fd int, parts [][]byte) (full bool, err error) {
	for {
		if d.kind == socket {
			_, err = unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		} else {
			_, err = unix.Writev(fd, parts)
		}
		switch err {
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return true, err
		case unix.ENOBUFS:
			return d.kind == socket, err
		}
		return false, err
	}
}

// gone reports whether an error of write means that the other end is gone. It is not when a sandbox
// has only switched off its TAP device: then frames are lost.
func gone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EBADFD) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENXIO)
}
