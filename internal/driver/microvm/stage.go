//go:build linux

package microvm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/driver/hosted"
	"github.com/carrel-dev/carrel/internal/linux/ns"
	"github.com/carrel-dev/carrel/internal/linux/tap"
)

// stageName is the part that our own binary plays.
const stageName = "carrel-microvm"

// Descriptors of the stage beyond the standard ones. Those from firstFD on are the VMM's.
const (
	orderFD = 3
	saidFD  = 4 // carries an error; it just closes when the stage became the VMM
	firstFD = 5
)

// nobody is the VMM's uid and gid in its own user namespace.
const nobody = 65534

// kvmDevice is the kernel's file for virtual machines.
const kvmDevice = "/dev/kvm"

// order holds the stage's instructions, as JSON.
type order struct {
	Args   []string
	Shared []string          // directories of the host that the VMM sees, by their own names
	Files  map[string]string // files of the host, by their names in the VMM's root
	KVM    bool

	Program   string            // a file of Files that is started; "" is Args[0]
	Writeable map[string]string // like Files; the VMM may change these
	Devices   map[string]string // like Files
	// Run is a directory in memory that the VMM alone may write to.
	Run string
	// MaxFile bounds every file that the VMM writes, in bytes; 0 is no bound.
	MaxFile uint64
	// TAP is made in the VMM's network namespace.
	TAP *lent

	// Descriptors shows the VMM its own descriptors in the directory of that name.
	Descriptors bool
}

// lent says which TAP device a VMM opens by its name.
type lent struct {
	Name   string
	MTU    int
	Device string // the kernel's file for TAP devices
	Socket int    // the driver waits at its other end for the link
}

// systemDirs hold a host's programs and libraries. Those that exist are shared.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/gnu/store", "/nix/store"}

// systemFiles are systemDirs and what a dynamic linker reads beside them.
func systemFiles() []string {
	return append(systemDirs[:len(systemDirs):len(systemDirs)], linkCache)
}

// linkCache names the host's libraries for the dynamic linker.
const linkCache = "/etc/ld.so.cache"

// stage is the first process of the namespaces, until it becomes the VMM. It is trusted: it reads no
// byte of the sandbox.
func stage() {
	runtime.LockOSThread()
	if os.Getpid() != 1 {
		os.Stderr.WriteString("not in namespaces of its own")
		os.Exit(1)
	}
	var o order
	err := hosted.ReadOrder(orderFD, &o)
	if err == nil {
		err = o.become()
	}
	if err != nil {
		text := err.Error()
		_, _ = unix.Write(saidFD, []byte(text[:min(len(text), maxSaid)]))
	}
	os.Exit(126)
}

// become makes the walls and becomes the VMM.
func (o *order) become() error {
	unix.CloseOnExec(orderFD)
	unix.CloseOnExec(saidFD)
	unix.Umask(0o022)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount private", err)
	}
	if o.TAP != nil {
		if err := o.TAP.hand(); err != nil {
			return err
		}
	}
	root, err := o.gather()
	if err != nil {
		return err
	}
	root.run = o.Run
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"become nobody", becomeNobody},
		{"root", root.build},
		{"limits", func() error { return limit(o.MaxFile) }},
		{"rights", dropRights},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	program := cmp.Or(o.Program, o.Args[0])
	err = syscall.Exec(program, o.Args, []string{})
	return fmt.Errorf("start %s: %w", program, err)
}

// hand makes the device, and hands the driver's end of the link out. The VMM never holds that.
func (t *lent) hand() error {
	link, err := tap.Lend(t.Name, nobody, t.MTU, t.Device)
	if err != nil {
		return err
	}
	return errors.Join(tap.Send(t.Socket, link), link.Close(), unix.Close(t.Socket))
}

// root is the content of a VMM's root.
type root struct {
	trees map[string]int    // mounts, by their paths
	files map[string]bool   // those that are files
	links map[string]string // symbolic links
	attrs map[string]uint64 // of mounts that are not just for reading
	run   string            // a directory in memory
}

// Attributes of mounts.
const (
	forReading = ns.ReadOnly | ns.NoSUID | ns.NoDev
	forWriting = ns.NoSUID | ns.NoDev | ns.NoExec
	forDevices = ns.NoSUID | ns.NoExec
)

