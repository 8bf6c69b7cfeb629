package box_test

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of the unprivileged user. No account has it.
const stranger = 54377

// path is everybody's PATH: the machine's tools, and none from somebody's home.
const path = "/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// who runs things.
type who struct {
	name string
	uid  int
}

// both runs f as root and as an unprivileged user. Without root it runs f as the tests' user.
func both(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bothOr(t, "", f)
}

// bothOr is both, but with -short it runs f as the user of that name alone, unless short is "".
func bothOr(t *testing.T, short string, f func(t *testing.T, w *world)) {
	t.Helper()
	people := []who{{"user", os.Getuid()}}
	if os.Getuid() == 0 {
		people = []who{{"root", 0}, {"user", stranger}}
	} else if os.Getenv("CARREL_REQUIRE") != "" {
		testenv.Need(t, "root", errors.New("root, to be two users"))
	}
	for _, p := range people {
		t.Run(p.name, func(t *testing.T) {
			if short != "" && short != p.name && len(people) > 1 {
				testenv.Long(t, "the other user does the same")
			}
			t.Parallel() // they share nothing and mostly wait
			f(t, newWorld(t, p))
		})
	}
}

// world is a user's home with canaries in it.
type world struct {
	who
	t testing.TB
	// home contains all of these: project is the working directory, outside is next to it, secrets
	// holds denied files.
	home, project, outside, secrets string
	canary, key                     string // canary: a file outside that must not change; key: a secret file
	carrel, attack                  string // programs
	secret                          string // the word that must not get out
	env                             []string

	closed []string // devices that the user's programs can't open, see boxed

	mu    sync.Mutex
	heard []string // what servers outside received

	master, slave *os.File // of a terminal, see callersTerminal
}

var programs = sync.OnceValues(build)

// build puts carrel and the attack program into a directory that everybody may read, on the
// filesystem of the homes.
func build() (dir string, err error) {
	if dir, err = os.MkdirTemp(homes(), "carrel-box-programs-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, "attack"), "./attack")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, out)
	}
	data, err := os.ReadFile("../../bin/carrel")
	if err != nil {
		return dir, fmt.Errorf("%w (build it with: make build)", err)
	}
	return dir, os.WriteFile(filepath.Join(dir, "carrel"), data, 0o755)
}

// homes returns the directory for homes. It is not in /tmp, because a box has its own.
func homes() string {
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/home", 0o755); err == nil {
			return "/home"
		}
	}
	return os.TempDir()
}

func TestMain(m *testing.M) {
	unix.Umask(0o022)
	if err := openDevices(); err != nil {
		fmt.Fprintln(os.Stderr, "no /dev/net/tun and /dev/fuse for the unprivileged user:", err)
	}
	code := m.Run()
	if stale := staleOwed(); code == 0 && len(stale) > 0 {
		fmt.Fprintf(os.Stderr, "no test has what is owed by name: %q\n", stale)
		code = 1
	}
	if dir, _ := programs(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// openDevices makes /dev/net/tun and /dev/fuse usable for everybody, as on most distributions, if
// only root can open them here. To do so it starts this program again in a mount namespace. Without
// these devices an unprivileged user's box has no network, and does not tell which secret was
// touched.
func openDevices() error {
	const done = "CARREL_TEST_BOX_DEVICES"
	if os.Getuid() != 0 || os.Getenv(done) != "" {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, name := range []string{"/dev/net/tun", "/dev/fuse"} {
		var st unix.Stat_t
		if err := unix.Stat(name, &st); err != nil || st.Mode&0o666 == 0o666 {
			continue
		}
		node := filepath.Join(homes(), "carrel-box-node-"+word())
		if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(st.Rdev)); err != nil {
			return err
		}
		err := errors.Join(os.Chmod(node, 0o666), unix.Mount(node, name, "", unix.MS_BIND, ""), os.Remove(node))
		if err != nil {
			return err
		}
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), done+"=1"))
}

