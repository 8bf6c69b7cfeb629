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

// kind is what a link's file is. All but a stream carry one frame per read and write.
type kind int

const (
	socket        kind = iota // a SOCK_SEQPACKET socket
	tapPlain                  // a TAP device of this kernel
	tapWithHeader             // the same with a struct virtio_net_hdr before each frame
	stream                    // a SOCK_STREAM socket of this machine with a length before each frame
)

// device reads and writes the frames of one link.
type device struct {
	kind kind
	file *os.File
	conn syscall.RawConn
	long bool // the last frame read was; the reader's
	// out is the header of the frame that is written. Under the endpoint's tx.
	out  [virtioSize]byte
	outs [][]byte

	in    frameReader // of a stream; the reader's
	batch *frameBatch // of a stream. Under the endpoint's tx
}

// openDevice takes over fd, of a link with this MTU.
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

var errNoLink = errors.New("the link is neither a SOCK_SEQPACKET socket, a SOCK_STREAM socket of this machine nor the TAP device of a live namespace")

func kindOf(fd int) (kind, error) {
	if t, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil {
		domain, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		switch {
		case t == unix.SOCK_SEQPACKET:
			return socket, nil
		case t == unix.SOCK_STREAM && domain == unix.AF_UNIX:
			return stream, nil
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

// socketBuffer is asked for on a link that is a socket.
const socketBuffer = 8 << 20

// window sizes TCP's receive buffers and enlarges the socket's. The sandbox's end
// drops what does not fit its own socket buffer, and repairing such losses is
// slow, so never more than that may be under way. That buffer can't be read from
// here: the driver sets both ends alike, and this end's size, before it is
// changed, stands for it. A TAP device's queue counts
// frames and has room for a window; a stream loses nothing.
func (d *device) window() int {
	if d.kind != socket {
		return maxWindow
	}
	size := 0
	_ = d.conn.Control(func(fd uintptr) {
		s := int(fd)
		size, _ = unix.GetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if size >= socketBuffer {
			return
		}
		// Forcing needs CAP_NET_ADMIN; the plain form is capped by the host's settings.
		if unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(s, unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
	})
	// Half, because the kernel charges each frame with its bookkeeping.
	return min(max(size/2, 64<<10), maxWindow)
}

// What struct virtio_net_hdr holds, in the machine's byte order.
const (
	virtioSize     = 10
	virtioNeedsSum = 1
	virtioTCPv4    = 1
	virtioTCPv6    = 4
)

// A frame's memory. Long frames are read into memory that the stack keeps; short
// ones are copied into memory of their own size, because what waits to be read by a
// slow peer must not cost a whole buffer for each byte.
const (
	frameSize  = buffer.MaxChunkSize
	shortFrame = frameSize / 4
	// overflowSize holds the end of the few frames that are larger.
	overflowSize = maxMTU + header.EthernetMinimumSize + 1 - frameSize
)

// frames holds memory for one frame each, from which short ones are copied. All links
// share it, and an idle link holds none.
var frames = sync.Pool{New: func() any { return new([frameSize]byte) }}

var errGone = errors.New("the other end is closed")

// receive waits for one frame. Memory is taken only once there is something to
// read: an idle link holds none.
func (d *device) receive() (frame *buffer.View, err error) {
	cerr := d.conn.Read(func(fd uintptr) bool {
		frame, err = d.readFrame(int(fd))
		return err != unix.EAGAIN
	})
	if cerr != nil {
		return nil, cerr // readFrame was not called, or had nothing
	}
	return frame, err
}

// readFrame reads one frame, or from a stream the next of those that were read. What it is read into is guessed from the last one: long
// and short ones come in rows, and either way is right for both.
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

// copyFrame copies a frame of n bytes that begins in one slice and ends in the other.
func (d *device) copyFrame(b, rest []byte, n int) *buffer.View {
	d.long = n > shortFrame
	v := buffer.NewView(n)
	_, _ = v.Write(b[:min(n, len(b))])
	_, _ = v.Write(rest[:max(n-len(b), 0)])
	return v
}

// readParts reads one frame without waiting and returns its length.
func (d *device) readParts(fd int, b, rest []byte) (int, error) {
	var head [virtioSize]byte
	parts := [3][]byte{head[:], b, rest}
	use, skip := parts[:], virtioSize
	if d.kind != tapWithHeader {
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

// maxParts is how many parts the kernel takes for one frame (IOV_MAX).
const maxParts = 1024

// parts are what is written for one packet. They are valid until the next call. A packet
// of very many is joined: when a segment is sent again it has all that a program wrote
// since, in as many pieces as it was written in.
func (d *device) parts(pkt *stack.PacketBuffer) [][]byte {
	all := pkt.AsSlices()
	if len(all) >= maxParts {
		all = [][]byte{slices.Concat(all...)}
	}
	if d.kind != tapWithHeader {
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

// write writes one frame. full means that there is no room and that the poller
// tells when there is.
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

// gone reports whether an error of write means that the other end is gone. A TAP
// device that its sandbox has switched off only loses frames.
func gone(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EBADFD)
}
