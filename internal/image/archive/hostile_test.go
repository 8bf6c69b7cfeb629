package archive_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	goerofs "github.com/erofs/go-erofs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
)

// heap measures the memory of this process while a job runs. Its Reader counts as the job's source,
// so that it can look now and then.
type heap struct {
	r          io.Reader
	start, top uint64
	reads      int
}

func (h *heap) Read(p []byte) (int, error) {
	if h.reads++; h.reads%256 == 1 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if h.start == 0 {
			h.start = m.HeapAlloc
		}
		h.top = max(h.top, m.HeapAlloc)
	}
	return h.r.Read(p)
}

// grown is how much the heap grew, in MB. Garbage that is not yet collected counts.
func (h *heap) grown() int64 { return (int64(h.top) - int64(h.start)) >> 20 }

// hostileStream imports a stream. It returns the growth of the heap and the error, and checks that
// no file stays.
func hostileStream(t *testing.T, limits archive.Limits, r io.Reader) (int64, error) {
	t.Helper()
	dir := t.TempDir()
	h := &heap{r: r}
	runtime.GC()
	f, _, err := archive.Importer{NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "*") },
		Limits: limits}.
		Stream(context.Background(), h)
	if err == nil {
		_ = f.Close()
		t.Error("the archive was imported")
	} else if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	return h.grown(), err
}

// header is one tar header, made by hand.
func header(name string, typ byte, size int64) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	number(h[124:136], size)
	copy(h[136:], "00000000000\x00")
	h[156] = typ
	copy(h[257:], "ustar\x0000")
	fixSum(h)
	return h
}

// number writes a number in base 256.
func number(field []byte, n int64) {
	field[0] = 0x80
	for i := len(field) - 1; i > 0; i-- {
		field[i] = byte(n)
		n >>= 8
	}
}

// headers repeats one tar header, with its name counted up.
type headers struct {
	raw  []byte
	name int // where eight digits of the name are
	n    int
	off  int
}

func newHeaders() *headers { return &headers{raw: header("d/00000000", '0', 0), name: 2} }

func (h *headers) Read(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if h.off == 0 {
			copy(h.raw[h.name:], fmt.Sprintf("%08d", h.n))
			h.n++
			fixSum(h.raw)
		}
		n := copy(p[done:], h.raw[h.off:])
		done += n
		h.off = (h.off + n) % len(h.raw)
	}
	return done, nil
}

// TestManyEntries gives an archive without an end. It is refused at the limit, by the name of the
// first entry that is too many, and its memory is bounded by the limit.
func TestManyEntries(t *testing.T) {
	limits := archive.Limits{MaxEntries: 300_000} // the daemon's is 2,000,000: it takes half a minute
	if testing.Short() {
		limits.MaxEntries = 60_000
	}
	src := newHeaders()
	grown, err := hostileStream(t, limits, src)
	limit := limits.MaxEntries
	refused(t, err, carrel.Exhausted, "MaxEntries", fmt.Sprintf("entry \"d/%08d\"", limit-1))
	t.Logf("%d entries: the heap grew by %d MB, %d bytes an entry", limit, grown, grown<<20/limit)
	if most := limit*700>>20 + 64; grown > most {
		t.Errorf("the heap grew by %d MB for %d entries, more than %d", grown, limit, most)
	}
}

// TestSparseGiants claims a file of a terabyte, in each form that tar has for holes.
func TestSparseGiants(t *testing.T) {
	const size = 1 << 40
	for name, raw := range map[string][]byte{"plain": header("giant", '0', size),
		"pax": paxSparse(size), "old gnu": gnuSparse(size)} {
		grown, err := hostileStream(t, archive.Limits{}, bytes.NewReader(raw))
		refused(t, err, carrel.Exhausted, "MaxBytes", `entry "giant"`)
		if grown > 32 {
			t.Errorf("%s: the heap grew by %d MB", name, grown)
		}
	}
}