// owed lists features that a box does not have yet, by a part of the names of the tests that show
// it. An entry is an error if its test passes, or if no test has the name.
var owed = map[string]string{
	"[--overlay]_true":          "a killed runner leaves the upper layer in the directory for temporary files",
	`TestPlaces/root/"deep`:     "a lower directory with a long path can't be mounted as root",
	"TestLimits/user/processes": "without a control group nobody is told that the limit of processes was reached",
	"file_size":                 "nobody is told that the limit of file sizes was reached",
	"TestLimits/root/tmp":       "nobody is told that /tmp is full",
	"TestLimits/user/tmp":       "nobody is told that /tmp is full",
}

// owedSeen are the entries of owed for which a test ran.
var owedSeen sync.Map

// envOwed is set in a process that runs one test that is known to fail.
const envOwed = "CARREL_BOX_OWED"

// known skips a test whose failure is owed. First it runs the test in a process of its own, where
// it must fail.
func known(t *testing.T) {
	t.Helper()
	if os.Getenv(envOwed) != "" {
		return
	}
	for part, why := range owed {
		if !strings.Contains(t.Name(), part) {
			continue
		}
		owedSeen.Store(part, true)
		levels := strings.Split(t.Name(), "/")
		for i, l := range levels {
			levels[i] = "^" + regexp.QuoteMeta(l) + "$"
		}
		cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run", strings.Join(levels, "/"))
		cmd.Env = append(os.Environ(), envOwed+"=1")
		out, err := cmd.CombinedOutput()
		switch {
		case err == nil && bytes.Contains(out, []byte("--- PASS: "+t.Name())):
			t.Errorf("it does not fail any more: take %q (%s) off the list of what is owed", part, why)
		case !bytes.Contains(out, []byte("--- FAIL: "+t.Name())):
			t.Errorf("it neither fails nor passes alone: %v\n%s", err, out)
		}
		testenv.Inapplicable(t, "not yet: "+why)
	}
}

// staleOwed returns the entries of owed for which no test ran, after a run of all tests.
func staleOwed() (stale []string) {
	if !flag.Parsed() || testing.Short() || flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	for part := range owed {
		if _, ok := owedSeen.Load(part); !ok {
			stale = append(stale, part)
		}
	}
	return stale
}

// newWorld makes a home.
func newWorld(t testing.TB, p who) *world {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp(homes(), "carrel-box-"+p.name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, home) })
	w := &world{who: p, t: t, home: home, project: home + "/project", outside: home + "/outside", secrets: home + "/.ssh", secret: word()}
	w.canary, w.key = w.outside+"/canary", w.secrets+"/id_ed25519"
	w.carrel, w.attack = home+"/bin/carrel", home+"/bin/attack"
	w.write(w.project+"/README.md", "hello\n")
	w.write(w.canary, "a canary\n")
	w.write(w.key, "-----BEGIN "+w.secret+"\n")
	w.write(home+"/bin/README", "")
	w.mkdir(home + "/.local/state") // where carrel keeps files that it took away
	for _, name := range []string{"carrel", "attack"} {
		if err := os.Link(filepath.Join(dir, name), filepath.Join(home, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(home, 0o755), os.Chmod(w.secrets, 0o700), os.Chmod(w.key, 0o600), os.Lchown(home, p.uid, p.uid)); err != nil {
		t.Fatal(err)
	}
	w.env = []string{"HOME=" + home, "PATH=" + path, "USER=" + p.name, "LANG=C.UTF-8", "TERM=xterm", "SHELL=/bin/bash"}
	return w
}

// removeAll removes a tree even if its directories are closed.
func removeAll(t testing.TB, dir string) {
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

// word is a random word.
func word() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return "w" + hex.EncodeToString(b)
}

// sub runs a part of a test with w belonging to that part.
func (w *world) sub(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		outer := w.t
		w.t = t
		defer func() { w.t = outer }()
		f(t)
	})
}

// tag is a name for things that a test makes outside of the home. It does not reveal the secret.
func (w *world) tag() string { return "carrel-box-" + w.secret[:9] }

