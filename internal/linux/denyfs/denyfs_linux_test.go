package denyfs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/reexec"
	"github.com/carrel-dev/carrel/internal/testenv"
)

// stranger is the uid of the unprivileged tests. No account has it.
const stranger = 54321

func TestMain(m *testing.M) {
	if reexec.Run(reexec.Parts{"carrel-deny-stage": stage, "carrel-deny-user": user}) {
		return
	}
	os.Exit(m.Run())
}

// order holds the instructions for the stage.
type order struct {
	Device, Dir string
	Targets     []string // paths that masks hide
	Shell       string
}

// stage runs in new user, pid and mount namespaces. It mounts, hands the descriptor out on 3,
// places the masks and becomes a shell.
func stage() {
	runtime.LockOSThread()
	var o order
	check(json.Unmarshal([]byte(os.Args[1]), &o))
	begin := time.Now()
	dev, err := open(o.Device)
	check(err)
	check(Mount(dev, o.Dir))
	raw, err := dev.SyscallConn()
	check(err)
	check(raw.Control(func(fd uintptr) { check(unix.Sendmsg(3, []byte("x"), unix.UnixRights(int(fd)), nil, 0)) }))
	check(dev.Close())
	mounted := time.Since(begin)
	root, err := unix.Open(o.Dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	check(err)
	Learn(root)
	check(unix.Close(root))
	for i, target := range o.Targets {
		check(unix.Mount(fmt.Sprintf("%s/%d", o.Dir, i), target, "", unix.MS_BIND, ""))
	}
	check(unix.Unmount(o.Dir, unix.MNT_DETACH))
	fmt.Printf("open, mount %v, %d binds %v\n", mounted, len(o.Targets), time.Since(begin)-mounted)
	if o.Shell == "-" {
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
		_, err := os.ReadFile(o.Targets[0])
		fmt.Println("read:", err)
		return
	}
	check(unix.Exec("/bin/sh", []string{"sh", "-c", o.Shell}, os.Environ()))
}

func check(err error) {
	if err != nil {
		fmt.Println("stage:", err)
		os.Exit(3)
	}
}

// box runs a shell line with masks over a file and a directory.
type box struct {
	*exec.Cmd
	out    output
	stdin  io.WriteCloser
	dir    string
	server *Server

	mu      sync.Mutex
	touches []Touch
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	return len(p), nil
}

func (b *box) text() string {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	return string(b.out.text)
}

func (b *box) list() []Touch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.touches)
}

