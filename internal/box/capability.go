//go:build linux

package box

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// capabilityNames are the kernel's names, by number.
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG
WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// capability returns the number of a name such as "CAP_CHOWN".
func capability(name string) (int, error) {
	short := strings.TrimPrefix(name, "CAP_")
	for i, n := range capabilityNames {
		if n == short {
			return i, nil
		}
	}
	return 0, fmt.Errorf("unknown capability %q", name)
}

// stageCapabilities are the capabilities that the stage keeps over its namespaces when it is
// executed as an ordinary user.
func stageCapabilities(s Spec) []uintptr {
	out := []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_KILL, unix.CAP_SETPCAP,
		unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN, unix.CAP_SYS_RESOURCE}
	for _, name := range s.Capabilities {
		if n, err := capability(name); err == nil {
			out = append(out, uintptr(n))
		}
	}
	return out
}

// drop leaves the calling thread, and the programs that it executes, only the named capabilities.
func drop(keep []string) error {
	var mask uint64
	for _, name := range keep {
		n, err := capability(name)
		if err != nil {
			return err
		}
		mask |= 1 << n
	}
	for n := range 64 {
		if mask&(1<<n) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil {
			if err == unix.EINVAL { // the kernel has no more
				break
			}
			if err == unix.EPERM { // an ordinary user without namespaces: no_new_privs is enough
				break
			}
			return os.NewSyscallError("drop capability", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && err != unix.EINVAL {
		return os.NewSyscallError("clear ambient capabilities", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		word := uint32(mask >> (32 * i))
		data[i] = unix.CapUserData{Effective: word, Permitted: word, Inheritable: word}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return os.NewSyscallError("drop capabilities", err)
	}
	for n := range 64 {
		if mask&(1<<n) != 0 {
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(n), 0, 0); err != nil {
				return os.NewSyscallError("keep "+capabilityNames[n], err)
			}
		}
	}
	return nil
}
