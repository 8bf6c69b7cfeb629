package oshost_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/guest/agent"
	"github.com/carrel-dev/carrel/internal/guest/oshost"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// newSystem returns this machine, and an account that the test may give files to.
func newSystem(t testing.TB) (*oshost.System, agent.User) {
	t.Helper()
	s := oshost.New(oshost.Options{})
	t.Cleanup(func() { _ = s.Close() })
	u := agent.User{Name: "ann", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if u.UID == 0 {
		u.UID, u.GID = 1000, 1001
	}
	return s, u
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestCreateAndOpen(t *testing.T) {
	s, u := newSystem(t)
	name := filepath.Join(t.TempDir(), "f")
	for _, contents := range []string{"a longer text", "short"} {
		f, err := s.Create(name, u)
		must(t, err)
		_, err = io.WriteString(f, contents)
		must(t, err)
		must(t, f.Close())
		f, err = s.Open(name)
		must(t, err)
		e, err := f.Stat()
		must(t, err)
		if e.Path != name || e.Size != int64(len(contents)) || e.UID != u.UID || e.GID != u.GID || e.Mode != 0o644 || time.Since(e.Modified) > time.Minute {
			t.Errorf("entry: %+v", e)
		}
		if data, err := io.ReadAll(f); err != nil || string(data) != contents {
			t.Errorf("contents: %q, %v", data, err)
		}
		must(t, f.Close())
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	s, u := newSystem(t)
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	for name, want := range map[string]error{
		"fifo": syscall.EINVAL, ".": syscall.EISDIR, "loop": syscall.ELOOP, "f/x": syscall.ENOTDIR, "absent/x": fs.ErrNotExist,
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := s.Open(filepath.Join(dir, name)); !errors.Is(err, want) {
				t.Errorf("open %s: %v, want %v", name, err, want)
			}
			_, err := s.Create(filepath.Join(dir, name), u)
			if name == "fifo" {
				want = syscall.ENXIO // nobody reads
			}
			if !errors.Is(err, want) {
				t.Errorf("create %s: %v, want %v", name, err, want)
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: waits", name)
		}
	}
	if _, err := s.Open("/dev/null"); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("open /dev/null: %v", err)
	}
}

func TestReadDirAndLinks(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "b"), 0o750))
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600))
	must(t, os.Symlink("a", filepath.Join(dir, "c")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	entries, err := s.ReadDir(dir)
	must(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, strings.TrimPrefix(e.Path, dir)+" "+e.Mode.String()+" "+e.LinkTarget)
	}
	if want := "/a -rw------- |/b drwxr-x--- |/c Lrwxrwxrwx a|/loop Lrwxrwxrwx loop"; strings.Join(got, "|") != want {
		t.Errorf("entries %q", got)
	}
	if p, err := s.EvalSymlinks(filepath.Join(dir, "c")); err != nil || p != filepath.Join(dir, "a") {
		t.Errorf("link: %q, %v", p, err)
	}
	if _, err := s.EvalSymlinks(filepath.Join(dir, "loop")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("loop: %v", err)
	}
	if _, err := s.EvalSymlinks(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if e, err := s.Stat(filepath.Join(dir, "c")); err != nil || e.Size != 1 || e.Mode != 0o600 {
		t.Errorf("stat: %+v, %v", e, err)
	}
}

func TestMkdirRemoveChown(t *testing.T) {
	s, u := newSystem(t)
	dir := filepath.Join(t.TempDir(), "d")
	must(t, s.Mkdir(dir, u))
	e, err := s.Lstat(dir)
	must(t, err)
	if e.UID != u.UID || e.GID != u.GID || e.Mode != fs.ModeDir|0o755 {
		t.Errorf("entry: %+v", e)
	}
	if err := s.Mkdir(dir, u); !errors.Is(err, fs.ErrExist) {
		t.Errorf("again: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(dir, "f"), nil, 0o644))
	must(t, s.Chown(filepath.Join(dir, "f"), u))
	if err := s.Remove(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("remove a full directory: %v", err)
	}
	must(t, s.RemoveAll(dir))
	must(t, s.RemoveAll(dir))
	if err := s.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove nothing: %v", err)
	}
}

func TestAttrs(t *testing.T) {
	s, _ := newSystem(t)
	name := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(name, nil, 0o644))
	testenv.Need(t, "xattr", unix.Setxattr(name, "user.other", []byte("kept"), 0))
	long := strings.Repeat("v", 1000)
	for _, want := range []map[string]string{{"a": "1", "b": ""}, {"b": "2", "c": long}, nil, {"a": "1"}} {
		must(t, s.SetAttrs(name, want))
		got, err := s.Attrs(name)
		must(t, err)
		if len(got) != len(want) {
			t.Errorf("attributes %v, want %v", got, want)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s is %q, want %q", k, got[k], v)
			}
		}
	}
	buf := make([]byte, 10)
	if n, err := unix.Getxattr(name, "user.other", buf); err != nil || string(buf[:n]) != "kept" {
		t.Errorf("another's attribute: %q, %v", buf[:n], err)
	}
	if _, err := s.Attrs(name + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if got, err := s.Attrs("/proc/version"); err != nil || got != nil {
		t.Errorf("a file system without attributes: %v, %v", got, err)
	}
	must(t, s.SetAttrs("/proc/self/comm", nil))
	if err := s.SetAttrs("/proc/self/comm", map[string]string{"a": "b"}); err == nil {
		t.Error("set an attribute in /proc")
	}
}

// otherFilesystem returns a directory on another file system than dir.
func otherFilesystem(t *testing.T, dir string) string {
	t.Helper()
	var a, b unix.Stat_t
	must(t, unix.Stat(dir, &a))
	err := unix.Stat("/dev/shm", &b)
	if err == nil && a.Dev == b.Dev {
		err = errors.New("/dev/shm is on the same file system")
	}
	testenv.Need(t, "shm", err)
	other, err := os.MkdirTemp("/dev/shm", "carrel-test-")
	testenv.Need(t, "shm", err)
	t.Cleanup(func() { _ = os.RemoveAll(other) })
	return other
}

func TestRenameBetweenFileSystems(t *testing.T) {
	s, _ := newSystem(t)
	dir := t.TempDir()
	other := otherFilesystem(t, dir)
	from, to := filepath.Join(dir, "tree"), filepath.Join(other, "moved")
	must(t, os.MkdirAll(filepath.Join(from, "sub"), 0o750))
	must(t, os.WriteFile(filepath.Join(from, "sub", "f"), []byte("hello"), 0o640))
	must(t, os.Chmod(filepath.Join(from, "sub", "f"), fs.ModeSetuid|0o751))
	must(t, os.Symlink("sub/f", filepath.Join(from, "link")))
	must(t, syscall.Mkfifo(filepath.Join(from, "fifo"), 0o600))
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	must(t, os.Chtimes(filepath.Join(from, "sub", "f"), old, old))
	must(t, s.Rename(from, to))
	if _, err := os.Lstat(from); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the source: %v", err)
	}
	data, err := os.ReadFile(filepath.Join(to, "link"))
	if err != nil || string(data) != "hello" {
		t.Errorf("contents: %q, %v", data, err)
	}
	info, err := os.Stat(filepath.Join(to, "sub", "f"))
	must(t, err)
	if info.Mode() != fs.ModeSetuid|0o751 || !info.ModTime().Equal(old) {
		t.Errorf("file: %v %v", info.Mode(), info.ModTime())
	}
	if info, err := os.Lstat(filepath.Join(to, "fifo")); err != nil || info.Mode() != fs.ModeNamedPipe|0o600 {
		t.Errorf("pipe: %v, %v", info, err)
	}
	must(t, os.MkdirAll(filepath.Join(dir, "full", "x"), 0o755))
	if err := s.Rename(to, filepath.Join(dir, "full")); !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a full directory: %v", err)
	}
	if _, err := os.Stat(filepath.Join(to, "sub", "f")); err != nil {
		t.Errorf("a move that failed lost the source: %v", err)
	}
	for _, d := range []string{dir, other} {
		if left, _ := filepath.Glob(filepath.Join(d, ".carrel-move-*")); left != nil {
			t.Errorf("left behind: %q", left)
		}
	}
	if err := s.Rename(filepath.Join(dir, "absent"), to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestIsNetworkMount(t *testing.T) {
	s, _ := newSystem(t)
	for _, name := range []string{"/", "/proc", t.TempDir()} {
		if remote, err := s.IsNetworkMount(name); err != nil || remote {
			t.Errorf("%s: %v, %v", name, remote, err)
		}
	}
	if _, err := s.IsNetworkMount("/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