// write makes a file and the directories above it, all owned by the user.
func (w *world) write(p, text string) {
	w.t.Helper()
	w.mkdir(filepath.Dir(p))
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(text, "#!") {
		mode = 0o755
	}
	if err := errors.Join(os.WriteFile(p, []byte(text), mode), os.Lchown(p, w.uid, w.uid)); err != nil {
		w.t.Fatal(err)
	}
}

// mkdir makes a directory owned by the user.
func (w *world) mkdir(p string) {
	w.t.Helper()
	if _, err := os.Stat(p); err == nil || len(p) <= len(w.home) {
		return
	}
	w.mkdir(filepath.Dir(p))
	if err := errors.Join(os.Mkdir(p, 0o755), os.Lchown(p, w.uid, w.uid)); err != nil {
		w.t.Fatal(err)
	}
}

// read returns a file's text, "" for a missing file.
func (w *world) read(p string) string {
	data, _ := os.ReadFile(p)
	return string(data)
}

// command returns a command that runs a program as the user in the project.
func (w *world) command(name string, args ...string) *exec.Cmd {
	if found, err := exec.LookPath(name); err == nil && !strings.Contains(name, "/") {
		for _, dir := range filepath.SplitList(path) { // the user's PATH, not the test's
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && info.Mode()&0o111 != 0 {
				found = filepath.Join(dir, name)
				break
			}
		}
		name = found
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = w.project, append([]string{"PWD=" + w.project}, w.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if w.uid != os.Getuid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}
	}
	return cmd
}

// box returns a run of carrel run with these flags, "--" and the command.
func (w *world) box(args ...string) *exec.Cmd {
	return w.boxed(w.carrel, append([]string{"run"}, args...)...)
}

// boxed is command where an empty file, which only root may open, is in the place of each of the
// closed devices.
func (w *world) boxed(name string, args ...string) *exec.Cmd {
	if len(w.closed) == 0 {
		return w.command(name, args...)
	}
	script := ""
	for _, device := range w.closed { // a directory with an empty file lies over the one of the device
		dir := w.home + "/closed" + filepath.Dir(device)
		file := filepath.Join(dir, filepath.Base(device))
		script += fmt.Sprintf("mkdir -p %s && rm -f %s && touch %s && chmod 0 %s && mount --bind %s %s || exit 99; ", dir, file, file, file, dir, filepath.Dir(device))
	}
	script += fmt.Sprintf(`exec setpriv --reuid %d --regid %d --clear-groups "$0" "$@"`, w.uid, w.uid)
	cmd := w.command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, name}, args...)...)
	cmd.SysProcAttr.Credential = nil
	return cmd
}

// result says how a command ended.
type result struct {
	out, err string
	code     int
	signal   syscall.Signal
	took     time.Duration
}

// all is both outputs.
func (r result) all() string { return r.out + r.err }

// run runs a command to its end. The end must come.
func (w *world) run(cmd *exec.Cmd) result {
	w.t.Helper()
	return w.runFor(cmd, 5*time.Minute)
}

// runFor is run with a limit.
func (w *world) runFor(cmd *exec.Cmd, limit time.Duration) (r result) {
	w.t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	if cmd.Stderr == nil {
		cmd.Stderr = &errs
	}
	cmd.WaitDelay = 30 * time.Second // a process left behind may hold the pipe
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	late := time.AfterFunc(limit, func() { _ = cmd.Process.Signal(syscall.SIGQUIT); time.Sleep(time.Second); _ = cmd.Process.Kill() })
	err := cmd.Wait()
	r = result{out: out.String(), err: errs.String(), took: time.Since(begin), code: cmd.ProcessState.ExitCode()}
	if !late.Stop() {
		w.t.Fatalf("%q did not end:\n%s", cmd.Args, r.all())
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		w.t.Errorf("%q left something behind that holds its output", cmd.Args)
	}
	if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		r.signal = st.Signal()
	}
	return r
}

// hear records a message that a server outside received.
func (w *world) hear(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, fmt.Sprintf(format, args...))
}

// heardAll returns all recorded messages.
func (w *world) heardAll() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.heard...)
}
