package archive

import (
	"errors"
	"io"

	"github.com/carrel-dev/carrel/shell/tool"
)

// errWindow is the error of a stream whose decoder would need more than [maxWindow].
var errWindow = errors.New("memory usage limit reached")

// xzGuard passes an .xz file on. It pays for the dictionary of each block before the decoder sees
// the block's header, because only the header decides its size. It follows the file's structure:
// headers, LZMA2 chunks with their sizes, indexes.
type xzGuard struct {
	c    *tool.Call
	in   io.Reader
	err  error
	paid int64
	// The expected input: skip bytes to ignore, then a byte for step.
	skip   int64
	step   func(b byte)
	head   []byte // the header that is being collected
	want   int    // its length
	done   func() // what happens when it is whole
	inside int64  // bytes since the start of the block, for its padding
	check  int64  // length of the check after a block
	fields uint64 // varints of the index to come
	index  int64  // bytes of the index
	shift  uint
	count  uint64
}

func newXZGuard(c *tool.Call, in io.Reader) *xzGuard {
	g := &xzGuard{c: c, in: in, paid: 1 << 20}
	g.collect(12, g.streamHeader)
	return g
}

// Read implements io.Reader.
func (g *xzGuard) Read(b []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.in.Read(b)
	for i := 0; i < n && g.err == nil; {
		if g.skip > 0 {
			k := min(g.skip, int64(n-i))
			g.skip -= k
			i += int(k)
			continue
		}
		g.step(b[i])
		i++
	}
	if g.err != nil {
		return 0, g.err
	}
	return n, err
}

// collect reads n bytes and then calls done.
func (g *xzGuard) collect(n int, done func()) {
	g.head, g.want, g.done = g.head[:0], n, done
	g.step = func(b byte) {
		if g.head = append(g.head, b); len(g.head) == g.want {
			g.done()
		}
	}
}

// rest passes everything on: the stream does not have the format, and the decoder will find the
// same error.
func (g *xzGuard) rest() { g.step = func(byte) { g.skip = 1 << 62 } }

func (g *xzGuard) streamHeader() {
	sizes := [16]int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}
	g.check = sizes[g.head[7]&15]
	g.step = g.block
}

// block handles the first byte of a block's header, or the 0 before the index.
func (g *xzGuard) block(b byte) {
	if b == 0 {
		g.index, g.shift, g.count, g.fields = 1, 0, 0, 0
		g.step = g.indexCount
		return
	}
	g.collect(int(b)*4+3, func() { g.blockHeader(b) })
}

func (g *xzGuard) blockHeader(size byte) {
	at := 1
	for n := range 2 { // the optional sizes of the block
		if g.head[0]&(0x40<<n) != 0 {
			for at < len(g.head) && g.head[at]&0x80 != 0 {
				at++
			}
			at++
		}
	}
	if g.head[0]&3 != 0 || at+2 >= len(g.head) || g.head[at] != 0x21 {
		g.err = errors.New("unsupported options")
		return
	}
	bits := int64(g.head[at+2])
	if bits > 40 || (2|bits&1)<<(bits/2+11) > maxWindow {
		g.err = errWindow
		return
	}
	need := (2|bits&1)<<(bits/2+11) + 1<<20
	if need > g.paid {
		if g.err = g.c.Pay(need - g.paid); g.err != nil {
			return
		}
		g.paid = need
	}
	g.inside = 0
	g.step = g.chunk
}

// chunk handles the first byte of an LZMA2 chunk.
func (g *xzGuard) chunk(b byte) {
	g.inside++
	switch {
	case b == 0:
		g.skip = (4-g.inside%4)%4 + g.check
		g.step = g.block
	case b == 1 || b == 2:
		g.collect(2, func() { g.chunkData(2, int64(g.head[0])<<8+int64(g.head[1])+1) })
	case b >= 0x80:
		n := 4
		if b >= 0xc0 {
			n = 5 // the properties
		}
		g.collect(n, func() { g.chunkData(int64(n), int64(g.head[2])<<8+int64(g.head[3])+1) })
	default:
		g.rest()
	}
}

func (g *xzGuard) chunkData(head, size int64) {
	g.inside += head + size
	g.skip = size
	g.step = g.chunk
}

// indexCount handles a byte of the number of records in the index.
func (g *xzGuard) indexCount(b byte) {
	g.index++
	g.count |= uint64(b&0x7f) << g.shift
	if g.shift += 7; g.shift > 63 {
		g.rest()
		return
	}
	if b&0x80 == 0 {
		g.fields = g.count * 2
		g.records()
	}
}

// records skips the index's records, its padding, its check and the footer of the stream.
func (g *xzGuard) records() {
	if g.fields > 0 {
		g.step = func(b byte) {
			if g.index++; b&0x80 == 0 {
				if g.fields--; g.fields == 0 {
					g.records()
				}
			}
		}
		return
	}
	g.skip = (4-g.index%4)%4 + 4 + 12
	g.step = func(b byte) {
		if b != 0 { // not padding: another stream
			g.collect(12, g.streamHeader)
			g.step(b)
		}
	}
}
