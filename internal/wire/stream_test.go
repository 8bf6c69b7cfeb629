package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// framed returns frames in the format of a stream.
func framed(frames ...[]byte) (out []byte) {
	for _, f := range frames {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(f))), f...)
	}
	return out
}

// cut reads a stream in pieces. pieces gives the size of each. cut returns the frames and the error
// that ended it.
func cut(r *frameReader, data []byte, pieces func() int) (frames [][]byte, err error) {
	for {
		f, err := r.next()
		if err != nil {
			return frames, err
		}
		if f != nil {
			frames = append(frames, bytes.Clone(f))
			continue
		}
		err = r.fill(func(b []byte) (int, error) {
			n := copy(b[:min(len(b), max(pieces(), 1))], data)
			data = data[n:]
			return n, nil
		})
		if err != nil {
			return frames, err
		}
	}
}

// TestFramesAreCut shows that a stream gives its frames in whatever pieces it comes, and that
// frames which a switch would not carry are left out.
func TestFramesAreCut(t *testing.T) {
	const mtu = 1500
	limit := limitFor(mtu)
	frame := func(n int, c byte) []byte { return bytes.Repeat([]byte{c}, n) }
	short, long := frame(14, 'a'), frame(limit, 'b')
	for _, size := range []int{1, 2, 3, 4, 5, 17, 4096, 1 << 20} {
		longest := maxStreamFrame
		if size < 17 { // byte by byte, the longest one takes seconds
			longest = 3 * limit
		}
		all := framed(short, nil, frame(13, 'x'), long, frame(limit+1, 'x'), frame(longest, 'x'), short)
		r := &frameReader{limit: limit}
		got, err := cut(r, all, func() int { return size })
		if !errors.Is(err, errGone) {
			t.Errorf("pieces of %d: the end is %v", size, err)
		}
		if len(got) != 3 || !bytes.Equal(got[0], short) || !bytes.Equal(got[1], long) || !bytes.Equal(got[2], short) {
			t.Errorf("pieces of %d: %d frames", size, len(got))
		}
		if r.left != 4 || r.chunk != nil {
			t.Errorf("pieces of %d: %d left out, memory held: %v", size, r.left, r.chunk != nil)
		}
	}
}

// TestStreamOutOfStep shows that a length that no card makes ends the link at once.
func TestStreamOutOfStep(t *testing.T) {
	for _, n := range []uint32{maxStreamFrame + 1, 1 << 31, 1<<32 - 1} {
		r := &frameReader{limit: 1518}
		got, err := cut(r, append(framed(make([]byte, 60)), binary.BigEndian.AppendUint32(nil, n)...), func() int { return 1000 })
		if len(got) != 1 || !errors.Is(err, errOutOfStep) {
			t.Errorf("length %d: %d frames, %v", n, len(got), err)
		}
	}
}

// TestStreamEndsWithinAFrame shows that a frame which was only begun is lost, and no part of it is
// delivered.
func TestStreamEndsWithinAFrame(t *testing.T) {
	whole := framed(make([]byte, 60), make([]byte, 100))
	for n := 0; n < len(whole); n++ {
		r := &frameReader{limit: 1518}
		got, err := cut(r, whole[:n], func() int { return 7 })
		want := 0
		if n >= streamHead+60 {
			want = 1
		}
		if len(got) != want || !errors.Is(err, errGone) {
			t.Fatalf("cut at %d: %d frames, %v", n, len(got), err)
		}
	}
}

// FuzzFrameReader reads any bytes. The reader must not crash, every frame must be within the
// bounds, it must never hold more than a chunk, and the size of the pieces must not matter.
func FuzzFrameReader(f *testing.F) {
	f.Add(framed(make([]byte, 60), make([]byte, 1600), nil), uint64(1))
	f.Add([]byte{0, 0, 0, 20, 1, 2, 3}, uint64(9))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit := limitFor(1500)
		a, aerr := cut(&frameReader{limit: limit}, data, func() int { return 1 << 20 })
		b, berr := cut(&frameReader{limit: limit}, data, func() int { return rnd.IntN(40) })
		if len(a) != len(b) || aerr != berr {
			t.Fatalf("at once %d frames, %v; in pieces %d, %v", len(a), aerr, len(b), berr)
		}
		for i, frame := range a {
			if len(frame) < 14 || len(frame) > limit || !bytes.Equal(frame, b[i]) {
				t.Fatalf("frame %d is %d bytes", i, len(frame))
			}
		}
	})
}

// packet returns a packet of these bytes, in this number of pieces.
func packet(t *testing.T, data []byte, pieces int) *stack.PacketBuffer {
	t.Helper()
	var b buffer.Buffer
	for i := range pieces {
		part := data[len(data)*i/pieces : len(data)*(i+1)/pieces]
		if err := b.Append(buffer.NewViewWithData(part)); err != nil {
			t.Fatal(err)
		}
	}
	return stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: b})
}

