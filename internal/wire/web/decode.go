package web

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// undecoded are encodings that servers use and that this package can't decode.
var undecoded = []string{"br", "compress", "x-compress", "dcb", "dcz", "identity", "snappy"}

// decodable returns an error if an encoding can't be decoded. A server may encode although it was
// asked not to, and secrets can be removed only from decoded text. The error does not name an
// unknown encoding, because a server could put a secret there, in a spelling that is not searched
// for.
func decodable(encoding string) error {
	switch encoding {
	case "", "gzip", "x-gzip", "deflate", "zstd":
		return nil
	}
	what := "in a way that is not known here"
	if slices.Contains(undecoded, encoding) {
		what = encoding
	}
	return errors.New("the answer is encoded (" + what + "), so that secrets can't be found in it")
}

// decoded decodes a body in an encoding that is decodable.
func decoded(body io.Reader, encoding string) (io.ReadCloser, error) {
	switch encoding {
	case "gzip", "x-gzip":
		return &lazy{body: body, open: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }}, nil
	case "deflate":
		return &lazy{body: body, open: inflate}, nil
	}
	d, err := zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return nil, err
	}
	return d.IOReadCloser(), nil
}

// lazy opens a decoder at the first read, because opening one already reads.
type lazy struct {
	body io.Reader
	open func(io.Reader) (io.Reader, error)
	in   io.Reader
	err  error
}

// Read implements io.Reader.
func (l *lazy) Read(p []byte) (int, error) {
	if l.in == nil && l.err == nil {
		l.in, l.err = l.open(l.body) // an empty body gives io.EOF
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.in.Read(p)
}

// Close implements io.Closer.
func (l *lazy) Close() error { return nil }

// inflate decodes both forms of "deflate": with zlib's header and without.
func inflate(r io.Reader) (io.Reader, error) {
	b := bufio.NewReader(r)
	head, err := b.Peek(2)
	if err != nil && len(head) == 0 {
		return nil, err
	}
	if len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		return zlib.NewReader(b)
	}
	return flate.NewReader(b), nil
}