// paxSparse is a sparse file of the form GNU 1.0: its map is in front of the content.
func paxSparse(size int64) []byte {
	record := func(k, v string) string {
		n := len(k) + len(v) + 3
		for {
			if text := fmt.Sprintf("%d %s=%s\n", n, k, v); len(text) == n {
				return text
			}
			n++
		}
	}
	records := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
		record("GNU.sparse.name", "giant") + record("GNU.sparse.realsize", fmt.Sprint(size))
	block := func(text string) []byte { return append([]byte(text), make([]byte, 512-len(text))...) }
	return slices.Concat(header("PaxHeaders/x", 'x', int64(len(records))), block(records),
		header("GNUSparseFile/giant", '0', 512), block("0\n"), make([]byte, 1024))
}

// gnuSparse is a sparse file of the oldest form: its map is in the header.
func gnuSparse(size int64) []byte {
	h := header("giant", 'S', 0)
	copy(h[257:], "ustar  \x00")
	number(h[386:398], size)
	number(h[398:410], 0)
	number(h[483:495], size)
	fixSum(h)
	return append(h, make([]byte, 1024)...)
}

func fixSum(h []byte) {
	copy(h[148:156], "        ")
	sum := 0
	for _, b := range h[:512] {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
}

// zeros is a stream of n zero bytes.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestBombs gives small files that unpack to much more than the limit.
func TestBombs(t *testing.T) {
	unpacked := int64(512 << 20)
	if testing.Short() {
		unpacked = 128 << 20
	}
	limits := archive.Limits{MaxBytes: 64 << 20, MaxEntries: 1000}
	bomb := func(inside io.Reader, pack func(io.Writer) (io.WriteCloser, error)) []byte {
		var b bytes.Buffer
		z, err := pack(&b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(z, inside)
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	gz := func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) }
	zst := func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
	head := header("big", '0', unpacked)
	whole := tarball(t, entry{name: "small", body: "x"})
	small := header("part", '0', 32<<20)
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"gzip": {bomb(io.MultiReader(bytes.NewReader(head), zeros(unpacked)), gz),
			`entry "big"`},
		"zstd": {bomb(io.MultiReader(bytes.NewReader(head), zeros(unpacked)), zst),
			`entry "big"`},
		"zeros after the end": {bomb(io.MultiReader(bytes.NewReader(whole), zeros(unpacked)), gz),
			"MaxBytes"},
		"zeros after the end, z": {bomb(io.MultiReader(bytes.NewReader(whole), zeros(unpacked)), zst),
			"MaxBytes"},
		"many files of zeros": {bomb(io.MultiReader(bytes.NewReader(small), zeros(32<<20),
			bytes.NewReader(small), zeros(32<<20), bytes.NewReader(small), zeros(32<<20)), gz),
			`entry "part"`},
		"a window of a gigabyte":  {[]byte("\x28\xb5\x2f\xfd\x00\xa8rest of it"), "damaged"},
		"endless attributes":      {bomb(paxFlood(unpacked), gz), "damaged"},
		"endless global comments": {bomb(globals(t, unpacked), gz), "MaxBytes"},
	} {
		grown, err := hostileStream(t, limits, bytes.NewReader(c.raw))
		if k := carrel.KindOf(err); k != carrel.Exhausted && k != carrel.Invalid ||
			!strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v of kind %q, want one that says %q", name, err, k, c.says)
		}
		if grown > 64 {
			t.Errorf("%s: the heap grew by %d MB", name, grown)
		}
	}
}

// paxFlood is one header of attributes that has no end.
func paxFlood(size int64) io.Reader {
	return io.MultiReader(bytes.NewReader(header("small", '0', 0)),
		bytes.NewReader(header("PaxHeaders/x", 'x', size)), zeros(size))
}

// globals repeats a comment that counts as no entry.
func globals(t *testing.T, size int64) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "c",
		PAXRecords: map[string]string{"comment": strings.Repeat("c", 5000)}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var all []io.Reader
	for n := int64(0); n < size; n += int64(b.Len()) {
		all = append(all, bytes.NewReader(b.Bytes()))
	}
	return io.MultiReader(all...)
}

