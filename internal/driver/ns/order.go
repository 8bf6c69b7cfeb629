package ns

import (
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// order holds the stage's instructions, as JSON.
type order struct {
	Socket   int // descriptor on which the stage sends the link, or an error
	Hostname string
	Args     []string
	Env      []string

	// Dir is the scratch directory. The stage first mounts an empty filesystem there and binds
	// Binds in it, by their names. If Binds is empty, everything is there already.
	Dir   string
	Binds map[string]string `json:",omitempty"`
	// NoSetuid takes the effect from setuid programs. If only one id is mapped they have none
	// anyway.
	NoSetuid bool

	Device   string // of the TAP
	Pids     int    // RLIMIT_NPROC
	ShmBytes int64
	Groups   bool // terminals have a group

	Seccomp seccomp.Filter
}

// Bounds inside the sandbox.
const (
	maxOpenFiles = 65536 // per process
	shmShare     = 2     // part of the memory limit that /dev/shm may hold
	devBytes     = "size=256k"
)

// capabilities of root inside the sandbox, over its own namespaces. Package managers and sudo need
// them. No mounts, no network settings, no raw sockets, no tracing.
var capabilities = []uintptr{
	0,  // CAP_CHOWN
	1,  // CAP_DAC_OVERRIDE
	3,  // CAP_FOWNER
	4,  // CAP_FSETID
	5,  // CAP_KILL
	6,  // CAP_SETGID
	7,  // CAP_SETUID
	8,  // CAP_SETPCAP
	10, // CAP_NET_BIND_SERVICE
	18, // CAP_SYS_CHROOT
	29, // CAP_AUDIT_WRITE
	31, // CAP_SETFCAP
}

// guestArgs is the guest's command line. By the mark Sweep finds a driver's processes on the host.
func guestArgs(mark string) []string {
	return []string{driver.GuestPath, "-gateway", driver.GatewayIPv4 + "," + driver.GatewayIPv6, "-mark", mark}
}

// guestEnv is the guest's environment. It keeps Go's runtime from looking for the group's limits,
// because those are files of the host.
var guestEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GODEBUG=containermaxprocs=0"}
