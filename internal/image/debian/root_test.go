package debian_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	goerofs "github.com/erofs/go-erofs"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/image/archive"
	"github.com/carrel-dev/carrel/internal/image/debian"
	"github.com/carrel-dev/carrel/internal/image/locale"
)

var epoch = time.Unix(1_760_000_000, 0)

// entry is an entry of a tar stream that a test reads.
type entry struct {
	*tar.Header
	text string
}

// rootOf writes the root filesystem of packages and reads it back.
func rootOf(t testing.TB, all ...packed) (map[string]entry, error) {
	t.Helper()
	var b bytes.Buffer
	if err := debian.WriteRoot(&b, pinsOf(all...), epoch, opener(all...)); err != nil {
		return nil, err
	}
	return readAll(t, &b), nil
}

func readAll(t testing.TB, r io.Reader) map[string]entry {
	t.Helper()
	out := map[string]entry{}
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(h.Name, "/")] = entry{h, string(raw)}
	}
}

// TestRoot unpacks packages of every compression and compares the files and dpkg's database.
func TestRoot(t *testing.T) {
	a := deb(t, "liba", "xz", "Multi-Arch: same\n",
		map[string]string{"triggers": "# comment\ninterest-noawait /usr/lib\ninterest ldconfig\nactivate x\n",
			"postinst": "#!/bin/sh\n"},
		file{name: "./", kind: tar.TypeDir}, file{name: "./lib/", kind: tar.TypeDir},
		file{name: "./lib/x/", kind: tar.TypeDir},
		file{name: "./lib/x/a.so.1", text: "A"}, file{name: "./usr/lib/x/a.so", kind: tar.TypeSymlink,
			link: "a.so.1"},
		file{name: "./lib/x/hard", kind: tar.TypeLink, link: "./lib/x/a.so.1"})
	b := deb(t, "tool", "zst", "Depends: liba\n",
		map[string]string{"conffiles": "/etc/tool.conf\nremove-on-upgrade /etc/gone\n"},
		file{name: "./bin/tool", text: "T", mode: 0o4755},
		file{name: "./etc/tool.conf", text: "x=1\n", mode: 0o644})
	c := deb(t, "plain", "gz", "", nil, file{name: "usr/share/plain", text: "P"})
	got, err := rootOf(t, a, b, c)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"usr/lib/x/a.so.1": "A", "usr/bin/tool": "T", "etc/tool.conf.dpkg-new": "x=1\n",
		"usr/share/plain":          "P",
		"var/lib/dpkg/info/format": "1\n", "var/lib/dpkg/info/liba:all.postinst": "#!/bin/sh\n",
		"var/lib/dpkg/info/tool.list":      "/.\n/bin/tool\n/etc/tool.conf\n",
		"var/lib/dpkg/triggers/File":       "/usr/lib liba:all/noawait\n",
		"var/lib/dpkg/triggers/ldconfig":   "liba:all\n",
		"var/lib/dpkg/info/tool.conffiles": "/etc/tool.conf\nremove-on-upgrade /etc/gone\n",
		"var/lib/dpkg/status": "Package: liba\nStatus: install ok unpacked\nVersion: 1.0-1\nArchitecture: all\nMulti-Arch: same\nDescription: a test\n\n" +
			"Package: tool\nStatus: install ok unpacked\nVersion: 1.0-1\nArchitecture: all\nDepends: liba\nDescription: a test\nConffiles:\n /etc/tool.conf newconffile\n\n" +
			"Package: plain\nStatus: install ok unpacked\nVersion: 1.0-1\nArchitecture: all\nDescription: a test\n\n",
	} {
		if e, ok := got[name]; !ok || e.text != want {
			t.Errorf("%s: %q, want %q", name, e.text, want)
		}
	}
	if e := got["lib"]; e.Header == nil || e.Typeflag != tar.TypeSymlink || e.Linkname != "usr/lib" {
		t.Errorf("/lib is %+v", e.Header)
	}
	if e := got["usr/bin/tool"]; e.Mode != 0o4755 {
		t.Errorf("mode %o", e.Mode)
	}
	if e := got["usr/lib/x/hard"]; e.Linkname != "usr/lib/x/a.so.1" {
		t.Errorf("hard link to %q", e.Linkname)
	}
	if e := got["var/lib/dpkg/info/liba:all.postinst"]; e.Mode != 0o755 {
		t.Errorf("a script has mode %o", e.Mode)
	}
}

