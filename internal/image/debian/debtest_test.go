package debian_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/carrel-dev/carrel/internal/image/debian"
)

// file is an entry of a package.
type file struct {
	name, text string
	kind       byte // 0 is a regular file
	link       string
	mode       int64
}

// packed is a package that a test made.
type packed struct {
	pin debian.Pin
	raw []byte
}

// deb makes a package in Debian's format: an ar archive of two compressed tar archives. control
// holds more fields; scripts are control files.
func deb(t testing.TB, name, compression, control string, scripts map[string]string,
	files ...file) packed {
	t.Helper()
	text := fmt.Sprintf("Package: %s\nVersion: 1.0-1\nArchitecture: all\n%sDescription: a test\n",
		name, control)
	parts := []file{{name: "./control", text: text}}
	for _, n := range []string{"conffiles", "preinst", "postinst", "triggers"} {
		if s, ok := scripts[n]; ok {
			parts = append(parts, file{name: "./" + n, text: s})
		}
	}
	return debOf(t, name, []member{
		{"debian-binary", []byte("2.0\n")},
		{"control.tar." + compression, compress(t, compression, tarOf(t, parts...))},
		{"data.tar." + compression, compress(t, compression, tarOf(t, files...))},
	})
}

// member is a part of an ar archive.
type member struct {
	name string
	data []byte
}

// debOf makes a package of given parts and pins it.
func debOf(t testing.TB, name string, members []member) packed {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range members {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	sum := sha256.Sum256(b.Bytes())
	return packed{raw: b.Bytes(), pin: debian.Pin{Name: name, Version: "1.0-1", Arch: "all",
		Archive: debian.Main,
		Path:    "pool/main/" + name + "_1.0-1_all.deb", Size: int64(b.Len()),
		SHA256: hex.EncodeToString(sum[:])}}
}

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Linkname: f.link, Mode: f.mode,
			Size: int64(len(f.text)), ModTime: time.Unix(1700000000, 0)}
		if f.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compress(t testing.TB, how string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	switch how {
	case "xz":
		w, err = xz.WriterConfig{DictCap: 1 << 20}.NewWriter(&b)
	case "zst":
		w, err = zstd.NewWriter(&b)
	case "gz":
		w = gzip.NewWriter(&b)
	default:
		t.Fatalf("no compression %q", how)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// opener opens packages from memory.
func opener(all ...packed) func(debian.Pin) (io.ReadCloser, error) {
	return func(p debian.Pin) (io.ReadCloser, error) {
		for _, d := range all {
			if d.pin == p {
				return io.NopCloser(bytes.NewReader(d.raw)), nil
			}
		}
		return nil, fmt.Errorf("no package %s", p.Name)
	}
}

func pinsOf(all ...packed) (out []debian.Pin) {
	for _, d := range all {
		out = append(out, d.pin)
	}
	return out
}

// mirror serves packages on loopback. handle, if it is set, may answer a request instead: it
// returns true if it did.
type mirror struct {
	url string

	mu     sync.Mutex
	asked  []string // "path range"
	handle func(w http.ResponseWriter, r *http.Request, raw []byte) bool
}

func newMirror(t testing.TB, all ...packed) *mirror {
	t.Helper()
	m := &mirror{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.mu.Lock()
		m.asked = append(m.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		handle := m.handle
		m.mu.Unlock()
		var raw []byte
		for _, d := range all {
			if r.URL.Path == "/debian/"+d.pin.Path {
				raw = d.raw
			}
		}
		if handle != nil && handle(w, r, raw) {
			return
		}
		if raw == nil {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(raw))
	}))
	t.Cleanup(srv.Close)
	m.url = srv.URL + "/debian"
	return m
}

// set changes how the mirror answers.
func (m *mirror) set(handle func(w http.ResponseWriter, r *http.Request, raw []byte) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handle = handle
}

// requests returns what the mirror was asked for so far.
func (m *mirror) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.asked...)
}

// fetcher returns a Fetcher of the mirror that is less patient than usual.
func (m *mirror) fetcher(t testing.TB) *debian.Fetcher {
	t.Helper()
	at, err := debian.ParseMirror(m.url)
	if err != nil {
		t.Fatal(err)
	}
	f := debian.NewFetcher(at, t.TempDir())
	f.Pause = time.Millisecond
	return f
}

// fixSum corrects the checksum of an xz block header.
func fixSum(h []byte) {
	binary.LittleEndian.PutUint32(h[len(h)-4:], crc32.ChecksumIEEE(h[:len(h)-4]))
}
