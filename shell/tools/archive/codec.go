package archive

import (
	"bufio"
	"compress/bzip2"
	"errors"
	"io"
	"strings"
	"time"

	bzip2w "github.com/dsnet/compress/bzip2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"github.com/carrel-dev/carrel/shell/tool"
)

// maxWindow is the most output that a decoder may keep for references.
const maxWindow = 128 << 20

// magics are the bytes at the beginning of each format.
var magics = []struct{ codec, magic string }{
	{"gzip", "\x1f\x8b"}, {"bzip2", "BZh"}, {"xz", "\xfd7zXZ\x00"}, {"zstd", "\x28\xb5\x2f\xfd"}, {"lz4", "\x04\"M\x18"}, {"lzma", "\x5d\x00\x00"},
}

// sniff returns the format of a stream from its first bytes, or "" if it is none.
func sniff(br *bufio.Reader) string {
	head, _ := br.Peek(6) // shorter ones are fine
	for _, m := range magics {
		if strings.HasPrefix(string(head), m.magic) {
			return m.codec
		}
	}
	return ""
}

// paidReader pays for the bytes that are read through it. It fails when the process is being ended.
type paidReader struct {
	c  *tool.Call
	in io.Reader
}

func (p paidReader) Read(b []byte) (int, error) {
	n, err := p.in.Read(b)
	if !p.c.Step(1 + n>>8) {
		return n, tool.ErrStop
	}
	return n, err
}

// errFormat is the error of a stream that does not have the expected format.
var errFormat = errors.New("not in the format")

// decoder returns a reader of the decompressed stream. It accepts several streams one after the
// other.
func decoder(c *tool.Call, codec string, in io.Reader) (io.Reader, error) {
	in = paidReader{c, in}
	var out io.Reader
	var err error
	memory := int64(1 << 20)
	switch codec {
	case "gzip":
		var r *gzip.Reader
		if r, err = gzip.NewReader(in); err == nil {
			out = r
		}
	case "bzip2":
		memory = 8 << 20
		out = bzip2.NewReader(in)
	case "xz":
		in = newXZGuard(c, in)
		out, err = xz.ReaderConfig{DictCap: 1 << 20}.NewReader(in)
	case "lzma":
		if in, memory, err = window(in, lzmaWindow); err != nil {
			return nil, err
		}
		out, err = lzma.ReaderConfig{DictCap: 1 << 20}.NewReader(in)
	case "zstd":
		memory = 8 << 20
		var d *zstd.Decoder
		if d, err = zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true)); err == nil {
			out = d.IOReadCloser()
		}
	case "lz4":
		memory = 8 << 20
		out = lz4.NewReader(in)
	default:
		return in, nil
	}
	if err != nil {
		return nil, err
	}
	if err := c.Pay(memory); err != nil {
		return nil, err
	}
	return out, nil
}

// encoder returns a writer that compresses. Level 0 is the default level.
func encoder(c *tool.Call, codec string, level int, out io.Writer) (io.WriteCloser, error) {
	memory := int64(2 << 20)
	defer func() { _ = memory }()
	switch codec {
	case "gzip":
		if level == 0 {
			level = 6
		}
		if err := c.Pay(memory); err != nil {
			return nil, err
		}
		w, err := gzip.NewWriterLevel(out, level)
		if err == nil {
			w.OS, w.ModTime = 3, time.Unix(0, 0)
		}
		return w, err
	case "bzip2":
		if level == 0 {
			level = 9
		}
		if err := c.Pay(int64(level) * 2 << 20); err != nil {
			return nil, err
		}
		return bzip2w.NewWriter(out, &bzip2w.WriterConfig{Level: level})
	case "xz":
		if err := c.Pay(8 << 20); err != nil {
			return nil, err
		}
		return xz.WriterConfig{DictCap: 1 << 20, CheckSum: xz.CRC64}.NewWriter(out)
	case "lzma":
		if err := c.Pay(8 << 20); err != nil {
			return nil, err
		}
		return lzma.WriterConfig{DictCap: 1 << 20, EOSMarker: true}.NewWriter(out)
	case "zstd":
		if level == 0 {
			level = 3
		}
		if err := c.Pay(8 << 20); err != nil {
			return nil, err
		}
		return zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	case "lz4":
		if err := c.Pay(16 << 20); err != nil {
			return nil, err
		}
		w := lz4.NewWriter(out)
		return w, w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.ConcurrencyOption(1))
	}
	return nil, errors.New("unknown compression")
}

// copyAll copies in large blocks, and pays for them.
func copyAll(c *tool.Call, out io.Writer, in io.Reader) (int64, error) {
	buf := make([]byte, 64<<10)
	var total int64
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if !c.Step(2 + n>>8) {
				return total, tool.ErrStop
			}
			if _, werr := out.Write(buf[:n]); werr != nil {
				return total, writeError{werr}
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// writeError is an error of the output.
type writeError struct{ error }

func (w writeError) Unwrap() error { return w.error }

// window reads the start of a stream to find how much memory its decoder will need. Only the header
// decides this.
func window(in io.Reader, size func([]byte) int64) (io.Reader, int64, error) {
	br := bufio.NewReaderSize(in, 4096)
	head, _ := br.Peek(64) // shorter ones are fine
	n := size(head)
	if n > maxWindow {
		return nil, 0, errWindow
	}
	return br, n + 1<<20, nil
}

// lzmaWindow returns the dictionary size in the header of the old format.
func lzmaWindow(b []byte) int64 {
	if len(b) < 5 {
		return 0
	}
	return int64(b[1]) | int64(b[2])<<8 | int64(b[3])<<16 | int64(b[4])<<24
}
