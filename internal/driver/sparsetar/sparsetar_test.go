package sparsetar_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/driver/sparsetar"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stream returns an archive with three files. The middle one has holes.
func stream(t testing.TB, h tar.Header, pieces []sparsetar.Piece, fill byte) []byte {
	t.Helper()
	var out bytes.Buffer
	tw := tar.NewWriter(&out)
	plain := func(name string) {
		if err := errors.Join(tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 3}), second(tw.Write([]byte("abc"))), tw.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	plain("before")
	head, data, err := sparsetar.Head(&h, pieces)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(head)
	out.Write(bytes.Repeat([]byte{fill}, int(data)))
	out.Write(make([]byte, sparsetar.Padding(data)))
	plain("after")
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func second(_ int, err error) error { return err }

// want returns the content of such a file.
func want(size int64, pieces []sparsetar.Piece, fill byte) []byte {
	b := make([]byte, size)
	for _, p := range pieces {
		copy(b[p.At:], bytes.Repeat([]byte{fill}, int(p.Size)))
	}
	return b
}

var cases = map[string]struct {
	size   int64
	pieces []sparsetar.Piece
}{
	"nothing but a hole": {1 << 20, nil},
	"empty":              {0, nil},
	"hole first":         {9000, []sparsetar.Piece{{At: 4096, Size: 4904}}},
	"hole last":          {70000, []sparsetar.Piece{{At: 0, Size: 1}}},
	"between":            {1 << 20, []sparsetar.Piece{{At: 3, Size: 512}, {At: 4096, Size: 1024}, {At: 99999, Size: 5}}},
	"pieces that touch":  {8192, []sparsetar.Piece{{At: 0, Size: 4096}, {At: 4096, Size: 10}}},
}

// TestGoReadsIt and TestTarReadsIt read the stream with two readers. Each must find the file with
// its attributes, and its neighbours.
func TestGoReadsIt(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			at := time.Unix(-2, 500_000_000)
			h := tar.Header{Name: "dir/" + strings.Repeat("long", 40), Mode: 0o4750, Uid: 3_000_000_000, Gid: 7, Size: c.size, ModTime: at,
				PAXRecords: map[string]string{"SCHILY.xattr.user.color": "blue"}}
			tr := tar.NewReader(bytes.NewReader(stream(t, h, c.pieces, 'x')))
			for _, name := range []string{"before", h.Name, "after"} {
				got, err := tr.Next()
				if err != nil || got.Name != name {
					t.Fatalf("%+v, %v, want %s", got, err, name)
				}
				if name != h.Name {
					continue
				}
				b, err := io.ReadAll(tr)
				if err != nil || !bytes.Equal(b, want(c.size, c.pieces, 'x')) {
					t.Errorf("%d bytes are read, %v", len(b), err)
				}
				if got.Mode != h.Mode || got.Uid != h.Uid || got.Gid != h.Gid || !got.ModTime.Equal(at) || got.PAXRecords["SCHILY.xattr.user.color"] != "blue" {
					t.Errorf("read as %+v", got)
				}
			}
			if _, err := tr.Next(); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
		})
	}
}

func TestTarReadsIt(t *testing.T) {
	bin, err := exec.LookPath("tar")
	testenv.Need(t, "shell", err)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command(bin, "-xf", "-", "-C", dir)
			cmd.Stdin = bytes.NewReader(stream(t, tar.Header{Name: "file", Mode: 0o600, Size: c.size, ModTime: time.Unix(1_700_000_000, 0)}, c.pieces, 'y'))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			b, err := os.ReadFile(filepath.Join(dir, "file"))
			if err != nil || !bytes.Equal(b, want(c.size, c.pieces, 'y')) {
				t.Errorf("%d bytes are read, %v", len(b), err)
			}
			if after, err := os.ReadFile(filepath.Join(dir, "after")); err != nil || string(after) != "abc" {
				t.Errorf("the next file is %q, %v", after, err)
			}
		})
	}
}

func TestTooManyRecords(t *testing.T) {
	h := tar.Header{Name: "file", PAXRecords: map[string]string{"SCHILY.xattr.user.big": strings.Repeat("x", 1<<20)}}
	if _, _, err := sparsetar.Head(&h, nil); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("got %v", err)
	}
}

// FuzzHead makes headers from any sizes and times. Package tar must read them.
func FuzzHead(f *testing.F) {
	f.Add(int64(10), int64(0), int64(3), int64(7), int64(1), int64(-1), "user.a", "b")
	f.Add(int64(1<<20), int64(512), int64(512), int64(0), int64(512), int64(1_700_000_000_123_456_789), "user.key", "=\n12 x=")
	f.Fuzz(func(t *testing.T, size, a, an, gap, bn, nanos int64, key, value string) {
		const most = 1 << 20
		if min(size, a, an, gap, bn) < 0 || max(size, a, an, gap, bn) > most || a+an+gap+bn > size || an == 0 || bn == 0 {
			return
		}
		if key == "" || len(key)+len(value) > 4096 || strings.ContainsAny(key, "=\x00") || strings.ContainsAny(value, "\x00") {
			return
		}
		pieces := []sparsetar.Piece{{At: a, Size: an}, {At: a + an + gap, Size: bn}}
		key = "SCHILY.xattr." + key
		h := tar.Header{Name: "f", Mode: 0o644, Size: size, ModTime: time.Unix(0, nanos), PAXRecords: map[string]string{key: value}}
		tr := tar.NewReader(bytes.NewReader(stream(t, h, pieces, 'z')))
		_, _ = tr.Next()
		got, err := tr.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil || !bytes.Equal(b, want(size, pieces, 'z')) {
			t.Errorf("%d bytes are read, %v", len(b), err)
		}
		if !got.ModTime.Equal(h.ModTime) || got.PAXRecords[key] != value {
			t.Errorf("read as %+v", got)
		}
	})
}