// TestLanguageArchive unpacks a language that is whole, and one that is not. Only the first is in the
// archive. A package's own archive stays as it is.
func TestLanguageArchive(t *testing.T) {
	const archive = locale.Dir + "/" + locale.Archive
	files := []file{{name: "./" + locale.Dir + "/half.utf8/LC_TIME", text: "half of it"}}
	for _, name := range locale.Files {
		if name != "" {
			files = append(files, file{name: "./" + locale.Dir + "/C.utf8/" + name, text: "C " + name})
		}
	}
	got, err := rootOf(t, deb(t, "libc-bin", "xz", "", nil, files...))
	if err != nil {
		t.Fatal(err)
	}
	e, ok := got[archive]
	if !ok || e.Mode != 0o644 || !e.ModTime.Equal(epoch) {
		t.Fatalf("the archive is %+v", e.Header)
	}
	for _, name := range locale.Files {
		if name != "" && !strings.Contains(e.text, "C "+name) {
			t.Errorf("%s is not in the archive", name)
		}
	}
	if strings.Contains(e.text, "half of it") {
		t.Error("a language that is not whole is in the archive")
	}
	theirs := file{name: "./" + archive, text: "theirs"}
	got, err = rootOf(t, deb(t, "libc-bin", "xz", "", nil, append(files, theirs)...))
	if err != nil || got[archive].text != "theirs" {
		t.Errorf("a package's own archive is %q (%v)", got[archive].text, err)
	}
}