func start(t testing.TB, uid int, shell string) *box {
	t.Helper()
	if _, err := Open(); err != nil {
		testenv.Need(t, "fuse", err)
	}
	if os.Geteuid() != 0 && uid != os.Geteuid() {
		testenv.Need(t, "root", errors.New("root, to become another user"))
	}
	b := &box{dir: t.TempDir()}
	// The stranger can't enter the parents of t.TempDir.
	for d := b.dir; d != os.TempDir() && len(d) > 1; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
	device := "/dev/fuse"
	if uid != 0 {
		device = b.dir + "/fuse"
		if err := unix.Mknod(device, unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))); err != nil {
			testenv.Need(t, "mknod", err)
		}
		_ = os.Chmod(device, 0o666)
	}
	for _, d := range []string{"mount", "secrets", "secrets/deep", "open"} {
		ok(t, os.Mkdir(filepath.Join(b.dir, d), 0o755))
		ok(t, os.Chown(filepath.Join(b.dir, d), uid, uid))
	}
	ok(t, os.WriteFile(b.dir+"/key", []byte("private"), 0o644))
	ok(t, os.WriteFile(b.dir+"/secrets/deep/token", []byte("private"), 0o644))
	masks := []Mask{{Path: "KEY"}, {Path: "SECRETS", Dir: true}}
	o := order{Device: device, Dir: b.dir + "/mount", Targets: []string{b.dir + "/key", b.dir + "/secrets"}, Shell: shell}
	text, err := json.Marshal(o)
	ok(t, err)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	ok(t, err)
	defer unix.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "theirs")
	b.Cmd = exec.Command("/proc/self/exe")
	b.Args = []string{"carrel-deny-stage", string(text)}
	b.Stdout, b.Stderr = &b.out, &b.out
	b.Dir = b.dir
	b.ExtraFiles = []*os.File{theirs}
	b.SysProcAttr = namespaces(uid)
	if uid != os.Geteuid() {
		b.Path, b.Args[0] = ownBinary(t, b.dir), "carrel-deny-user"
		b.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	if b.stdin, err = b.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(); err != nil {
		testenv.Need(t, "namespaces", err)
	}
	ok(t, theirs.Close())
	t.Cleanup(func() { _ = b.Process.Kill(); _ = b.Wait() })
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(fds[0], make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	ok(t, err)
	if n == 0 {
		_ = b.Wait()
		testenv.Need(t, "namespaces", errors.New(b.text()))
	}
	m, err := unix.ParseSocketControlMessage(oob[:n])
	ok(t, err)
	got, err := unix.ParseUnixRights(&m[0])
	ok(t, err)
	begin := time.Now()
	b.server = Serve(os.NewFile(uintptr(got[0]), "fuse"), masks, func(touch Touch) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.touches = append(b.touches, touch)
	})
	t.Logf("Serve %v", time.Since(begin))
	t.Cleanup(func() { _ = b.server.Close() })
	return b
}

// ownBinary returns a copy of this test binary that everybody may execute.
func ownBinary(t testing.TB, dir string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	ok(t, err)
	ok(t, os.WriteFile(dir+"/test", text, 0o755))
	return dir + "/test"
}

// namespaces returns the attributes for the stage's namespaces, made by uid.
func namespaces(uid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: uid, Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		Pdeathsig:   syscall.SIGKILL,
	}
}

// user runs the stage as an unprivileged user.
func user() {
	runtime.LockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"carrel-deny-stage", os.Args[1]}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "socket")}
	cmd.SysProcAttr = namespaces(os.Getuid())
	check(cmd.Run())
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEverythingIsRefused(t *testing.T) {
	for _, uid := range []int{os.Geteuid(), stranger} {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			b := start(t, uid, `export LC_ALL=C
				cat key; echo x > key; ls secrets; cat secrets/deep/token; echo x > secrets/new; mkdir secrets/d
				cd secrets; test -r key || echo unreadable; chmod 777 key; rm -f key; mv secrets elsewhere; ln key open/hard
				touch -c key; ls -ld secrets; ls -l . | grep -c key; df key > /dev/null && echo df; echo $$; head -c1 /proc/self/mountinfo >/dev/null; true`)
			_ = b.Wait()
			out := b.text()
			t.Log(out)
			if strings.Contains(out, "private") {
				t.Error("a secret was read")
			}
			if n := strings.Count(out, "Permission denied"); n < 8 {
				t.Errorf("%d refusals", n)
			}
			seen := map[string]bool{}
			for _, touch := range b.list() {
				seen[touch.Op+" "+touch.Path] = true
				if touch.PID <= 0 || touch.PID > 1000 {
					t.Errorf("pid %d is none of the box's", touch.PID)
				}
			}
			t.Log(seen)
			for _, want := range []string{"open KEY", "list SECRETS", "look up SECRETS/deep", "look up SECRETS/new", "look up SECRETS/d", "stat SECRETS", "stat KEY", "change KEY"} {
				if !seen[want] {
					t.Errorf("nobody was told of %q", want)
				}
			}
			for path, want := range map[string]string{"/key": "private", "/secrets/deep/token": "private"} {
				if got, err := os.ReadFile(b.dir + path); err != nil || string(got) != want {
					t.Errorf("outside %s is %q, %v", path, got, err)
				}
			}
		})
	}
}