// TestBatchesKeepTheStep writes packets into a stream that takes any number of bytes each time, and
// gives up in the middle of some. The other end must get whole frames, in order, and exactly those
// that were reported as sent.
func TestBatchesKeepTheStep(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		b := new(frameBatch)
		var out bytes.Buffer
		var want [][]byte
		write := func(room int) { // a socket with room for this many bytes
			for _, p := range bytes.Join(b.parts, nil) {
				if room == 0 {
					return
				}
				out.WriteByte(p)
				b.wrote(1)
				room--
			}
		}
		for range 20 {
			var pkts []*stack.PacketBuffer
			var data [][]byte
			for range 1 + rnd.IntN(2*streamBatch) {
				d := bytes.Repeat([]byte{byte(rnd.Uint32())}, 14+rnd.IntN(60))
				data = append(data, d)
				pkts = append(pkts, packet(t, d, 1+rnd.IntN(5)))
			}
			taken := b.gather(pkts)
			if taken == 0 || taken > streamBatch {
				t.Fatalf("%d taken of %d", taken, len(pkts))
			}
			room := 1 << 20
			if rnd.IntN(2) == 0 {
				room = rnd.IntN(500)
			}
			write(room)
			want = append(want, data[:b.finish(taken)]...)
			for _, p := range pkts {
				p.DecRef()
			}
		}
		b.gather(nil) // finish the frame that was begun
		write(1 << 20)
		if n := b.finish(0); n != 0 {
			t.Errorf("seed %d: %d frames sent of none", seed, n)
		}
		got, err := cut(&frameReader{limit: 1518}, out.Bytes(), func() int { return 1 << 20 })
		if !errors.Is(err, errGone) || len(got) != len(want) {
			t.Fatalf("seed %d: %d frames, want %d, %v", seed, len(got), len(want), err)
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: frame %d is another", seed, i)
			}
		}
	}
}

// TestBatchOfManyParts shows that a batch never has more parts than the kernel takes at once.
func TestBatchOfManyParts(t *testing.T) {
	big := bytes.Repeat([]byte{1, 2, 3}, 3000)
	var pkts []*stack.PacketBuffer
	for _, pieces := range []int{maxParts - 1, maxParts, 3 * maxParts, 400, 400, 400} {
		pkts = append(pkts, packet(t, big, pieces))
	}
	b := new(frameBatch)
	for len(pkts) > 0 {
		taken := b.gather(pkts)
		if len(b.parts) > maxParts || taken == 0 {
			t.Fatalf("%d parts, %d taken", len(b.parts), taken)
		}
		if want := bytes.Repeat(framed(big), taken); !bytes.Equal(bytes.Join(b.parts, nil), want) {
			t.Fatal("the bytes are others")
		}
		b.wrote(taken * (streamHead + len(big)))
		if n := b.finish(taken); n != taken || b.rest != nil {
			t.Fatalf("%d sent of %d", n, taken)
		}
		pkts = pkts[taken:]
	}
}

// TestStreamStalls has a peer that does not read. The wire waits once, then drops frames. When the
// peer reads again, it must get whole frames.
func TestStreamStalls(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := newEndpoint(fileOf(fds[0]), 1500, "02:00:00:00:00:01", "02:00:00:00:00:02")
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	peer := fileOf(fds[1])
	defer peer.Close()
	send := func(c byte) bool {
		var list stack.PacketBufferList
		pkt := packet(t, bytes.Repeat([]byte{c}, 1000), 3)
		defer pkt.DecRef()
		list.PushBack(pkt)
		n, err := e.WritePackets(list)
		return n == 1 && err == nil
	}
	sent := 0
	for send('a') {
		sent++
	}
	for range 100 {
		if send('b') {
			t.Fatal("a frame was sent to who does not read")
		}
	}
	read := make(chan [][]byte)
	go func() {
		frames, _ := cut(&frameReader{limit: 1518}, readAll(peer), func() int { return 1 << 20 })
		read <- frames
	}()
	lost := 0
	for !send('c') {
		lost++
		if lost > 1_000_000 {
			t.Fatal("nothing is sent any more")
		}
	}
	e.close()
	frames := <-read
	for i, f := range frames {
		if len(f) != 1000 || bytes.Count(f, f[:1]) != 1000 {
			t.Fatalf("frame %d of %d is no frame of ours", i, len(frames))
		}
	}
	if last := frames[len(frames)-1]; len(frames) < sent || last[0] != 'c' {
		t.Errorf("%d frames came of %d, the last is %q", len(frames), sent, last[:1])
	}
}

func readAll(r io.Reader) []byte {
	b, _ := io.ReadAll(r)
	return b
}

func fileOf(fd int) *os.File { return os.NewFile(uintptr(fd), "end") }