// gather opens everything that the VMM will see. After that the host's files are out of reach.
func (o *order) gather() (*root, error) {
	r := &root{trees: map[string]int{}, files: map[string]bool{}, links: map[string]string{}, attrs: map[string]uint64{}}
	for _, dir := range o.Shared {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSymlink != 0: // /lib is usr/lib on most hosts
			if r.links[dir], err = os.Readlink(dir); err != nil {
				return nil, err
			}
			continue
		}
		if r.trees[dir], err = ns.CloneFile(dir); err != nil {
			return nil, err
		}
		r.files[dir] = !info.IsDir()
	}
	if o.Descriptors {
		tree, err := ns.CloneFile("/proc/self/fd")
		if err != nil {
			return nil, err
		}
		r.trees[descriptors] = tree
	}
	devices := o.Devices
	if o.KVM && devices == nil {
		devices = map[string]string{kvmDevice: kvmDevice}
	}
	for _, set := range []struct {
		files map[string]string
		attrs uint64
	}{{o.Files, forReading}, {o.Writeable, forWriting}, {devices, forDevices}} {
		for at, from := range set.files {
			tree, err := ns.CloneFile(from)
			if err != nil {
				return nil, err
			}
			r.trees[at], r.files[at], r.attrs[at] = tree, true, set.attrs
		}
	}
	return r, nil
}

// build makes the root, and makes it the process's. It lies over /proc, which every host has and
// nothing here needs.
func (r *root) build() error {
	const at = "/proc"
	if err := unix.Mount("carrel", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: at, Err: err}
	}
	if err := os.Chdir(at); err != nil {
		return err
	}
	for name, tree := range r.trees {
		if err := r.place("."+name, tree, r.files[name], cmp.Or(r.attrs[name], forReading)); err != nil {
			return err
		}
	}
	if r.run != "" {
		if err := makeRun("." + r.run); err != nil {
			return err
		}
	}
	for name, to := range r.links {
		if err := errors.Join(os.MkdirAll(filepath.Dir("."+name), 0o755), os.Symlink(to, "."+name)); err != nil {
			return err
		}
	}
	if err := ns.AttrPath(".", ns.ReadOnly, false); err != nil {
		return err
	}
	// Both arguments are the same place: the old root then lies on top and is unmounted
	// (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("unmount the old root", err)
	}
	return os.Chdir("/")
}

// makeRun makes a small directory in memory.
func makeRun(at string) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	err := unix.Mount("carrel-run", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700,size=64k,nr_inodes=16")
	if err != nil {
		return &os.PathError{Op: "mount tmpfs", Path: at, Err: err}
	}
	return nil
}

// place attaches a tree at a name.
func (r *root) place(at string, tree int, file bool, attrs uint64) error {
	defer unix.Close(tree)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if file {
		f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if err != nil {
			return err
		}
		f.Close()
	} else if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	if err := ns.Private(tree, attrs); err != nil {
		return err
	}
	return ns.AttachPath(tree, at)
}

// becomeNobody takes the sandbox's own uid. As root of the host, the process was root outside and
// nobody's user inside until now.
func becomeNobody() error {
	// In a user namespace of an ordinary user groups may not be dropped, and there they give no
	// additional right.
	if err := syscall.Setgroups([]int{}); err != nil && !errors.Is(err, unix.EPERM) {
		return os.NewSyscallError("setgroups", err)
	}
	return errors.Join(syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody))
}

// limit sets the VMM's limits. A core file would hold the sandbox's memory.
func limit(maxFile uint64) error {
	err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if err == nil && maxFile > 0 {
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: maxFile, Max: maxFile})
	}
	return os.NewSyscallError("setrlimit", err)
}

// dropRights takes all rights from the calling thread, which becomes the VMM.
func dropRights() error {
	// Use a new session keyring. The inherited one may hold the daemon's keys.
	if _, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0); err != nil && !errors.Is(err, unix.ENOSYS) {
		return os.NewSyscallError("keyctl", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl CAP_AMBIENT", err)
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(header, &none[0]); err != nil {
		return os.NewSyscallError("capset", err)
	}
	return os.NewSyscallError("prctl NO_NEW_PRIVS", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}
