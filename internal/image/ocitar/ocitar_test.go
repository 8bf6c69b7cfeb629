package ocitar

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// sample is a small image.
func sample() Image {
	return Image{
		Ref: "thing:1", Architecture: "arm64", Created: time.Unix(1700000000, 0).UTC(),
		Config: v1.Config{Entrypoint: []string{"/usr/bin/thing"}, Labels: map[string]string{"a": "b"}},
		Files: []File{
			{Name: "/usr/bin/thing", Mode: 0o755, Data: []byte("program")},
			{Name: "/etc/thing.conf", Data: []byte("x: 1\n")},
			{Name: "/bin", Link: "usr/bin"},
		},
	}
}

// TestWrite reads the image back through both indexes, with the library's own readers.
func TestWrite(t *testing.T) {
	var buf bytes.Buffer
	if err := Write(&buf, sample()); err != nil {
		t.Fatal(err)
	}
	older, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil }, nil)
	if err != nil {
		t.Fatal("as docker-save wrote it:", err)
	}
	dir := t.TempDir()
	unpack(t, buf.Bytes(), dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatal(m, err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal("as a layout:", err)
	}
	for name, img := range map[string]v1.Image{"docker-save": older, "layout": img} {
		cfg, err := img.ConfigFile()
		if err != nil {
			t.Fatal(name, err)
		}
		if cfg.Architecture != "arm64" || cfg.OS != "linux" || cfg.Config.Entrypoint[0] != "/usr/bin/thing" {
			t.Errorf("%s: its configuration is %+v", name, cfg)
		}
		got := map[string]string{}
		tr := tar.NewReader(mutate.Extract(img))
		for h, err := tr.Next(); err != io.EOF; h, err = tr.Next() {
			if err != nil {
				t.Fatal(name, err)
			}
			data, _ := io.ReadAll(tr)
			got[h.Name] = h.FileInfo().Mode().String() + " " + string(data) + h.Linkname
		}
		want := map[string]string{
			"usr": "drwxr-xr-x ", "usr/bin": "drwxr-xr-x ", "usr/bin/thing": "-rwxr-xr-x program",
			"etc": "drwxr-xr-x ", "etc/thing.conf": "-rw-r--r-- x: 1\n", "bin": "Lrwxrwxrwx usr/bin",
		}
		for file, is := range want {
			if got[file] != is && got[file+"/"] != is {
				t.Errorf("%s: %s is %q, want %q", name, file, got[file], is)
			}
		}
	}
}

// TestSameBytes checks that an image does not depend on the time or the machine.
func TestSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	if err := Write(&a, sample()); err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, sample()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same image was written in two ways")
	}
}

// TestBadNames checks that names outside of the image are refused.
func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "usr/bin/x", "/../etc/passwd", "/a//b", "/a/"} {
		img := sample()
		img.Files = []File{{Name: name}}
		if err := Write(io.Discard, img); err == nil || !strings.Contains(err.Error(), "absolute path") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// unpack writes a tarball's files into dir.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	tr := tar.NewReader(bytes.NewReader(data))
	for h, err := tr.Next(); err != io.EOF; h, err = tr.Next() {
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
