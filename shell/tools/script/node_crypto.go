package script

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"hash"
	"io"

	"github.com/carrel-dev/carrel/shell/tools/script/quickjs"
)

// digests are the checksums, by node's names.
var digests = map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384,
	"sha512": sha512.New, "sha512-256": sha512.New512_256, "rsa-sha256": sha256.New}

// maxHashes is the most unfinished checksums of a script.
const maxHashes = 10_000

func (n *node) hashNew(a in) (any, error) {
	make := digests[a.str(0)]
	if make == nil {
		if a.flag(1) {
			return nil, errors.New("Invalid digest: " + a.str(0))
		}
		return nil, errors.New("Digest method not supported")
	}
	if len(n.hashes) >= maxHashes {
		return nil, errors.New("too many checksums at once")
	}
	h := make()
	if a.flag(1) {
		h = hmac.New(make, a.bytes(2))
	}
	n.hashes = append(n.hashes, h)
	return len(n.hashes) - 1, nil
}

// hash finds a checksum.
func (n *node) hash(a in) (hash.Hash, error) {
	if i := a.num(0); i >= 0 && i < int64(len(n.hashes)) && n.hashes[i] != nil {
		return n.hashes[i], nil
	}
	return nil, errors.New("no such checksum")
}

func (n *node) hashUpdate(a in) (any, error) {
	h, err := n.hash(a)
	if err != nil {
		return nil, err
	}
	b := a.bytes(1)
	if !n.c.Step(1 + len(b)>>6) {
		return nil, quickjs.ErrEnded
	}
	_, err = h.Write(b)
	return nil, err
}

// hashSum returns the checksum, or the number of a copy.
func (n *node) hashSum(a in) (any, error) {
	h, err := n.hash(a)
	if err != nil {
		return nil, err
	}
	if !a.flag(1) {
		sum := h.Sum(nil)
		i := a.num(0)
		if n.hashes[i] = nil; i == int64(len(n.hashes))-1 {
			n.hashes = n.hashes[:i]
		}
		return sum, nil
	}
	c, ok := h.(hash.Cloner)
	if !ok {
		return nil, errors.New("this checksum can't be copied")
	}
	other, err := c.Clone()
	if err != nil {
		return nil, err
	}
	n.hashes = append(n.hashes, other)
	return len(n.hashes) - 1, nil
}

// pbkdf2 derives a key as in RFC 8018, 5.2.
func (n *node) pbkdf2(a in) (any, error) {
	make := digests[a.str(4)]
	rounds, size := a.num(2), a.num(3)
	if make == nil || rounds < 1 || size < 0 || size > 1<<20 {
		return nil, errors.New("Invalid digest: " + a.str(4))
	}
	prf := hmac.New(make, a.bytes(0))
	salt := a.bytes(1)
	var out []byte
	for block := uint32(1); int64(len(out)) < size; block++ {
		prf.Reset()
		prf.Write(salt)
		prf.Write([]byte{byte(block >> 24), byte(block >> 16), byte(block >> 8), byte(block)})
		u := prf.Sum(nil)
		t := bytes.Clone(u)
		for i := int64(1); i < rounds; i++ {
			if i%64 == 0 && !n.c.Step(64*8) {
				return nil, quickjs.ErrEnded
			}
			prf.Reset()
			prf.Write(u)
			u = prf.Sum(u[:0])
			for j := range t {
				t[j] ^= u[j]
			}
		}
		out = append(out, t...)
	}
	return out[:size], nil
}

// zlib compresses or decompresses. Its arguments are the kind, the data, a level and the most bytes
// of the result.
func (n *node) zlib(a in) (any, error) {
	kind, data, level := a.str(0), a.bytes(1), int(a.num(2))
	if level < -1 || level > 9 {
		level = -1
	}
	if !n.c.Step(1 + len(data)>>3) {
		return nil, quickjs.ErrEnded
	}
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch kind {
	case "gzip":
		w, err = gzip.NewWriterLevel(&b, level)
	case "deflate":
		w, err = zlib.NewWriterLevel(&b, level)
	case "deflateRaw":
		w, err = flate.NewWriter(&b, level)
	default:
		return n.expand(kind, data, a.num(3))
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if out := b.Bytes(); kind == "gzip" && len(out) > 9 {
		out[9] = 3 // made on Unix, as zlib says
	}
	return b.Bytes(), err
}

// expand decompresses data, up to most bytes.
func (n *node) expand(kind string, data []byte, most int64) (any, error) {
	if most <= 0 || most > maxRead {
		most = maxRead
	}
	src := bytes.NewReader(data)
	var r io.Reader
	var err error
	header := errors.New("Z_DATA_ERROR|-3|incorrect header check")
	switch {
	case kind == "inflateRaw":
		r = flate.NewReader(src)
	case kind == "gunzip" && len(data) > 1 && (data[0] != 0x1f || data[1] != 0x8b):
		return nil, header
	case kind == "gunzip", kind == "unzip" && len(data) > 0 && data[0] == 0x1f:
		r, err = gzip.NewReader(src)
	default:
		r, err = zlib.NewReader(src)
	}
	short := errors.New("Z_BUF_ERROR|-5|unexpected end of file")
	if err != nil {
		if len(data) < 2 || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, short
		}
		return nil, header
	}
	var b bytes.Buffer
	buf := make([]byte, 32<<10)
	for {
		m, err := r.Read(buf)
		if b.Write(buf[:m]); int64(b.Len()) > most {
			return nil, errors.New("ERR_BUFFER_TOO_LARGE|0|Cannot create a Buffer larger than the allowed size")
		}
		if !n.c.Step(1 + m>>6) {
			return nil, quickjs.ErrEnded
		}
		switch {
		case err == io.EOF:
			return b.Bytes(), nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil, short
		case errors.Is(err, gzip.ErrChecksum), errors.Is(err, zlib.ErrChecksum):
			return nil, errors.New("Z_DATA_ERROR|-3|incorrect data check")
		case err != nil:
			return nil, errors.New("Z_DATA_ERROR|-3|invalid stored block lengths")
		}
	}
}
