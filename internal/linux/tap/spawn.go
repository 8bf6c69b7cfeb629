package tap

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/proc"
	"github.com/carrel-dev/carrel/internal/reexec"
)

// stageName is the part that the process plays between Spawn and its program.
const stageName = "carrel-tap"

// Parts returns the parts of this package for [reexec.Run]. A program that calls Spawn must run
// them first of all.
func Parts() reexec.Parts { return reexec.Parts{stageName: stage} }

// order holds Spawn's instructions for the stage.
type order struct {
	Config Config
	Socket int
	Path   string
	Args   []string
}

// Spawn starts cmd as the first process of new user, pid, mount and network namespaces, behind a
// link of its own. It returns the host's end of that link, for [driver.Network]'s Attach. The
// program runs once the link is complete. Frames that it sends before somebody reads the file are
// kept.
//
// The caller makes cmd with [exec.Command] and may set every field except SysProcAttr. Afterwards
// it waits for cmd as usual; the program dies with the caller. The path /proc/self/exe means the
// caller's own binary. Inside, root is the calling user, /etc/resolv.conf names the gateway and
// /proc is the namespace's own. A program that calls Spawn must run [Parts] first:
//
//	func TestMain(m *testing.M) {
//		if reexec.Run(tap.Parts()) {
//			return
//		}
//		os.Exit(m.Run())
//	}
//
//	cmd := exec.Command("curl", "http://203.0.113.9/")
//	link, err := tap.Spawn(cmd, tap.Config{})
//	…
//	_, err = w.Attach(ctx, driver.LinkSpec{ID: id, MTU: tap.DefaultMTU}, link)
//	err = cmd.Wait()
//
// Spawn is only for programs that may see this machine's files: it hides no file and limits nothing
// but the network. Error: Unsupported when this host gives this user no namespaces or TAP devices.
func Spawn(cmd *exec.Cmd, c Config) (*os.File, error) {
	link, err := spawn(cmd, c)
	var known *carrel.Error
	if err != nil && !errors.As(err, &known) {
		err = &carrel.Error{Op: "start program behind a link", Kind: carrel.Unsupported, Err: err,
			Hint: "user namespaces and TAP devices must be allowed: sysctl user.max_user_namespaces, ls -l /dev/net/tun"}
	}
	return link, err
}

func spawn(cmd *exec.Cmd, c Config) (*os.File, error) {
	if !reexec.Ready() {
		return nil, &carrel.Error{Op: "start program behind a link", Kind: carrel.Internal, Err: errors.New("this program's main does not run tap.Parts")}
	}
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	path, err := filepath.Abs(cmd.Path)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "stage")
	defer unix.Close(fds[0])
	told, err := json.Marshal(order{Config: c, Socket: 3 + len(cmd.ExtraFiles), Path: path, Args: cmd.Args})
	if err != nil {
		_ = theirs.Close()
		return nil, err
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	cmd.Path, cmd.Args = "/proc/self/exe", []string{stageName, string(told)}
	cmd.SysProcAttr = namespaces()
	err = proc.Alone(cmd.Start)
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("new namespaces: %w", err)
	}
	link, err := Receive(fds[0])
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return link, nil
}

// namespaces returns the attributes of a process that is root only over its own namespaces.
func namespaces() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		// A terminal's interrupt goes only to the caller. The caller decides what to do.
		Setpgid: true,
	}
}

// stage makes the link, sends its file to the parent and becomes the program.
func stage() {
	runtime.LockOSThread()
	var o order
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		fail(o, err)
	}
	unix.CloseOnExec(o.Socket)
	if err := isolate(); err != nil {
		fail(o, err)
	}
	link, err := Setup(o.Config)
	if err != nil {
		fail(o, err)
	}
	if err := Send(o.Socket, link); err != nil {
		fail(o, err)
	}
	_ = link.Close()
	err = syscall.Exec(o.Path, o.Args, os.Environ())
	fmt.Fprintf(os.Stderr, "exec %s: %v\n", o.Path, err)
	os.Exit(127)
}

// fail sends the error to the parent, in one message.
func fail(o order, err error) {
	text := err.Error()
	_ = unix.Sendmsg(o.Socket, []byte(text[:min(len(text), maxMessage)]), nil, nil, 0)
	os.Exit(126)
}

// isolate gives the mount namespace its own /proc and /etc/resolv.conf.
func isolate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount private", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return os.NewSyscallError("mount proc", err)
	}
	return resolver()
}

// resolver mounts a file that names the gateway over /etc/resolv.conf.
func resolver() error {
	f, err := os.CreateTemp("", "carrel-resolv-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // the mount keeps it
	_, err = f.WriteString("nameserver " + driver.GatewayIPv4 + "\n")
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	const name = "/etc/resolv.conf"
	if err := unix.Mount(f.Name(), name, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "bind mount", Path: name, Err: err}
	}
	return nil
}
