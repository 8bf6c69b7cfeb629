package wire

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// A stream link is a Unix socket that carries bytes. Before each frame stands its length, 32 bits
// in network order. QEMU's "-netdev stream" uses this format.
//
// A stream has no marks between frames. A reader that has lost its position can't find the next
// frame. So a broken length ends the link, a frame that was begun is always written to its end, and
// a connection is attached only once. After a crash of the daemon, a connection is useless, because
// the daemon may have died within a frame, in either direction. The listening socket is kept for
// the next daemon, and the sandbox's side connects to it again (hosted.Links.OpenStream, QEMU's
// reconnect-ms).

const (
	streamHead = 4 // bytes of a length
	// vlanTag is the size of the tag that a frame may have beside the Ethernet header.
	vlanTag = 4
	// maxStreamFrame is more than any virtual network card sends. A greater length means that the
	// reader has lost its position.
	maxStreamFrame = 128 << 10
	// streamChunk is how many bytes are read at once. It must hold the longest frame of a link with
	// its length.
	streamChunk = 256 << 10
)

var errOutOfStep = errors.New("the stream's lengths of frames make no sense")

// chunks holds memory for reading. All links share it. A link holds a chunk only while it has a
// part of a frame.
var chunks = sync.Pool{New: func() any { return new([streamChunk]byte) }}

// frameReader cuts a stream into frames. It never holds more than one chunk, whatever comes. It is
// for one goroutine.
type frameReader struct {
	limit    int // of a frame; longer ones are left out
	chunk    *[streamChunk]byte
	from, to int    // the part of the chunk that is not cut yet
	skip     int    // bytes still to be thrown away
	left     uint64 // frames that were left out because of their size
}

// limitFor is the length of the longest frame of a link with this MTU.
func limitFor(mtu int) int { return mtu + header.EthernetMinimumSize + vlanTag }

// next returns the next complete frame, or nil if there is none. The frame is valid until the next
// call of fill or next. A frame that is too short for Ethernet or too long for the link is left
// out, as a switch does, because a program inside can make its card send such frames.
func (r *frameReader) next() ([]byte, error) {
	for {
		n := min(r.skip, r.to-r.from)
		r.from += n
		r.skip -= n
		if r.skip > 0 || r.to-r.from < streamHead {
			r.release()
			return nil, nil
		}
		size := int(binary.BigEndian.Uint32(r.chunk[r.from:]))
		switch {
		case size < 0 || size > maxStreamFrame:
			return nil, errOutOfStep
		case size > r.limit || size < header.EthernetMinimumSize:
			r.left++
			r.from += streamHead
			r.skip = size
			continue
		case r.to-r.from < streamHead+size:
			return nil, nil
		}
		at := r.from + streamHead
		r.from = at + size
		return r.chunk[at:r.from:r.from], nil
	}
}

// release gives the chunk back when it is empty.
func (r *frameReader) release() {
	if r.chunk != nil && r.from == r.to {
		chunks.Put(r.chunk)
		r.chunk, r.from, r.to = nil, 0, 0
	}
}

// fill reads as many bytes as are there and fit. The caller calls it when next has returned nil.
func (r *frameReader) fill(read func([]byte) (int, error)) error {
	if r.chunk == nil {
		r.chunk = chunks.Get().(*[streamChunk]byte)
	}
	if r.from > 0 {
		r.to = copy(r.chunk[:], r.chunk[r.from:r.to])
		r.from = 0
	}
	n, err := read(r.chunk[r.to:])
	if n > 0 {
		r.to += n
	}
	r.release()
	switch {
	case err != nil:
		return err
	case n == 0:
		return errGone // within a frame or between two; a begun frame is lost
	}
	return nil
}

// readStream is readFrame for a stream. It returns EAGAIN when there is no whole frame.
func (d *device) readStream(fd int) ([]byte, error) {
	for {
		frame, err := d.in.next()
		if frame != nil || err != nil {
			return frame, err
		}
		err = d.in.fill(func(b []byte) (n int, err error) {
			for n, err = unix.Read(fd, b); err == unix.EINTR; n, err = unix.Read(fd, b) {
			}
			return n, err
		})
		if err != nil {
			return nil, err
		}
	}
}

// frameBatch is a run of frames that are written at once, with the progress of the write. It is
// used under the endpoint's tx.
type frameBatch struct {
	heads [streamBatch][streamHead]byte
	all   [][]byte // what is to be written
	parts [][]byte // what of it is not written yet
	ends  []int    // the end of each frame, from the batch's beginning
	done  int      // bytes written
	// rest is the unwritten end of a frame. The next batch begins with it.
	rest []byte
}

// streamBatch is the most frames that are written at once.
const streamBatch = 64

// gather takes as many frames from the front of pkts as go at once, and returns their number.
func (b *frameBatch) gather(pkts []*stack.PacketBuffer) (taken int) {
	b.all, b.ends, b.done = b.all[:0], b.ends[:0], 0
	size := 0
	if len(b.rest) > 0 {
		b.all = append(b.all, b.rest)
		size = len(b.rest)
		b.ends = append(b.ends, size)
	}
	for i, pkt := range pkts {
		all := pkt.AsSlices()
		if len(all) > maxParts/2 {
			all = [][]byte{slices.Concat(all...)}
		}
		if i == streamBatch || len(b.all)+1+len(all) > maxParts {
			break
		}
		binary.BigEndian.PutUint32(b.heads[i][:], uint32(pkt.Size()))
		b.all = append(append(b.all, b.heads[i][:]), all...)
		size += streamHead + pkt.Size()
		b.ends = append(b.ends, size)
		taken++
	}
	b.parts = b.all
	return taken
}

// wrote notes that n more bytes are written, and reports whether the batch is complete.
func (b *frameBatch) wrote(n int) (all bool) {
	b.done += n
	for len(b.parts) > 0 && n >= len(b.parts[0]) {
		n -= len(b.parts[0])
		b.parts = b.parts[1:]
	}
	if len(b.parts) == 0 {
		return true
	}
	b.parts[0] = b.parts[0][n:]
	return false
}

// finish ends the batch. If a frame was only partly written, finish keeps the rest of it for the
// next batch. It returns how many of the taken frames will reach the other end, including that
// frame.
func (b *frameBatch) finish(taken int) (sent int) {
	older := len(b.ends) - taken // 1 if the batch began with a rest
	i := 0
	for i < len(b.ends) && b.ends[i] <= b.done {
		i++
	}
	begin := 0
	if i > 0 {
		begin = b.ends[i-1]
	}
	switch {
	case i < len(b.ends) && (b.done > begin || i < older): // within a frame
		b.rest = b.first(b.ends[i] - b.done)
		i++
	default:
		b.rest = nil
	}
	clear(b.all) // hold no packets
	return max(i-older, 0)
}

// first copies the first n unwritten bytes.
func (b *frameBatch) first(n int) []byte {
	out := make([]byte, 0, n)
	for _, p := range b.parts {
		out = append(out, p[:min(len(p), n-len(out))]...)
	}
	return out
}

// writeBatch writes as much of a batch as it can. full means that there is no room, and that the
// poller reports when there is.
func (d *device) writeBatch(fd int) (full bool, err error) {
	for {
		n, err := unix.SendmsgBuffers(fd, d.batch.parts, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN || err == unix.ENOBUFS:
			return true, err
		case err != nil:
			return false, err
		case d.batch.wrote(n):
			return false, nil
		}
	}
}
