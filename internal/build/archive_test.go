package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/carrel-dev/carrel"
)

// tarOf makes a tar stream of headers; a regular file's content is its name.
func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestNormalize reads an archive in each compression.
func TestNormalize(t *testing.T) {
	plain := tarOf(t, tar.Header{Name: "dir/file"},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "dir/file"},
		tar.Header{Name: "dev", Typeflag: tar.TypeChar, Devmajor: 1}, tar.Header{Name: "with\nnewline"})
	var gz, zs bytes.Buffer
	zw := gzip.NewWriter(&gz)
	if _, err := zw.Write(plain); err != nil || zw.Close() != nil {
		t.Fatal(err)
	}
	sw, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sw.Write(plain); err != nil || sw.Close() != nil {
		t.Fatal(err)
	}
	for name, raw := range map[string][]byte{"plain": plain, "gzip": gz.Bytes(), "zstd": zs.Bytes()} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.tar")
			if err := keepContext(t.Context(), file, bytes.NewReader(raw)); err != nil {
				t.Fatal(err)
			}
			tree, err := openArchive(file)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			for _, name := range []string{"dir/file", "hard"} {
				f, err := tree.Open(name)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(f); err != nil || string(got) != "dir/file" {
					t.Errorf("%s has %q, %v", name, got, err)
				}
			}
			if _, err := tree.Lstat("dev"); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a device was kept: %v", err)
			}
			if _, err := tree.Lstat("with\nnewline"); err != nil {
				t.Error(err)
			}
		})
		for _, cut := range []int{1, len(raw)/2 + 7} {
			err := normalize(t.Context(), io.Discard, bytes.NewReader(raw[:cut]))
			if carrel.KindOf(err) != carrel.Invalid {
				t.Errorf("%s, cut off after %d bytes: %v", name, cut, err)
			}
		}
	}
}

// TestNormalizeRefuses gives archives that leave their root or are too large.
func TestNormalizeRefuses(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../x"}, {Name: "/x"}, {Name: "a/../../x"}, {Name: strings.Repeat("x", 300)},
		{Name: "l", Typeflag: tar.TypeLink, Linkname: "../x"},
		{Name: "s", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("x/", 3000)},
	} {
		if err := normalize(t.Context(), io.Discard,
			bytes.NewReader(tarOf(t, h))); carrel.KindOf(err) != carrel.Invalid {
			t.Errorf("%q → %q: %v", h.Name, h.Linkname, err)
		}
	}
	if err := normalize(t.Context(), io.Discard,
		strings.NewReader("PK\x03\x04")); carrel.KindOf(err) != carrel.Invalid {
		t.Errorf("a zip archive: %v", err)
	}
	// A small stream that becomes a large one.
	var bomb bytes.Buffer
	zw := gzip.NewWriter(&bomb)
	tw := tar.NewWriter(zw)
	if err := tw.WriteHeader(&tar.Header{Name: "big", Typeflag: tar.TypeReg,
		Size: maxContext + 1}); err != nil {
		t.Fatal(err)
	}
	if err := zw.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := normalize(t.Context(), io.Discard, &bomb); carrel.KindOf(err) != carrel.Exhausted {
		t.Errorf("a file beyond the bound: %v", err)
	}
}

// FuzzNormalize gives any bytes. What is accepted must be readable again.
func FuzzNormalize(f *testing.F) {
	f.Add(tarOf(f, tar.Header{Name: "a/b"}, tar.Header{Name: "a/b/c"},
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "a"}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		file := filepath.Join(t.TempDir(), "a.tar")
		if keepContext(t.Context(), file, bytes.NewReader(raw)) != nil {
			return
		}
		tree, err := openArchive(file)
		if err != nil {
			// a file where a directory must be, or a link to nothing
			if carrel.KindOf(err) != carrel.Invalid {
				t.Fatal(err)
			}
			return
		}
		_ = tree.Close()
	})
}
