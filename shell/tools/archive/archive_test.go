package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestOutside unpacks names and links that lead out of the directory.
func TestOutside(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "../up", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "/abs", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "ok", Typeflag: tar.TypeReg, Mode: 0o644}, {Name: "a/../../up2", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	x := newBox(t)
	if s := x.run(t, tarMain, b.Bytes(), "xf", "-"); s != 2 {
		t.Errorf("status %d", s)
	}
	for name, want := range map[string]bool{"/up": false, "/abs": false, "/up2": false, "/w/ok": true, "/w/abs": true} {
		if _, err := x.v.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBomb unpacks more than the disk can hold.
func TestBomb(t *testing.T) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	o, err := w.Create("big")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(o, zeros{}, 32<<20); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	x := newBox(t)
	if err := x.v.WriteFile("/w/b.zip", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := x.run(t, unzipMain, nil, "b.zip"); s == 0 {
		t.Error("no error")
	}
}

func FuzzTar(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755})
	_ = w.WriteHeader(&tar.Header{Name: "d/l", Linkname: "../x", Typeflag: tar.TypeSymlink})
	_ = w.WriteHeader(&tar.Header{Name: "d/l/f", Typeflag: tar.TypeReg, Size: 3, Mode: 0o644})
	_, _ = w.Write([]byte("abc"))
	_ = w.Close()
	f.Add(b.Bytes())
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Add([]byte("\xfd7zXZ\x00\x00\x04"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		x := newBox(t)
		x.run(t, tarMain, data, "tvf", "-")
		x.run(t, tarMain, data, "xf", "-")
	})
}

func FuzzZip(f *testing.F) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	o, _ := w.Create("d/f")
	_, _ = o.Write([]byte("hello"))
	_, _ = w.Create("../up")
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		x := newBox(t)
		if err := x.v.WriteFile("/w/a.zip", data, 0o644); err != nil {
			return
		}
		x.run(t, unzipMain, nil, "-l", "a.zip")
		x.run(t, unzipMain, nil, "-o", "a.zip")
		x.run(t, zipMain, nil, "-d", "a.zip", "*")
	})
}

func FuzzTransform(f *testing.F) {
	f.Add("s/a/b/;s,x\\(y\\),\\U\\1,g", "a/xy")
	f.Fuzz(func(_ *testing.T, expr, name string) {
		trs, err := parseTransform(expr)
		if err != nil || len(name) > 200 {
			return
		}
		for _, tr := range trs[:min(len(trs), 5)] {
			name = tr.apply(name)
		}
	})
}

// box is a process with limits, on its own disk.
type box struct {
	tool.Host
	v    vfs.View
	left int
	held int64
}

func newBox(t testing.TB) *box {
	f := vfs.New(vfs.Options{Quota: 4 << 20})
	v := f.As(vfs.Cred{})
	if err := v.MkdirAll("/w", 0o755); err != nil {
		t.Fatal(err)
	}
	return &box{v: v, left: 2_000_000}
}

func (b *box) FS() vfs.View { return b.v }
func (b *box) Dir() string  { return "/w" }
func (b *box) Abs(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return "/w/" + name
}
func (b *box) Open(name string, flags vfs.Flags, perm fs.FileMode) (tool.File, error) {
	return b.v.OpenFile(b.Abs(name), flags, perm)
}
func (b *box) Umask() fs.FileMode            { return 0o022 }
func (b *box) Getenv(string) string          { return "" }
func (b *box) Now() time.Time                { return time.Unix(1e9, 0).UTC() }
func (b *box) Random(p []byte)               { clear(p) }
func (b *box) Step(n int) bool               { b.left -= n; return b.left > 0 }
func (b *box) Machine() tool.Machine         { return people{} }
func (b *box) Terminal(int) (int, int, bool) { return 0, 0, false }
func (b *box) Pay(n int64) error {
	if b.held += n; b.held > 256<<20 {
		return syscall.ENOMEM
	}
	return nil
}

type people struct{ tool.Machine }

func (people) UserName(uint32) string           { return "root" }
func (people) GroupName(uint32) string          { return "root" }
func (people) User(string) (tool.Account, bool) { return tool.Account{}, false }

// run runs a program with an input.
func (b *box) run(t testing.TB, c tool.Command, in []byte, args ...string) int {
	return c(&tool.Call{Host: b, Ctx: t.Context(), Name: "test", Args: args, In: bytes.NewReader(in), Out: io.Discard, Err: io.Discard})
}