// TestHostilePackages refuses packages that no archive would sign.
func TestHostilePackages(t *testing.T) {
	one := func(f file) packed { return deb(t, "evil", "xz", "", nil, f) }
	good := tarOf(t, file{name: "./control", text: "Package: evil\nVersion: 1.0-1\n"})
	for _, c := range []struct {
		name, want string
		deb        packed
	}{
		{"a way out", `".."`, one(file{name: "./usr/../../etc/passwd", text: "x"})},
		{"an absolute name", "absolute", one(file{name: "/etc/passwd", text: "x"})},
		{"a second absolute name", "absolute", one(file{name: ".//etc/passwd", text: "x"})},
		{"a line break", "line break", one(file{name: "./usr/a\n/etc/b", text: "x"})},
		{"a hard link out", "hard link", one(file{name: "./a", kind: tar.TypeLink,
			link: "../../etc/shadow"})},
		{"a device", "special file", one(file{name: "./dev/sda", kind: tar.TypeBlock})},
		{"a character device", "special file", one(file{name: "./dev/mem", kind: tar.TypeChar})},
		{"a pipe", "special file", one(file{name: "./p", kind: tar.TypeFifo})},
		{"no package", "no Debian package", packed{pin: one(file{}).pin, raw: []byte("<html>")}},
		{"another package", "it says that it is other", func() packed {
			d := deb(t, "other", "gz", "", nil)
			d.pin.Name = "evil"
			return d
		}()},
		{"no data", "no data part", debOf(t, "evil",
			[]member{{"debian-binary", []byte("2.0\n")}, {"control.tar", good}})},
		{"data first", "before its control part", debOf(t, "evil",
			[]member{{"data.tar", good}, {"control.tar", good}})},
		{"no control file", "no usable control file",
			debOf(t, "evil", []member{{"control.tar", tarOf(t)}, {"data.tar", good}})},
		{"two paragraphs", "no usable control file", debOf(t, "evil", []member{
			{"control.tar", tarOf(t, file{name: "./control",
				text: "Package: evil\nVersion: 1.0-1\n\nPackage: bash\nStatus: install ok installed\n"})},
			{"data.tar", good}})},
		{"a script elsewhere", "another kind or place",
			debOf(t, "evil", []member{{"control.tar", tarOf(t, file{name: "./../../x", text: "x"})},
				{"data.tar", good}})},
		{"a control bomb", "unpacks to too much", debOf(t, "evil",
			[]member{{"control.tar.xz", compress(t, "xz",
				tarOf(t, file{name: "./md5sums", text: strings.Repeat("\x00", 33<<20)}))}})},
		{"cut off", "ends in the middle", func() packed {
			d := big(
				t)
			d.raw = d.raw[:len(d.raw)/2]
			return d
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rootOf(t, c.deb)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestBombs reads a little data that unpacks to much. The bound holds for each compression, and the
// stream may be exactly as long as the bound.
func TestBombs(t *testing.T) {
	bomb := tarOf(t, file{name: "./zeros", text: strings.Repeat("\x00", 8<<20)})
	count := func(how string, limit int64) (n int64, err error) {
		err = debian.ReadTar(bytes.NewReader(compress(t, how, bomb)), limit,
			func(_ *tar.Header, r io.Reader) error {
				n, err = io.Copy(io.Discard, r)
				return err
			})
		return n, err
	}
	for _, how := range []string{"xz", "zst", "gz"} {
		if n, err := count(how, 1<<20); err == nil || !strings.Contains(err.Error(), "too much") ||
			n > 1<<20 {
			t.Errorf("%s: %d bytes, %v", how, n, err)
		}
		if n, err := count(how, int64(len(bomb))); err != nil || n != 8<<20 {
			t.Errorf("%s, exactly: %d bytes, %v", how, n, err)
		}
	}
	// A decompressor may not take the memory that a stream asks for.
	var wide bytes.Buffer
	wide.Write(compress(t, "xz", bomb))
	raw := wide.Bytes()
	h := raw[12 : 12+(int(raw[12])+1)*4]
	h[bytes.IndexByte(h, 0x21)+2] = 40 // a dictionary of 4 GB
	fixSum(h)
	if err := debian.ReadTar(bytes.NewReader(raw), 1<<30,
		func(*tar.Header, io.Reader) error { return nil }); err == nil {
		t.Error("a dictionary of 4 GB was taken")
	}
}

// TestLinksStayInside follows a link of one package with a file of another. The file stays in the
// tree, and this machine's file stays as it is.
func TestLinksStayInside(t *testing.T) {
	outside := t.TempDir() + "/victim"
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := deb(t, "a", "xz", "", nil, file{name: "./usr/out", kind: tar.TypeSymlink,
		link: outside[:strings.LastIndex(outside, "/")]})
	b := deb(t, "b", "xz", "", nil, file{name: "./usr/out/victim", text: "theirs"})
	var stream bytes.Buffer
	if err := debian.WriteRoot(&stream, pinsOf(a, b), epoch, opener(a, b)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	imp := archive.Importer{NewFile: func() (*os.File, error) { return os.CreateTemp(dir, "*") }}
	f, _, err := imp.Stream(context.Background(), &stream)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if raw, err := os.ReadFile(outside); err != nil || string(raw) != "mine" {
		t.Errorf("this machine's file: %q %v", raw, err)
	}
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := img.Open(strings.TrimPrefix(outside, "/"))
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	if raw, err := io.ReadAll(inside); err != nil || string(raw) != "theirs" {
		t.Errorf("the tree's file: %q %v", raw, err)
	}
}

// TestReadError reports an error of the cache with the package's name.
func TestReadError(t *testing.T) {
	a := deb(t, "a", "xz", "", nil)
	err := debian.WriteRoot(io.Discard, pinsOf(a), epoch, func(debian.Pin) (io.ReadCloser, error) {
		return nil, &carrel.Error{Kind: carrel.Internal, Err: errors.New("the disk is broken")}
	})
	if err == nil || !strings.Contains(err.Error(), "package a") ||
		!strings.Contains(err.Error(), "broken") {
		t.Errorf("%v", err)
	}
}
