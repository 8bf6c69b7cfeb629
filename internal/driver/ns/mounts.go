package ns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Names in the scratch directory of a sandbox. The stage finds its parts under them.
const (
	lowerName = "lower" // the template
	guestName = "guest" // the guest's image
	diskName  = "disk"  // holds upperName and workName
	rootName  = "root"  // the stage puts everything together here
	upperName = "upper"
	workName  = "work"
)

// scratchDirs are directories of which every machine has at least one. A private namespace mounts
// its scratch directory over one. That hides the old content only in this namespace.
var scratchDirs = []string{"/run", "/mnt", "/tmp"}

// apart runs f on a thread of its own. The thread ends afterwards, so f's changes to it end, too.
func apart(f func() error) error {
	done := make(chan error, 1)
	go runApart(f, done)
	return <-done
}

func runApart(f func() error, done chan<- error) {
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	if unix.Gettid() == unix.Getpid() {
		// The main thread can't end. Hold it here while another goroutine, which then can't get it,
		// tries again.
		again := make(chan error, 1)
		go runApart(f, again)
		done <- <-again
		runtime.UnlockOSThread()
		return
	}
	done <- f()
}

// enter moves the calling thread into a mount namespace. It must be a thread of apart.
func enter(ns *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("setns", unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS))
}

// ownMounts gives the calling thread a mount namespace of its own that shares nothing. It must be a
// thread of apart.
func ownMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare mounts", err)
	}
	return os.NewSyscallError("mount private", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// namespaceOf opens the mount namespace of the calling thread.
func namespaceOf() (*os.File, error) { return os.Open("/proc/thread-self/ns/mnt") }

// scratch mounts an empty directory that every user may enter, and returns its path.
func scratch() (string, error) {
	var err error
	for _, dir := range scratchDirs {
		if err = unix.Mount("carrel", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("mount scratch: %w", err)
}

// setting is one option of a filesystem. Without a value it is a flag.
type setting struct{ key, value string }

// newMount makes a mount that is attached nowhere yet.
func newMount(kind string, attrs int, settings ...setting) (int, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	defer unix.Close(fs)
	for _, s := range settings {
		if s.value == "" {
			err = unix.FsconfigSetFlag(fs, s.key)
		} else {
			err = unix.FsconfigSetString(fs, s.key, s.value)
		}
		if err != nil {
			return -1, fmt.Errorf("mount %s: %s=%s: %w", kind, s.key, s.value, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, fmt.Errorf("mount %s: %w%s", kind, err, words(fs))
	}
	m, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", kind, err)
	}
	return m, nil
}

// words returns the kernel's message about a failed mount.
func words(fs int) string {
	b := make([]byte, 256)
	n, err := unix.Read(fs, b)
	if err != nil || n <= 0 {
		return ""
	}
	return ": " + string(b[:n])
}

// place attaches a mount to a directory, and closes it.
func place(m int, dir string) error {
	defer unix.Close(m)
	if err := unix.MoveMount(m, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "mount on", Path: dir, Err: err}
	}
	return nil
}

// fdPath is a path of an open file. It means the same file in every mount namespace with this
// /proc.
func fdPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// mountImage makes a mount of an EROFS image. If the kernel can (Linux 6.12), it mounts the file
// itself; otherwise it uses a loop device.
func mountImage(f *os.File, node string) (int, error) {
	m, err := newMount("erofs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, setting{"source", fdPath(f)}, setting{"ro", ""})
	if !errors.Is(err, unix.ENOTBLK) && !errors.Is(err, unix.EINVAL) {
		return m, err
	}
	loop, lerr := attachLoop(f, true, node)
	if lerr != nil {
		return -1, errors.Join(err, lerr)
	}
	defer loop.Close()
	return newMount("erofs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NODEV, setting{"source", node}, setting{"ro", ""})
}

// through copies a mount and maps its host ids through a user namespace.
func through(dir string, users *os.File) (int, error) {
	m, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: dir, Err: err}
	}
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(m, "", unix.AT_EMPTY_PATH, attr); err != nil {
		unix.Close(m)
		return -1, fmt.Errorf("ids of %s: %w", dir, err)
	}
	return m, nil
}
