//go:build linux

package guard

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// habit reports whether programs write such a file by habit and work as well without it: compiled
// code beside a library, histories, their own logs, and files that are opened for reading and
// writing, or else only for reading.
func habit(c seccomp.Call, full string, k kind) bool {
	base := last(full)
	if strings.Contains(full, "/__pycache__") || strings.HasSuffix(base, ".pyc") || strings.Contains(base, ".pyc.") ||
		strings.HasSuffix(base, "_history") || strings.HasSuffix(base, ".gcda") {
		return true
	}
	switch base {
	case ".viminfo", ".viminfo.tmp", ".lesshst", ".lesshsQ", ".wget-hsts", ".zcompdump", ".python_history", ".pytest_cache", ".rnd",
		"_update-notifier-last-checked", ".npm-update-notifier", "lastlog", "wtmp", "utmp", ".Xauthority-c", ".ICEauthority-c":
		return true
	}
	for _, part := range []string{"/.npm/_logs", "/.cache/fontconfig", "/var/cache/fontconfig", "/var/cache/man", "/.config/configstore", "/go/telemetry", "/.cache/mesa_shader_cache", "/.cache/gstreamer-1.0", "/.local/share/recently-used", "/.cache/pip/", "/.cache/go-build/"} {
		if strings.Contains(full, part) {
			return true
		}
	}
	if k != opens {
		return false
	}
	_, _, flags := openShape(c.Name, c.Args)
	ext := path.Ext(base)
	// Databases are opened like this first, and after a refusal only for reading.
	return flags&(unix.O_ACCMODE|unix.O_CREAT|unix.O_TRUNC) == unix.O_RDWR || ext == ".sqlite-shm" || ext == ".lock"
}

// probe reports whether programs and libraries try such a call only to see whether it is available.
func probe(c seccomp.Call) bool {
	switch c.Name {
	case "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key", "userfaultfd", "kcmp", "process_madvise",
		"lookup_dcookie", "sysfs", "ustat", "_sysctl", "personality", "quotactl", "syslog":
		return true
	case "socket", "socketpair":
		// The C library's syslog, audit libraries and address lookups do this.
		return int32(c.Args[0]) == unix.AF_UNIX || int32(c.Args[0]) == unix.AF_NETLINK
	}
	return false
}
