package files

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carrel-dev/carrel/shell/tool"
	"github.com/carrel-dev/carrel/shell/vfs"
)

// TestMany walks and removes a directory of 100,000 files, and a tree as deep as paths can be.
func TestMany(t *testing.T) {
	x := newBox(t)
	x.v = vfs.New(vfs.Options{}).As(vfs.Cred{})
	x.left = 1 << 40
	if err := x.v.MkdirAll("/w/many", 0o755); err != nil {
		t.Fatal(err)
	}
	many, deep := 100_000, 2000
	if testing.Short() {
		many, deep = 5_000, 400
	}
	for i := range many {
		if err := x.v.WriteFile(fmt.Sprintf("/w/many/%d", i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.v.MkdirAll("/w/deep"+strings.Repeat("/d", deep), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, run := range []struct {
		c    tool.Command
		args []string
	}{{ls, []string{"-l", "many"}}, {find, []string{".", "-name", "*9"}}, {du, []string{"-s", "."}}, {cp, []string{"-r", "many", "copy"}}, {cp, []string{"-r", "deep", "deep2"}},
		{chmod, []string{"-R", "u+x", "deep"}}, {tree, []string{"deep"}}, {diff, []string{"-r", "deep", "deep2"}}, {rm, []string{"-rv", "copy"}}, {rm, []string{"-r", "many", "deep"}}} {
		start := time.Now()
		if s := x.run(t, run.c, nil, run.args...); s != 0 {
			t.Errorf("%v: %d", run.args, s)
		}
		if d := time.Since(start); d > 5*time.Minute {
			t.Errorf("%v took %v", run.args, d)
		}
	}
}

func FuzzMode(f *testing.F) {
	f.Add("u+rwX,g=u,o-w", uint32(0o644))
	f.Add("=rw,+X", uint32(0o755))
	f.Fuzz(func(t *testing.T, s string, old uint32) {
		if m, ok := parseMode(s); ok {
			if got := permBits(m.apply(fileMode(old&0o7777), 0o022, true)); got > 0o7777 {
				t.Errorf("%o", got)
			}
		}
	})
}

func FuzzDD(f *testing.F) {
	f.Add("bs=1k count=2x3 skip=1B conv=ucase,swab", []byte("hello"))
	f.Add("ibs=3 obs=5 cbs=4 conv=block", []byte("a\nbb\nccccc\n"))
	f.Fuzz(func(t *testing.T, args string, in []byte) {
		x := newBox(t)
		x.run(t, dd, in, strings.Fields(args)...)
	})
}

func FuzzFind(f *testing.F) {
	f.Add(". ( -name a -o ! -type d ) -prune , -printf %p%TY\\n")
	f.Add(". -size +3k -perm /u+x -regex .*\\(a\\|b\\) -newermt 2001-01-01")
	f.Fuzz(func(t *testing.T, args string) {
		x := newBox(t)
		_ = x.v.WriteFile("/w/a", []byte("x"), 0o644) // there is room
		if strings.Contains(args, "exec") || strings.Contains(args, "-ok") {
			return // there are no other programs here
		}
		x.run(t, find, nil, strings.Fields(args)...)
	})
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte("--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"), []byte("a\nb\n"))
	f.Add([]byte("1,2c1\n< a\n< b\n---\n> c\n"), []byte("a\nb"))
	f.Add([]byte("*** f\n--- f\n***************\n*** 1,2 ****\n  a\n! b\n--- 1,2 ----\n  a\n! c\n"), []byte("a\nb\n"))
	f.Fuzz(func(t *testing.T, p, file []byte) {
		x := newBox(t)
		if x.v.WriteFile("/w/f", file, 0o644) != nil {
			return
		}
		x.run(t, patch, p, "-f", "f")
		x.run(t, patch, p, "-R", "-f", "-p0")
	})
}

// FuzzDiff checks that the output of diff converts one file to the other.
func FuzzDiff(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("a\nc\nd"))
	f.Add([]byte("a\na\nb\na\n"), []byte("a\nb\na\na\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x := newBox(t)
		c := &tool.Call{Host: x, Ctx: t.Context(), Name: "diff", Err: io.Discard}
		ta, tb := splitText(a), splitText(b)
		script, ok := compareTexts(c, ta, tb, &sameness{robust: true, context: 3})
		if !ok {
			return
		}
		var got [][]byte
		at := 0
		for _, ch := range script {
			got = append(got, ta.lines[at:ch.a]...)
			got = append(got, tb.lines[ch.b:ch.b+ch.ins]...)
			at = ch.a + ch.del
		}
		got = append(got, ta.lines[at:]...)
		if !bytes.Equal(bytes.Join(got, []byte{'\n'}), bytes.Join(tb.lines, []byte{'\n'})) {
			t.Errorf("%q -> %q: %v", a, b, script)
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
