//go:build linux

// Package umounter takes /proc away from a starting sentry. It runs in the child that the sentry
// starts for that, before the child initialises anything else.
//
// A sentry gives up its rights and then can't unmount. So gVisor first starts the sentry's own
// program once more, as "umount --sync-fd=3 /proc", and waits for it before it installs its filter.
// Initialising a kernel's packages takes longer than all other work of this child. Go initialises
// packages whose imports are ready in the order of their paths, so a package that imports next to
// nothing is among the first. Package run/early works in the same way.
//
// It is for cmd/carrel-sentry alone. Elsewhere gVisor's own command does the work.
package umounter

import "syscall"

// commandLine is the child's command line as gVisor gives it, each argument with its zero byte.
const commandLine = "/proc/self/exe\x00umount\x00--sync-fd=3\x00/proc\x00"

// nobody is the uid of a sentry in its user namespace. On the host, nobody may unmount nothing. So
// a process that is started like this by mistake does no harm.
const nobody = 65534

// syncFD is the pipe on which the sentry sends one byte when it is time to unmount.
const syncFD = 3

func init() {
	if asked() {
		syscall.Exit(umount())
	}
}

// asked reports whether this process is that child. It has exactly the expected command line, and
// it is not the first process of its pid namespace, as the sentry is. It does not use package os,
// which would have to be initialised first.
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
