//go:build linux

// Package umounter takes /proc away from a sentry that starts, in the child that the sentry has for it, before anything else of
// that child is initialised.
//
// A sentry gives its rights up and then can't unmount, so gVisor starts the sentry's own program once more beforehand, as
// "umount --sync-fd=3 /proc", and waits for it before it installs its filter. Initialising a kernel's packages
// takes longer than all else that this child does. Go initialises packages whose imports are ready in the order of
// their paths, so one that imports next to nothing is among the first; package run/early does the same.
//
// It is for cmd/carrel-sentry alone. Elsewhere gVisor's own command does the work.
package umounter

import "syscall"

// commandLine is the child's, as gVisor gives it, each argument with its zero byte.
const commandLine = "/proc/self/exe\x00umount\x00--sync-fd=3\x00/proc\x00"

// nobody is the uid of a sentry in its user namespace. On the host it may unmount nothing, so that a process which is started
// like this by mistake does no harm.
const nobody = 65534

// syncFD is the pipe whose one byte says that it is time.
const syncFD = 3

func init() {
	if asked() {
		syscall.Exit(umount())
	}
}

// asked reports whether this process is that child: it says exactly what is expected, and is not the first of its pid namespace,
// which the sentry is. Package os would have to be initialised to ask it.
func asked() bool {
	if syscall.Getpid() == 1 || syscall.Geteuid() != nobody {
		return false
	}
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	var line [len(commandLine) + 1]byte
	n, err := syscall.Read(fd, line[:])
	return err == nil && string(line[:max(n, 0)]) == commandLine
}

// umount waits and unmounts; it returns the exit status.
func umount() int {
	var told [1]byte
	for {
		n, err := syscall.Read(syncFD, told[:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n != 1 {
			return 1
		}
		break
	}
	if err := syscall.Unmount("/proc", syscall.MNT_DETACH); err != nil {
		return 1
	}
	return 0
}
