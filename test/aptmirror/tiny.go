package aptmirror

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/internal/image/debian"
	"github.com/carrel-dev/carrel/test/miniroot"
)

// TinyMark is a file in the template base of a [Tiny] mirror.
const TinyMark = "/etc/tiny"

// Tiny is a mirror with one package, of which the template base is made: some programs of this
// machine, and scripts that stand for Debian's own tools. It needs no network, and base is made
// in a second.
type Tiny struct {
	Set   *debian.Set
	URL   string
	asked atomic.Int32
}

// Asked returns how often the mirror was asked for a package.
func (m *Tiny) Asked() int { return int(m.asked.Load()) }

// ServeTiny starts such a mirror. It ends with the test.
func ServeTiny(t testing.TB) *Tiny {
	t.Helper()
	raw, err := tinyPackage(miniroot.Archive(t, "tar"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(raw)
	pin := debian.Pin{Name: "tiny", Version: "1.0-1", Arch: "all", Archive: debian.Main,
		Path: "pool/main/tiny_1.0-1_all.deb", Size: int64(len(raw)), SHA256: hex.EncodeToString(sum[:])}
	m := &Tiny{Set: &debian.Set{Suite: "tiny", Version: "1.0", Arch: runtime.GOARCH,
		Epoch:     1_700_000_000,
		Templates: []debian.Contents{{Name: "base", Packages: []string{pin.Name}}},
		Pins:      []debian.Pin{pin}}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.asked.Add(1)
		if r.URL.Path != "/"+debian.Main+"/"+pin.Path {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(raw))
	}))
	t.Cleanup(srv.Close)
	m.URL = srv.URL + "/" + debian.Main
	return m
}

// tinyScripts are the files of the package that are no programs of this machine.
var tinyScripts = map[string]string{
	"etc/tiny":            "tiny\n",
	"usr/bin/dpkg":        "#!/bin/sh\necho root:x:0:0:root:/root:/bin/sh >/etc/passwd\n",
	"usr/bin/dpkg-query":  "#!/bin/sh\n",
	"usr/sbin/groupadd":   "#!/bin/sh\necho user:x:1000: >/etc/group\n",
	"usr/sbin/useradd":    tinyUseradd,
	"usr/bin/carrel-tiny": "#!/bin/sh\necho tiny\n",
}

const tinyUseradd = "#!/bin/sh\necho user:x:1000:1000:user:/home/user:/bin/sh >>/etc/passwd\n" +
	"mkdir -p /home/user && chown 1000:1000 /home/user\n"

// tinyPackage makes the package of the regular files of a miniroot.
func tinyPackage(root string) ([]byte, error) {
	f, err := os.Open(root)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := packed(func(tw *tar.Writer) error {
		for tr := tar.NewReader(f); ; {
			h, err := tr.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			if h.Typeflag != tar.TypeReg || strings.HasPrefix(h.Name, "etc/") {
				continue // the package's scripts make those
			}
			if err := entry(tw, h.Name, h.Size, tr); err != nil {
				return err
			}
		}
		for name, text := range tinyScripts {
			if err := entry(tw, name, int64(len(text)), strings.NewReader(text)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	const text = "Package: tiny\nVersion: 1.0-1\nArchitecture: all\nDescription: a test\n"
	control, err := packed(func(tw *tar.Writer) error {
		return entry(tw, "control", int64(len(text)), strings.NewReader(text))
	})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", control}, {"data.tar.gz", data}} {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", m.name, 0, 0, 0, "100644", len(m.data))
		b.Write(m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// packed makes a compressed tar archive.
func packed(fill func(*tar.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	tw := tar.NewWriter(z)
	err = errors.Join(fill(tw), tw.Close(), z.Close())
	return b.Bytes(), err
}

// entry writes one executable file.
func entry(tw *tar.Writer, name string, size int64, r io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o755, Size: size,
		ModTime: time.Unix(1_600_000_000, 0)}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(tw, r)
	return err
}
