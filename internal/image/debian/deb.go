package debian

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// Bounds of one package.
const (
	maxDeb     = 1 << 30  // the package
	maxControl = 32 << 20 // its control files, unpacked
	maxFiles   = 8 << 30  // its files, unpacked
	maxWindow  = 64 << 20 // memory of a decompressor
)

// control is the control part of a package.
type control struct {
	text      string            // the file "control"
	files     map[string][]byte // all other files, by name
	conffiles map[string]bool   // absolute names of its configuration files
}

// field returns a field of the control file.
func (c *control) field(name string) string {
	for line := range strings.Lines(c.text) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// readDeb reads a package. It calls each for every entry of the package's files, with the control
// part.
func readDeb(r io.Reader, each func(c *control, h *tar.Header,
	body io.Reader) error) (*control, error) {
	br := bufio.NewReaderSize(r, 256<<10)
	magic := make([]byte, 8)
	if _, err := io.ReadFull(br, magic); err != nil || string(magic) != "!<arch>\n" {
		return nil, errors.New("it is no Debian package")
	}
	var c *control
	for {
		name, size, err := nextMember(br)
		if err == io.EOF {
			return nil, errors.New("it has no data part")
		}
		if err != nil {
			return nil, err
		}
		member := &io.LimitedReader{R: br, N: size}
		base, _, _ := strings.Cut(name, ".tar")
		switch {
		case base == "control" && c == nil:
			if c, err = readControl(member); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		case base == "data" && c == nil:
			return nil, errors.New("its data part comes before its control part")
		case base == "data":
			err := readTar(member, maxFiles, func(h *tar.Header,
				body io.Reader) error {
				return each(c, h, body)
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return c, nil
		}
		if _, err := io.CopyN(io.Discard, br, member.N+size%2); err != nil {
			return nil, errors.New("it ends in the middle")
		}
	}
}

// nextMember reads the head of an ar archive's next member.
func nextMember(r io.Reader) (name string, size int64, err error) {
	head := make([]byte, 60)
	if _, err := io.ReadFull(r, head); err != nil {
		if err == io.ErrUnexpectedEOF {
			err = errors.New("it ends in the middle")
		}
		return "", 0, err
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(head[48:58])), 10, 64)
	if err != nil || size < 0 || size > maxDeb || string(head[58:]) != "`\n" {
		return "", 0, errors.New("a damaged part")
	}
	return strings.TrimSuffix(strings.TrimSpace(string(head[:16])), "/"), size, nil
}

// readControl reads the control part.
func readControl(r io.Reader) (*control, error) {
	c := &control{files: map[string][]byte{}, conffiles: map[string]bool{}}
	err := readTar(r, maxControl, func(h *tar.Header, body io.Reader) error {
		name := path.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			return nil
		}
		if h.Typeflag != tar.TypeReg || strings.ContainsRune(name, '/') || strings.HasPrefix(name, ".") {
			return errors.New("a control file of another kind or place")
		}
		raw, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		if name == "control" {
			c.text = strings.TrimSpace(string(raw)) + "\n"
			return nil
		}
		c.files[name] = raw
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c.field("Package") == "" || c.field("Version") == "" || strings.Contains(c.text, "\n\n") {
		return nil, errors.New("no usable control file")
	}
	for line := range strings.Lines(string(c.files["conffiles"])) {
		if f := strings.Fields(line); len(f) == 1 { // others are to be removed
			c.conffiles[f[0]] = true
		}
	}
	return c, nil
}

// errTooMuch means that a part of a package unpacks to more than a package may have.
var errTooMuch = errors.New("it unpacks to too much")

// readTar reads a tar stream, plain or compressed, of at most limit bytes.
func readTar(r io.Reader, limit int64, each func(*tar.Header, io.Reader) error) error {
	plain, done, err := decompress(bufio.NewReaderSize(r, 256<<10))
	if err != nil {
		return err
	}
	defer done()
	bounded := &boundedReader{r: plain, left: limit}
	tr := tar.NewReader(bounded)
	for {
		h, err := tr.Next()
		switch {
		case err == io.EOF:
			_, err := io.Copy(io.Discard, bounded) // so that checksums are verified
			return err
		case errors.Is(err, io.ErrUnexpectedEOF):
			return errors.New("it ends in the middle")
		case err != nil:
			return err
		}
		if err = each(h, tr); errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends in the middle")
		}
		if err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		// The stream may just have ended.
		var one [1]byte
		if n, err := b.r.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, errTooMuch
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// decompress recognises a stream's compression by its first bytes and undoes it. done releases its
// resources.
func decompress(br *bufio.Reader) (out io.Reader, done func(), err error) {
	head, err := br.Peek(6)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	nothing := func() {}
	switch {
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		z, err := xz.NewReader(br, maxWindow)
		return z, nothing, err
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(br)
		return z, nothing, err
	}
	return br, nothing, nil
}
