package ns

import (
	"github.com/carrel-dev/carrel/internal/driver"
	"github.com/carrel-dev/carrel/internal/linux/seccomp"
)

// order is what the stage is told, as JSON.
type order struct {
	Socket   int // descriptor: the link goes out here, or an error
	Hostname string
	Args     []string
	Env      []string

	// Dir is the scratch directory. Binds are laid there first, by their names in it, in an empty filesystem; without
	// any, all is there already.
	Dir   string
	Binds map[string]string `json:",omitempty"`
	// NoSetuid takes their effect from setuid programs: where one id is mapped they have none anyway.
	NoSetuid bool

	Device   string // of the TAP
	Pids     int    // RLIMIT_NPROC
	ShmBytes int64
	Groups   bool // there is a group for terminals

	Seccomp seccomp.Filter
}

// Bounds inside the sandbox.
const (
	maxOpenFiles = 65536 // per process
	shmShare     = 2     // /dev/shm may hold this fraction of the memory limit
	devBytes     = "size=256k"
)

// capabilities of root inside the sandbox, over its own namespaces: what package managers and sudo
// need. No mounts, no network settings, no raw sockets, no tracing.
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

// guestArgs is the guest's command line. The mark tells the host's processes apart, see Sweep.
func guestArgs(mark string) []string {
	return []string{driver.GuestPath, "-gateway", driver.GatewayIPv4 + "," + driver.GatewayIPv6, "-mark", mark}
}

// guestEnv is its environment. The group's limits are not to be looked for: they are the host's files.
var guestEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "GODEBUG=containermaxprocs=0"}
