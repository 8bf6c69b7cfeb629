package gvisor

import (
	"encoding/json"
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel"
	"github.com/carrel-dev/carrel/internal/driver"
)

// Bounds inside the sandbox.
const (
	maxOpenFiles = 65536 // per process
	shmShare     = 2     // part of the memory limit that /dev/shm may hold
)

// capabilities of root inside the sandbox: those that package managers, sudo and debuggers need, as
// far as the sentry serves them. No raw sockets, no mounts, no modules, no device nodes. They mean
// nothing on the host.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE",
	"CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_AUDIT_WRITE",
}

// ociSpec describes the sandbox to the sentry, with the limits that hold inside.
// The order of its EROFS mounts is the order of the donated images.
func ociSpec(s driver.Spec, inside carrel.Limits) *specs.Spec {
	pids := uint64(inside.Pids)
	return &specs.Spec{
		Version:  "1.1.0",
		Hostname: string(s.ID),
		Root:     &specs.Root{Path: "/"},
		Process: &specs.Process{
			Args: []string{driver.GuestPath, "-gateway", driver.GatewayIPv4 + "," + driver.GatewayIPv6},
			// The environment of the guest itself; the programs that it starts get another one. One
			// thread at a time is enough for the guest. A second thread that looks for work would
			// take processor time from the programs and the sentry.
			Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GOMAXPROCS=1"},
			Cwd: "/",
			Capabilities: &specs.LinuxCapabilities{
				Bounding: capabilities, Effective: capabilities, Permitted: capabilities,
			},
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: maxOpenFiles, Hard: maxOpenFiles},
				// No process inside has the capability to exceed this limit, so it holds for root
				// too. It counts per user. A fork bomb gets EAGAIN.
				{Type: "RLIMIT_NPROC", Soft: pids, Hard: pids},
				{Type: "RLIMIT_CORE", Soft: 0, Hard: 0},
			},
		},
		Mounts: []specs.Mount{
			{Destination: driver.GuestMount, Type: "erofs", Source: driver.GuestMount, Options: []string{"ro"}},
			{Destination: "/proc", Type: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			{Destination: "/dev", Type: "tmpfs"},
			{Destination: "/dev/pts", Type: "devpts"},
			{Destination: "/dev/shm", Type: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", shmSize(inside)}},
			// gVisor mounts a tmpfs (memory) on an empty /tmp unless the specification has a mount
			// there. It skips types it does not know. So this mount keeps /tmp on the disk and
			// under the disk limit.
			{Destination: "/tmp", Type: "carrel-none"},
		},
		Linux: &specs.Linux{},
	}
}

// shmSize bounds /dev/shm, which is memory.
func shmSize(l carrel.Limits) string {
	return "size=" + strconv.FormatInt(int64(l.MemoryMB)<<20/shmShare, 10)
}

// specFile is the description as an anonymous file.
func specFile(k *sentryBuild, s driver.Spec, inside carrel.Limits) (*os.File, error) {
	told, err := k.describe(s, inside)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(told)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "spec")
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