// layersOf makes an image of tar streams.
func layersOf(t *testing.T, raw ...[]byte) *archive.Source {
	t.Helper()
	src := &archive.Source{Config: &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH}}
	for _, b := range raw {
		sum := v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(b))}
		src.Config.RootFS.DiffIDs = append(src.Config.RootFS.DiffIDs, sum)
		src.Layers = append(src.Layers, archive.Layer{Digest: sum,
			Open: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(b)), nil
			}})
	}
	return src
}

// TestHostileLayers lies about layers, and tries whiteouts of things that are no files of a layer
// below.
func TestHostileLayers(t *testing.T) {
	base := tarball(t, entry{name: "dir/f", body: "1"},
		entry{name: "etc/passwd", body: "root:x:0:0::/root:/bin/sh\n"},
		entry{name: "up", typ: tar.TypeSymlink, link: "../../.."})
	for name, c := range map[string]struct {
		top  []byte
		says []string
	}{
		"whiteout of the parent": {tarball(t, entry{name: "dir/.wh..."}),
			[]string{`"dir/.wh..."`, "whiteout"}},
		"whiteout of itself": {tarball(t, entry{name: "dir/.wh.."}),
			[]string{`"dir/.wh.."`, "whiteout"}},
		"whiteout of nothing": {tarball(t, entry{name: "dir/.wh."}),
			[]string{`"dir/.wh."`, "whiteout"}},
		"whiteout outside": {tarball(t, entry{name: "../.wh.etc"}),
			[]string{`"../.wh.etc"`, ".."}},
		"whiteout through a file": {tarball(t, entry{name: "dir/f/.wh.x"}),
			[]string{`"dir/f/.wh.x"`, "no directory"}},
		"hard link through a layer": {tarball(t, entry{name: "l", typ: tar.TypeLink,
			link: "up/../shadow"}), []string{`"l"`, ".."}},
		"cut off": {tarball(t, entry{name: "g",
			body: strings.Repeat("x", 3000)})[:2000], []string{`"g"`, "ends in the middle"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := importer(t, archive.Limits{}).Image(context.Background(), layersOf(t, base, c.top),
				"test")
			refused(t, err, carrel.Invalid, append(c.says, "layer 2 of 2")...)
		})
	}
	for name, lie := range map[string]func(*archive.Source){
		"digest": func(s *archive.Source) { s.Layers[1].Digest.Hex = strings.Repeat("0", 64) },
		"diff ID": func(s *archive.Source) {
			s.Config.RootFS.DiffIDs[0].Hex = strings.Repeat("0",
				64)
		},
		"kind of sum": func(s *archive.Source) { s.Config.RootFS.DiffIDs[0].Algorithm = "md5" },
		"count":       func(s *archive.Source) { s.Config.RootFS.DiffIDs = s.Config.RootFS.DiffIDs[:1] },
	} {
		t.Run(name, func(t *testing.T) {
			src := layersOf(t, base, tarball(t, entry{name: "g", body: "2"}))
			lie(src)
			_, _, err := importer(t, archive.Limits{}).Image(context.Background(), src, "test")
			refused(t, err, carrel.Invalid)
		})
	}
	// These are harmless: what they hide is inside the image.
	f, _, err := importer(t, archive.Limits{}).Image(context.Background(), layersOf(t, base,
		tarball(t, entry{name: "up/.wh.dir"}, entry{name: "etc/.wh..wh..opq"},
			entry{name: "etc/new", body: "n"}, entry{name: "node", typ: tar.TypeBlock})), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"dir/f", "etc/passwd-", "node"} {
		if _, err := fs.Stat(img, gone); err == nil {
			t.Errorf("%s is there", gone)
		}
	}
	if b, err := fs.ReadFile(img, "etc/new"); err != nil || string(b) != "n" {
		t.Errorf("%q %v", b, err)
	}
}
