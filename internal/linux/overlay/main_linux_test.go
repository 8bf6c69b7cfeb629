package overlay_test

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/overlay"
	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of an unprivileged user. No account has it.
const stranger = 54377

func TestMain(m *testing.M) {
	if reexec.Run(reexec.Parts{"overlay-inside": inside}) {
		return
	}
	os.Exit(m.Run())
}

// op is one operation of a program inside.
type op struct {
	Do   string
	Path string
	To   string
	Data []byte
	Mode fs.FileMode
}

// job is the work of a child in its own namespaces.
type job struct {
	Lower       []string
	Upper, Work string
	At          string // where it is mounted
	Ops         []op
	Lenient     bool // ops may fail
}

// inside mounts, does the operations, and prints the resulting tree.
func inside() {
	var j job
	if err := gob.NewDecoder(os.Stdin).Decode(&j); err != nil {
		fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		fatal(err)
	}
	text, err := overlay.MountOptions(j.Lower, j.Upper, j.Work, true)
	if err != nil {
		fatal(err)
	}
	if err := unix.Mount("overlay", j.At, "overlay", 0, text); err != nil {
		fatal(fmt.Errorf("mount %s: %w", text, err))
	}
	if err := os.Chdir(j.At); err != nil {
		fatal(err)
	}
	syscall.Umask(0)
	for _, o := range j.Ops {
		if err := o.do(); err != nil && !j.Lenient {
			fatal(fmt.Errorf("%+v: %w", o, err))
		}
	}
	if err := gob.NewEncoder(os.Stdout).Encode(snapshot(".")); err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

func (o op) do() error {
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o755); err != nil {
		return err
	}
	switch o.Do {
	case "write":
		f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(o.Data)
		return err
	case "append":
		f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.Write(o.Data)
		return err
	case "sparse":
		f, err := os.Create(o.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = f.WriteAt(o.Data, 1<<30)
		return err
	case "rm":
		return os.RemoveAll(o.Path)
	case "mkdir":
		return os.MkdirAll(o.Path, 0o755)
	case "rename":
		return os.Rename(o.Path, o.To)
	case "symlink":
		return os.Symlink(o.To, o.Path)
	case "link":
		return os.Link(o.Path, o.To)
	case "chmod":
		return unix.Chmod(o.Path, uint32(o.Mode))
	case "chmodfile":
		if st, err := os.Lstat(o.Path); err != nil || !st.Mode().IsRegular() {
			return err
		}
		return unix.Chmod(o.Path, uint32(o.Mode))
	case "fifo":
		return unix.Mkfifo(o.Path, 0o644)
	case "socket":
		l, err := net.Listen("unix", o.Path)
		if err != nil {
			return err
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		return l.Close()
	case "setxattr":
		return unix.Lsetxattr(o.Path, o.To, o.Data, 0)
	}
	return fmt.Errorf("no op %q", o.Do)
}

// state is a snapshot's record of a path.
type state struct {
	Mode uint32
	Text []byte
}

// snapshot reads a whole tree. It keeps contents, not hashes, so that a failed test shows the
// difference. The trees are small.
func snapshot(dir string) map[string]state {
	out := map[string]state{}
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			fatal(err)
		}
		rel, _ := filepath.Rel(dir, p)
		if rel == "." {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			fatal(err)
		}
		s := state{Mode: st.Mode}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			to, _ := os.Readlink(p)
			s.Text = []byte(to)
		case unix.S_IFREG:
			if st.Size < 1<<24 {
				s.Text, _ = os.ReadFile(p)
			}
		}
		out[fmt.Sprintf("%q", rel)] = s
		return nil
	})
	return out
}

// world is a lower directory and an upper layer.
type world struct {
	t                           *testing.T
	dir, lower, upper, work, at string
	lenient                     bool
	merged                      map[string]state
}

func newWorld(t *testing.T) *world { return newWorldIn(t, t.TempDir()) }

func newWorldIn(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{t: t, dir: dir}
	for _, d := range []struct {
		p    *string
		name string
	}{{&w.lower, "lower"}, {&w.upper, "upper"}, {&w.work, "work"}, {&w.at, "at"}} {
		*d.p = filepath.Join(w.dir, d.name)
		if err := os.Mkdir(*d.p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range []string{w.upper, w.work, w.lower} {
			if err := overlay.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// file makes a file in the lower directory.
func (w *world) file(name, text string, mode fs.FileMode) {
	w.t.Helper()
	writeFile(w.t, filepath.Join(w.lower, name), text, mode)
}

func writeFile(t *testing.T, p, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(p, uint32(mode)); err != nil {
		t.Fatal(err)
	}
}

// run does the operations in a real overlay.
func (w *world) run(ops ...op) {
	w.t.Helper()
	out, err := mounted(job{Lower: []string{w.lower}, Upper: w.upper, Work: w.work, At: w.at, Ops: ops, Lenient: w.lenient})
	if err != nil {
		testenv.Need(w.t, "overlay", noNamespaces())
		w.t.Fatal(err)
	}
	w.merged = out
}

// mounted runs a job in a child with its own user and mount namespaces.
func mounted(j job) (map[string]state, error) {
	var in bytes.Buffer // not JSON: names are bytes
	if err := gob.NewEncoder(&in).Encode(j); err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"overlay-inside"}
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = &in
	var errs strings.Builder
	cmd.Stderr = &errs
	cmd.SysProcAttr = namespaces()
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, errs.String())
	}
	var m map[string]state
	return m, gob.NewDecoder(bytes.NewReader(out)).Decode(&m)
}

func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// noNamespaces returns the reason why there are no user namespaces here, or nil.
func noNamespaces() error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = namespaces()
	return cmd.Run()
}

// changes lists the differences, as "kind path".
func (w *world) changes() ([]overlay.Change, []string) {
	w.t.Helper()
	list, err := overlay.Changes(w.t.Context(), w.lower, w.upper, overlay.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	var words []string
	for _, c := range list {
		words = append(words, fmt.Sprintf("%s %s", c.Kind, c.Path))
	}
	return list, words
}

// same fails unless two trees are equal.
func same(t *testing.T, got, want map[string]state) {
	t.Helper()
	for p, g := range got {
		if w, ok := want[p]; !ok {
			t.Errorf("%s should not be there", p)
		} else if g.Mode != w.Mode || string(g.Text) != string(w.Text) {
			t.Errorf("%s: %o %.200q, want %o %.200q", p, g.Mode, g.Text, w.Mode, w.Text)
		}
	}
	for p := range want {
		if _, ok := got[p]; !ok {
			t.Errorf("%s is missing", p)
		}
	}
}

// equalLists compares lists of words.
func equalLists(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// TestAsStranger runs all other tests as an unprivileged user.
func TestAsStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		return // this is the stranger
	}
	dir, err := os.MkdirTemp("", "overlay-stranger-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	exe := filepath.Join(dir, "test")
	f, err := os.OpenFile(exe, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, self); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, stranger, stranger); err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(exe, args...)
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "HOME="+home, "TMPDIR="+home)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as uid %d: %v\n%s", stranger, err, out)
	}
	t.Logf("%d tests", strings.Count(string(out), "--- PASS"))
}
